"""What came of random requests, as `bench.fuzz` kept it: a table from docs/fuzz.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE = Path("docs/fuzz.json")


def fuzz_list(root: Path) -> str:
    """A row for the storefront and one for the control page, or that nothing was tried yet."""
    path = root / FILE
    if not path.exists():
        return f"Not measured yet: `.venv/bin/python -m bench.fuzz --write {FILE}`."
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        [
            {"storefront": "the storefront", "console": "the control page"}[name],
            f"{one['requests']:,}",
            ", ".join(f"{status}: {number:,}" for status, number in one["statuses"].items()),
            f"{one['closed']:,}",
            ", ".join(f"{kind}: {number:,}" for kind, number in one["faults"].items()) or "none",
            f"{one['before_mb']} to {one['after_mb']}",
            f"`{one['command']}`, {one['date']}",
        ]
        for name, one in kept.items()
    ]
    heads = [
        "asked",
        "requests",
        "answers by status",
        "closed without an answer",
        "faults",
        "memory, MB",
        "made by",
    ]
    return table(heads, rows)


LISTS = {"fuzz": fuzz_list}
