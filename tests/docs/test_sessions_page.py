"""The table of docs/sessions.md says what the sessions did, and what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.pages import fromsessions

ROW: dict[str, Any] = {
    "command": "python -m bench.blind_table",
    "date": "2026-11-24",
    "machine": "2 cores",
    "stack": "native",
    "level": 1,
    "causes": ["scan-storm"],
    "tempting": {"lever": "restart server", "cured": False, "well_after_s": None},
    "cures": [{"lever": "strategy index", "cured": True, "well_after_s": 4.4}],
    "seconds": 90.0,
    "broken": [],
}
PAIR = ROW | {
    "date": "2026-11-25",
    "level": 3,
    "causes": ["lua-script", "slow-network"],
    "tempting": None,
    "cures": [
        {"lever": "stop lua", "cured": False, "well_after_s": None},
        {"lever": "set network", "cured": False, "well_after_s": None},
    ],
    "seconds": 150.0,
    "broken": ["what should cure does not"],
}


def test_a_row_for_each_session(tmp_path: Path) -> None:
    """Singles stand before pairs; a promise that was broken is told in the row."""
    (tmp_path / "docs").mkdir()
    (tmp_path / fromsessions.FILE).write_text(json.dumps({"b": PAIR, "a": ROW}))
    lines = fromsessions.sessions(tmp_path).splitlines()
    assert lines[0] == ("1 of 2 sessions were as promised, in 4 minutes. 2 cores; 2026-11-24 to 2026-11-25.")
    assert lines[-2:] == [
        "| `scan-storm` | native | 1 | `restart server` | `strategy index` (4 s) | yes |",
        "| `lua-script` and `slow-network` | native | 3 | nothing | `stop lua`, then `set network` "
        "| what should cure does not |",
    ]


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    """Without a file the page names the command that makes it."""
    assert "bench.blind_table --write docs/sessions.json" in fromsessions.sessions(tmp_path)
