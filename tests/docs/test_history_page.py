"""The tables of docs/history.md say what the checker of histories kept, and what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.pages import fromhistory

ROW: dict[str, Any] = {
    "command": "python -m bench.history",
    "date": "2026-11-24",
    "machine": "2 cores",
    "server": "embedded",
    "strategy": "index",
    "reads": 100_000,
    "hits": 80_000,
    "puts": 20_000,
    "events": 4_000,
    "kills": 6,
    "turns": 40,
    "ttl_s": 3,
    "accused": {"lost event": 0, "stale read": 0},
    "examples": {},
    "raced": 90,
    "late": 12,
    "longest_s": 2.51,
}
BAD = ROW | {
    "strategy": "hash",
    "date": "2026-11-25",
    "accused": {"lost event": 0, "stale read": 2},
    "examples": {"stale read": ["user 7, entry 1"]},
    "puts": 0,
}
SAYS = {
    "histories": [
        "2 histories with 200,000 reads and 8,000 events; 2 accused. 2 cores; 2026-11-24 to 2026-11-25.",
        "| embedded | `index` | 100,000 | 80,000 | 20,000 | 4,000 | 6 | 40 | 0 | 0 |",
        "| embedded | `hash` | 100,000 | 80,000 | 0 | 4,000 | 6 | 40 | 0 | 2 |",
        "\n- `hash` on embedded, stale read: user 7, entry 1",
    ],
    "races": [
        "| embedded | `index` | 20,000 | 12 | 6.0 | 90 | 2.51 | 3 |",
        "| embedded | `hash` | 0 | 12 | | 90 | 2.51 | 3 |",
    ],
}


@pytest.mark.parametrize("name", fromhistory.LISTS)
def test_a_table_says_what_was_kept(name: str, tmp_path: Path) -> None:
    """Each table has its rows, and the first its sums and what is accused in words."""
    (tmp_path / "docs").mkdir()
    (tmp_path / fromhistory.FILE).write_text(json.dumps({"a": ROW, "b": BAD}))
    text = fromhistory.LISTS[name](tmp_path)
    for said in SAYS[name]:
        assert said in text, text


@pytest.mark.parametrize("name", fromhistory.LISTS)
def test_a_table_without_figures_names_the_command(name: str, tmp_path: Path) -> None:
    """What was not measured is told as that."""
    assert fromhistory.LISTS[name](tmp_path) == fromhistory.NOT_YET
