"""Runs side by side: two in detail, and the page."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lab.cli import run_command
from lab.report import write_comparison
from lab.report.compare import comparison
from lab.report.servers import render, sides
from lab.results.folder import Run, RunFacts
from tests.lab.doctored import build_run
from tests.lab.report.reportkit import Page, words


def compared(first: Run, second: Run, spoilers: bool = True) -> str:
    """Return what the terminal shows of two runs in detail."""
    console = Console(width=160, record=True, file=StringIO())
    comparison(console, first, second, spoilers)
    return console.export_text()


def test_a_run_does_not_differ_from_itself(healthy: Run) -> None:
    """The same run twice differs nowhere."""
    assert "nowhere that matters." in compared(healthy, healthy)


def test_differences_are_named(healthy: Run, tmp_path: Path) -> None:
    """Another server, a slower plateau and a claim that came out otherwise are each named."""

    def other(facts: RunFacts) -> None:
        facts.server = "redis"

    slow = build_run(tmp_path / "run", p99_ms={"index-4": 300.0}, doctor=other, judged=True)
    said = compared(healthy, slow).split("where they differ")[1]
    neutral = compared(healthy, slow, spoilers=False).split("where they differ")[1]

    assert "server: valkey 9.1.2 and redis 9.1.2" in said
    assert "index-4: p99" in said
    assert "claim index-flat: holds and refuted" in said
    assert "grow-1" not in said
    assert "keys grow after the fix (4): p99" in neutral
    assert "claim 5: holds and refuted" in neutral


def test_a_partial_run_takes_part_with_what_it_has(healthy: Run, tmp_path: Path) -> None:
    """What one run lacks is a dash in the table and a line below it."""

    def interrupt(facts: RunFacts) -> None:
        facts.interrupted = True

    partial = build_run(tmp_path / "run", without=["fix", "index"], doctor=interrupt)
    said = compared(healthy, partial)

    assert "fix: measured in the first run only" in said
    assert "claim index-cures: holds and not judged" in said
    assert "verdict: as promised and partial" in said


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
    """`lab compare` folds and names nothing that tells the cause; `--spoilers` does both."""
    words = ["compare", str(healthy.folder), str(healthy.folder), "--out", str(tmp_path / "compare.html")]
    for spoilers in (False, True):
        assert run_command([*words, *(["--spoilers"] if spoilers else [])]) == 0
        page = (tmp_path / "compare.html").read_text()
        assert ("<details open>" in page, "<details>" in page) == (spoilers, not spoilers)
        said = capsys.readouterr().out
        assert ("index-cures" in said, "with --spoilers" in said) == (spoilers, not spoilers)
