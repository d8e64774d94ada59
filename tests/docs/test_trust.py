"""The tables of docs/trust.md say what the benchmarks kept, and what was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.pages import fromtrust

BY = {"command": "python -m bench.x", "date": "2026-11-24", "machine": "2 cores"}
RUN = {"code": 0, "seconds": 85, "done": ["5 s: stopped for 80 ms"], "told": ["grow-2 was measured twice."]}
TEST = {"code": 0, "seconds": 470, "hogged": False, "closing": "9 passed", "failed": []}
CHANGE = {"in": "lab/claims/x.py: f", "change": ["- a", "+ b"]}
BOUND = {"in": "lab/claims/x.py: g", "change": ["- a >= b", "+ a > b"]}
KNOWN = {"in": "lab/claims/x.py: h", "change": ["- c", "+ d"]}
IN_A_ROW = {
    **BY,
    "rows": [
        {"seed": 1, "code": 0, "seconds": 88.4, "claims": "11 of 11", "ratios": {"c": 1.084}},
        {"seed": 2, "code": 4, "seconds": 90.0, "claims": "", "ratios": {}},
    ],
    "claim": "c",
    "wanders": "c: 1.08 in 1 run",
}
KEPT: dict[str, dict[str, Any]] = {
    "disturbed 3 a minute, hog 0, embedded": {
        **BY,
        "rows": [RUN, RUN | {"code": 1}, RUN | {"code": 4, "told": []}],
        "verdicts": 2,
        "held": 1,
    },
    "repeat key-growth on embedded, held to 0.5": IN_A_ROW,
    "demos": {**BY, "rows": [RUN], "within_s": 210.0, "good": 1},
    "suite": {**BY, "rows": [TEST, TEST | {"hogged": True, "code": 2, "failed": ["tests/x.py::test_y"]}]},
    "mutations": {
        **BY,
        "changes": 5000,
        "tried": 100,
        "noticed": 97,
        "low": 0.92,
        "high": 0.99,
        "files": {"lab/claims/x.py": [100, 97]},
        "survivors": [CHANGE, BOUND, KNOWN],
    },
}
AGREE = [
    "1 of 2 runs ended in a verdict; in 1 of those every claim held. `c: 1.08 in 1 run`",
    "| 1 | every claim holds | 88 | 11 of 11 | 1.08 × |",
    "| 2 | not valid | 90 | – | – |",
]
SAYS = {
    "repeated": AGREE,
    "disturbed": [
        "2 of 3 runs ended in a verdict; in 1 of those",
        "a claim failed",
        "not valid",
        "stopped for 80 ms",
    ],
    "demos": ["1 of 1 ended with every claim held, within 210 seconds"],
    "suite": ["1 of 2 ended without a failure", "half a core", "tests/x.py::test_y"],
    "mutations": [
        "of 5,000 changes 100 were tried, and 97 of 100 were noticed: 97.0% (95 % interval 92.0% to 99.0%)",
        "| `lab/claims/x.py: f` | `- a`<br>`+ b` | not examined |",
        "Differs only if a measured figure equals its bound to the last digit.",
        "It makes none.",
    ],
}


@pytest.mark.parametrize("name", fromtrust.LISTS)
def test_a_block_says_what_was_kept(name: str, tmp_path: Path) -> None:
    """Each table has its command, its sum and its rows; a change without a reason is called not examined."""
    (tmp_path / fromtrust.REASONS).parent.mkdir(parents=True)
    (tmp_path / fromtrust.REASONS).write_text(
        '[[change]]\nin = "lab/claims/x.py: h"\nlines = ["- c", "+ d"]\nwhy = "It makes none."\n'
    )
    (tmp_path / fromtrust.FILE).write_text(json.dumps(KEPT))
    text = fromtrust.LISTS[name](tmp_path)
    assert text.startswith("`python -m bench.x` on 2 cores, 2026-11-24: ")
    for said in SAYS[name]:
        assert said in text


@pytest.mark.parametrize("name", fromtrust.LISTS)
def test_a_block_without_figures_names_the_command(name: str, tmp_path: Path) -> None:
    """What was not measured is told as that, with the command that measures it."""
    text = fromtrust.LISTS[name](tmp_path)
    assert text.startswith("Not measured yet: `.venv/bin/python -m bench.")
    assert text.endswith("--write docs/trust.json`.")
