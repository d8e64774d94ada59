"""Two runs side by side."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lab.report.compare import comparison
from lab.results.folder import Run, RunFacts
from tests.lab.doctored import build_run


def compared(first: Run, second: Run) -> str:
    console = Console(width=160, record=True, file=StringIO())
    comparison(console, first, second)
    return console.export_text()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A judged run in which every claim holds."""
    return build_run(tmp_path_factory.mktemp("healthy") / "run", judged=True)


def test_a_run_does_not_differ_from_itself(healthy: Run) -> None:
    """The same run twice differs nowhere."""
    assert "nowhere that matters." in compared(healthy, healthy)


def test_differences_are_named(healthy: Run, tmp_path: Path) -> None:
    """Another server, a slower plateau and a claim that came out otherwise are each named."""

    def other(facts: RunFacts) -> None:
        facts.server = "redis"

    slow = build_run(tmp_path / "run", p99_ms={"index-4": 300.0}, doctor=other, judged=True)
    said = compared(healthy, slow).split("where they differ")[1]

    assert "server: valkey 9.1.2 and redis 9.1.2" in said
    assert "index-4: p99" in said
    assert "claim index-flat: holds and refuted" in said
    assert "grow-1" not in said


def test_a_partial_run_takes_part_with_what_it_has(healthy: Run, tmp_path: Path) -> None:
    """What one run lacks is a dash in the table and a line below it."""

    def interrupt(facts: RunFacts) -> None:
        facts.interrupted = True

    partial = build_run(tmp_path / "run", without=["fix", "index"], doctor=interrupt)
    said = compared(healthy, partial)

    assert "fix: measured in the first run only" in said
    assert "claim index-cures: holds and not judged" in said
    assert "verdict: as promised and partial" in said
