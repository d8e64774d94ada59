"""The tables of docs/faults.md say what the fault matrix kept: sums, red cells, and what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.pages import fromfaults

BY = {
    "command": "python -m bench.faults",
    "date": "2026-11-24",
    "machine": "2 cores",
    "stack": "native",
    "server": "embedded",
}
GOOD = {
    "strategy": "scan",
    "accepted": 390,
    "refused": 10,
    "lost": 0,
    "stale": 0,
    "late": 2,
    "failed": 3,
    "recovered_s": 0.1,
    "drained_s": 2.3,
    "backlog": 4,
    "said": "healthz green",
    "red": [],
}
BAD = GOOD | {
    "strategy": "index",
    "lost": 1,
    "drained_s": 11.5,
    "red": ["1 lost"],
    "backlog": 90,
    "said": "readyz green 0 of 9",
}
BROKEN = {"strategy": "hash", "red": ["the scene did not come back: no port"]}
KEPT: dict[str, dict[str, Any]] = {
    "embedded a": {**BY, "fault": "a", "title": "part A gone", "cells": [GOOD, BAD]},
    "embedded b": {**BY, "fault": "b", "title": "part B gone", "cells": [BROKEN]},
    "embedded c": {
        **BY,
        "fault": "c",
        "title": "clock stepped",
        "not_here": "no library",
        "date": "2026-11-25",
    },
    "redis d": {**BY, "stack": "compose", "fault": "a", "title": "box D gone", "cells": [BAD]},
}
SAYS = {
    "faults": [
        "3 cells, 2 of them red; 780 events accepted, 1 lost. 2 cores; 2026-11-24 to 2026-11-25.",
        "| part A gone | red: index | 780 | 20 | 1 | 0 | 4 | 6 | 0.1 / 2.3 to 11.5 |",
        "| part B gone | red: hash | 0 | 0 | 0 | 0 | 0 | 0 | never / never |",
        "| clock stepped | not applicable: no library |",
    ],
    "faults-said": ["| part A gone | `index` | readyz green 0 of 9 |"],
    "faults-red": [
        "| part A gone | `index` | 1 lost | It may. |",
        "| part B gone | `hash` | the scene did not come back: no port | not explained yet |",
    ],
    "faults-compose": [
        "1 cells, 1 of them red; 390 events accepted, 1 lost.",
        "| box D gone | red: index | 390 |",
    ],
    "faults-compose-said": ["| box D gone | `index` | readyz green 0 of 9 |"],
    "faults-compose-red": ["| box D gone | `index` | 1 lost | It may. |"],
}


@pytest.mark.parametrize("name", fromfaults.LISTS)
def test_a_table_says_what_was_kept(name: str, tmp_path: Path) -> None:
    """Each table has its rows and sums. A red cell has its reason by hand, or is called not explained yet."""
    (tmp_path / fromfaults.REASONS).parent.mkdir(parents=True)
    (tmp_path / fromfaults.REASONS).write_text(
        '[[cell]]\nfault = "a"\nstrategies = ["scan", "index"]\nwhy = "It may."\n'
    )
    (tmp_path / fromfaults.FILE).write_text(json.dumps(KEPT))
    text = fromfaults.LISTS[name](tmp_path)
    for said in SAYS[name]:
        assert said in text, text
    assert ("box D" in text) == ("compose" in name) != ("part A" in text)


@pytest.mark.parametrize("name", fromfaults.LISTS)
def test_a_table_without_figures_names_the_command(name: str, tmp_path: Path) -> None:
    """What was not measured is told as that."""
    said = fromfaults.LISTS[name](tmp_path)
    assert said == fromfaults.NOT_YET["compose" if "compose" in name else "native"]
    assert "make faults" in said


def test_no_red_cell_is_said_in_a_word(tmp_path: Path) -> None:
    """A matrix that is green has no table of red cells."""
    (tmp_path / "docs").mkdir()
    (tmp_path / fromfaults.FILE).write_text(json.dumps({"a": {**KEPT["embedded a"], "cells": [GOOD]}}))
    assert fromfaults.red(tmp_path, "native") == "None."
