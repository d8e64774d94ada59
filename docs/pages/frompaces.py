"""Scenarios at their full size, as `bench.paces` kept them in docs/paces.json: a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table

FILE = Path("docs/paces.json")
NOT_YET = f"Not measured yet: `.venv/bin/python -m bench.paces --write {FILE}`."
ENDS = {0: "as promised", 1: "a claim failed", 4: "not valid"}
HEADS = ["scenario", "keys", "seed", "minutes", "its claims", "announced, GB", "held, GB", "made by"]


def pace_list(root: Path) -> str:
    """A row for each run: its size, its time, its claims, and the memory that was announced and held."""
    path = root / FILE
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not kept:
        return NOT_YET
    order = sorted(kept.values(), key=lambda one: (one["scenario"], one["keys"] or 0, one["seed"]))
    return table(HEADS, [_row(one) for one in order], (1, 2, 3, 5, 6))


def _row(one: dict[str, Any]) -> list[str]:
    ended = ENDS.get(one["code"], f"exit code {one['code']}")
    why = f": {'; '.join(one['notes'])}" if one["notes"] else ""
    return [
        f"`{one['scenario']}`",
        f"{one['keys']:,}" if one["keys"] else "–",
        str(one["seed"]),
        f"{one['seconds'] / 60:.1f}",
        f"{one['claims']} {ended}{why}".strip(),
        *("–" if one[name] is None else f"{one[name]:.1f}" for name in ("announced_gb", "held_gb")),
        f"`{one['command']}` on {one['machine']}, {one['date']}",
    ]


LISTS: dict[str, Callable[[Path], str]] = {"paces": pace_list}
