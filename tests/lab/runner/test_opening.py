"""Runs and scenes begin without giving the answer away."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from lab.blind.cause import Cause
from lab.blind.causes import CAUSES
from lab.runner.live import LiveDisplay
from lab.runner.run import Request, opening
from lab.scenarios import catalogue
from tests.lab.plain import Plain

SCENARIOS = catalogue()
TELLING = re.compile(r"\b(SCAN|KEYS|COUNT|index|[Ee]vict\w*|round trip|[Pp]ipelin\w*|buffers?|set)\b")
"""Words that give away the answer of a chapter."""


def begun(scenario_id: str, spoilers: bool) -> str:
    """Return what a run says of its scenario before it measures."""
    request = Request(SCENARIOS[scenario_id], None, "quick", None, 1, None, spoilers=spoilers)
    return opening(request)


@pytest.mark.parametrize("scenario_id", SCENARIOS)
def test_a_run_begins_with_what_people_saw(scenario_id: str) -> None:
    """A run begins with the symptom and without the cause; with `--spoilers` it begins with the whole story."""
    said = begun(scenario_id, spoilers=False)
    assert said
    assert TELLING.search(said) is None, said
    assert begun(scenario_id, spoilers=True) == SCENARIOS[scenario_id].story


@pytest.mark.parametrize("terminal", [True, False], ids=["live", "lines"])
@pytest.mark.parametrize("scenario_id", ["key-growth", "eviction-cycle"])
def test_a_run_that_opens_a_chapter_does_not_show_the_cause(
    scenario_id: str, terminal: bool, tmp_path: Path
) -> None:
    """Two chapters begin with a run: phase after phase the terminal names neither strategies nor their commands."""
    run = Plain(SCENARIOS[scenario_id]).write(tmp_path / "run")
    shown = io.StringIO()
    with LiveDisplay(Console(file=shown, force_terminal=terminal, color_system=None, width=200)) as display:
        for number, (phase, record) in enumerate(
            zip(SCENARIOS[scenario_id].phases, run.phases, strict=True), start=1
        ):
            display.phase(number, len(run.phases), phase, 1.0)
            display.row({"keys": record.keys, "strategy": record.strategy})
            display.finished(record, dict.fromkeys(record.probes, 1.0))

    assert all(phase.title in shown.getvalue() for phase in run.phases)
    assert TELLING.search(shown.getvalue()) is None


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.id)
def test_a_scene_begins_without_what_its_cause_does(cause: Cause) -> None:
    """A scene opened by the name of its cause does not say what the cause does, unless it is asked to."""
    said = cause.opening_line(False)
    assert cause.line not in said
    assert cause.line in cause.opening_line(True)
