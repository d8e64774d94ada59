"""Runs side by side, in the terminal and as a page."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lab.cli import run_command
from lab.report import write_comparison
from lab.report.comparison import render, side_by_side, sides
from lab.results.folder import Run, RunFacts
from lab.results.numbers import UNKNOWN
from tests.lab.doctored import build_run
from tests.lab.report.reportkit import Page, words


def compared(*runs: Run, spoilers: bool = True) -> str:
    """Return what the terminal shows of runs."""
    console = Console(width=240, record=True, file=StringIO())
    side_by_side(console, runs, spoilers)
    return console.export_text()


def test_differences_are_named(healthy: Run, tmp_path: Path) -> None:
    """A slower plateau, a claim that came out otherwise and unlike conditions are seen, with the cause and without."""

    def other(facts: RunFacts) -> None:
        facts.server, facts.keys = "redis", 7

    slow = build_run(tmp_path / "run", p99_ms={"index-4": 300.0}, doctor=other, judged=True)
    said, neutral = compared(healthy, slow), compared(healthy, slow, spoilers=False)

    assert "redis 9.1.2" in said and "Not alike: keys: " in said and "294 ms" in said
    assert "✗ refuted" in said and "SCAN" in said
    assert "keys grow after the fix (4)" in neutral and "claim 5" in neutral
    assert "grow-1" not in neutral and "SCAN" not in neutral


def test_a_partial_run_takes_part_with_what_it_has(healthy: Run, tmp_path: Path) -> None:
    """A figure that a run lacks is a dash, and its claims are not judged."""

    def interrupt(facts: RunFacts) -> None:
        facts.interrupted = True

    partial = build_run(tmp_path / "run", without=["fix", "index"], doctor=interrupt)
    said = compared(healthy, partial)

    fix = next(line for line in said.splitlines() if line.startswith("the fix "))
    assert "not judged" in said and fix.split()[-1] == UNKNOWN


def test_the_page_has_what_the_terminal_shows(healthy: Run, tmp_path: Path) -> None:
    """The page names both runs, and has their p99s, the commands in their slow logs and every claim."""
    other = build_run(tmp_path / "other", cause="index", judged=True)
    page = Page(write_comparison([healthy, other], tmp_path / "compare.html").read_text())
    text = words(page)

    assert page.ids == ["servers", "growth", "phases", "pictures", "claims"]
    assert page.fetched == []
    assert "valkey 9.1.2, key-growth" in text and "valkey 9.1.2, control" in text
    assert "Runs of 2 scenarios" in text and "scenario: key-growth; control" in text
    assert "SCAN 100 %" in text
    result = healthy.result()
    assert result
    for claim in result["claims"]:
        assert claim["statement"] in text and f"✓ holds: {claim['measured']}" in text


def test_one_scenario_is_headed_by_its_symptom(healthy: Run) -> None:
    """The page of runs of one scenario begins with what people saw."""
    found = sides([healthy, healthy])

    assert [side.name for side in found] == ["valkey 9.1.2 (run), run 1", "valkey 9.1.2 (run), run 2"]
    assert found[0].view.scenario
    heading = f"<h1>What people saw: {found[0].view.scenario.symptom}</h1>"
    assert heading in render([healthy, healthy])


@pytest.mark.usefixtures("words_only")
def test_the_command_tells_no_cause_unless_it_is_asked_to(
    healthy: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lab report` of several runs tells the cause; with `--quiet-cause` it folds, and names nothing that does."""
    words = ["report", str(healthy.folder), str(healthy.folder), "--out", str(tmp_path / "compare.html")]
    for spoilers in (False, True):
        assert run_command([*words, *([] if spoilers else ["--quiet-cause"])]) == 0
        page = (tmp_path / "compare.html").read_text()
        assert ("<details open>" in page, "<details>" in page) == (spoilers, not spoilers)
        said = capsys.readouterr().out
        assert ("SCAN" in said, "without --quiet-cause" in said) == (spoilers, not spoilers)
