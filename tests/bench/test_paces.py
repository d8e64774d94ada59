"""`bench.paces` makes whole runs and keeps what they took; its table says it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import paces
from docs.pages import frompaces
from lab.errors import USAGE
from tests.lab.labkit import ROOT

ROW: dict[str, Any] = {
    "command": "python -m bench.paces scan-count",
    "machine": "2 cores",
    "date": "2026-11-26",
    "scenario": "scan-count",
    "seed": 1,
    "keys": 50_000_000,
    "seconds": 1234.0,
    "code": 0,
    "claims": "4 of 4",
    "notes": [],
    "announced_gb": 7.04,
    "held_gb": 6.96,
}
REFUSED = ROW | {"code": 2, "claims": "", "notes": ["lab: too little"], "announced_gb": None, "held_gb": None}


def test_a_row_for_each_run(tmp_path: Path) -> None:
    """Size, minutes, claims and memory stand in the table; a run that broke says why, and has no memory."""
    assert "Not measured yet" in frompaces.pace_list(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / frompaces.FILE).write_text(json.dumps({"b": REFUSED, "a": ROW | {"keys": 10}}))
    *_, first, second = frompaces.pace_list(tmp_path).splitlines()
    assert first.startswith(
        "| `scan-count` | 10 | 1 | 20.6 | 4 of 4 as promised | 7.0 | 7.0 | `python -m bench.paces"
    )
    assert "| exit code 2: lab: too little | – | – |" in second


def test_what_a_run_told_and_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The announced memory is read from what the run says; a run that is refused before it begins keeps its line."""
    said = "2 keys on embedded, with all that the run starts, need about 1.3 GB of memory, 9.0 GB are free\nlab: no.\n"
    refused = subprocess.CompletedProcess([], USAGE, "", said)
    monkeypatch.setattr(subprocess, "run", lambda *_words, **_more: refused)
    one = paces.ran("key-growth", 7, "full", 2, "embedded", tmp_path / "run")
    assert (one.code, one.announced_gb, one.held_gb, one.notes) == (USAGE, 1.3, None, ["lab: no."])


@pytest.mark.parametrize("words", [["nonsense"], ["--pace", "slow"], ["--times", "0"], ["--keys", "-1"]])
def test_bad_words_get_one_line(words: list[str]) -> None:
    """Nothing is run for a scenario, a pace or a number that cannot be."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.paces", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == USAGE
    assert len(done.stderr.splitlines()) == 1
