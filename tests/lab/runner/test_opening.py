"""Runs and scenes begin without giving the answer away."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from lab import ROOT
from lab.blind.cause import Cause
from lab.blind.causes import CAUSES, CHAPTERS
from lab.runner.live import LiveDisplay
from lab.runner.run import Request, opening
from lab.scenarios import catalogue
from lab.scenarios.model import Scenario
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
    """A run begins with the symptom and without the cause under `--quiet-cause`, else with the whole story."""
    said = begun(scenario_id, spoilers=False)
    assert said
    assert TELLING.search(said) is None, said
    assert begun(scenario_id, spoilers=True) == SCENARIOS[scenario_id].story


def displayed(scenario_id: str, folder: Path, terminal: bool, spoilers: bool) -> str:
    """Return what a terminal, or a file, shows of a run, phase after phase."""
    run = Plain(SCENARIOS[scenario_id]).write(folder)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, color_system=None, width=200)
    with LiveDisplay(console, spoilers) as display:
        for number, (phase, record) in enumerate(
            zip(SCENARIOS[scenario_id].phases, run.phases, strict=True), start=1
        ):
            display.phase(number, len(run.phases), phase, 1.0)
            display.row({"keys": record.keys, "strategy": record.strategy})
            display.finished(record, dict.fromkeys(record.probes, 1.0))
    return shown.getvalue()


@pytest.mark.parametrize("terminal", [True, False], ids=["live", "lines"])
@pytest.mark.parametrize("scenario_id", SCENARIOS)
def test_a_run_does_not_show_the_cause(scenario_id: str, terminal: bool, tmp_path: Path) -> None:
    """Phase after phase the terminal names neither strategies nor commands, nor a title that has a neutral one."""
    said = displayed(scenario_id, tmp_path / "run", terminal, spoilers=False)

    assert all(phase.named(spoilers=False) in said for phase in SCENARIOS[scenario_id].phases)
    assert not any(phase.title in said for phase in SCENARIOS[scenario_id].phases if phase.neutral)
    assert TELLING.search(said) is None


@pytest.mark.parametrize("scenario_id", SCENARIOS)
def test_with_spoilers_a_run_shows_titles(scenario_id: str, tmp_path: Path) -> None:
    """Whoever knows the cause sees what each phase is."""
    said = displayed(scenario_id, tmp_path / "run", terminal=False, spoilers=True)

    assert all(phase.title[:42] in said for phase in SCENARIOS[scenario_id].phases)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.id)
def test_neutral_titles_tell_phases_apart_as_titles_do(scenario: Scenario) -> None:
    """Two phases have one neutral title only where they have one title, so that a chart of titles has as many bars."""
    titles = {phase.title for phase in scenario.phases}

    assert len({phase.named(spoilers=False) for phase in scenario.phases}) == len(titles)
    assert len({(phase.title, phase.named(spoilers=False)) for phase in scenario.phases}) == len(titles)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.id)
def test_a_scene_begins_without_what_its_cause_does(cause: Cause) -> None:
    """A scene opened by the name of its cause does not say what the cause does, unless it is asked to."""
    said = cause.opening_line(False)
    assert cause.line not in said
    assert cause.line in cause.opening_line(True)
    assert cause.id not in cause.opening_line(False, "3")


def test_a_chapter_opens_its_own_scene_by_its_number() -> None:
    """Each page that has people open a scene names its own chapter, and so no cause."""
    opened = {}
    for page in (ROOT / "workshop").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        if page.name != "README.md" and (found := re.search(r"bin/lab blind open (\d)", text)):
            opened[found[1]] = text.startswith(f"# Chapter {found[1]}:")
    assert opened == dict.fromkeys(CHAPTERS, True)


@pytest.mark.parametrize(("terminal", "asks", "waits"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_a_lost_verdict_is_said_and_enter_goes_on(
    terminal: bool, asks: bool, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal the run waits for Enter; without one, or where nobody wants to be asked, it goes on by itself."""
    shown, asked = io.StringIO(), []
    stdin = SimpleNamespace(isatty=lambda: True, readline=lambda: asked.append(shown.getvalue()))
    monkeypatch.setattr("lab.runner.live.sys.stdin", stdin)
    console = Console(file=shown, force_terminal=terminal, color_system=None, width=200)
    with LiveDisplay(console, asks=asks) as display:
        display.lost("the server waited")
        display.say("next")
    assert "this run can have no verdict any more: the server waited. " in shown.getvalue()
    assert ("Enter goes on, Ctrl-C ends." in shown.getvalue()) == bool(waits)
    assert len(asked) == waits and all("Enter goes on" in before for before in asked)
