"""What came of random requests and files, as `bench.fuzz` and `bench.fuzz_files` kept it: a table for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE, FILES = Path("docs/fuzz.json"), Path("docs/fuzz_files.json")
READERS = {
    "run-folder": "a run folder, and the verdict on it",
    "recording": "a recording",
    "env-file": "`.env`",
    "probe-lines": "a line of a probe",
    "session-socket": "the socket of a blind session",
}


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


def files_list(root: Path) -> str:
    """A row for each reader of files and lines, or that nothing was tried yet."""
    path = root / FILES
    if not path.exists():
        return f"Not measured yet: `.venv/bin/python -m bench.fuzz_files --write {FILES}`."
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        [
            READERS[name],
            f"{one['inputs']:,}",
            f"{one['refused']:,}",
            ", ".join(f"{kind}: {number:,}" for kind, number in one["faults"].items()) or "none",
            f"`{one['command']}`, {one['date']}",
        ]
        for name, one in kept.items()
    ]
    return table(["read", "inputs", "refused in one line", "faults", "made by"], rows)


LISTS = {"fuzz": fuzz_list, "fuzz-files": files_list}
