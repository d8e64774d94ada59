"""The scene, round by round: the table from docs/scene.json, which `bench.scene` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.scene import HEAD, Round

FILE = Path("docs/scene.json")
NOT_YET = f"Not measured yet: `.venv/bin/python -m bench.scene --rounds 5 --write {FILE}`."


def rounds(root: Path) -> str:
    """For each series of rounds: what made it, on which machine and day, and a row for each round and server."""
    path = root / FILE
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    series = content.get("rounds", {})
    if not series:
        return NOT_YET
    parts = []
    for label, one in series.items():
        rows = [Round(**row) for row in one["rows"]]
        rows.sort(key=lambda row: (row.server, row.round))
        head = f"**{label}**: `{one['command']}`, {one['machine']}, {one['date']}"
        parts.append("\n".join([head, "", HEAD, *(row.line() for row in rows)]))
    return "\n\n".join(parts)


LISTS: dict[str, Callable[[Path], str]] = {"scene rounds": rounds}
