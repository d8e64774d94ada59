"""The README says what a run said, and names what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab import readme, scenarios
from lab.cli import app
from lab.errors import UsageError
from tests.doctored import build_run
from tests.invented import CONTROL, SWEEP, judged, sweep, with_catalogue

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize(("block", "copy"), [("verdict", "key-growth"), ("incidents", "incidents")])
def test_the_figures_are_those_of_a_run(block: str, copy: str) -> None:
    """What stands between the marks is, to the letter, what the runs said."""
    found = readme.BLOCKS[block].search(README)
    said = json.loads((ROOT / "docs" / f"{copy}.json").read_text())

    assert found is not None
    assert said["block"] in found.group(0)
    assert said["command"] in found.group(0)
    assert (ROOT / "docs" / "key-growth.svg").stat().st_size > 5_000


def test_every_incident_is_in_the_table() -> None:
    """The table was made of a run of each scenario there is, controls aside."""
    found = readme.BLOCKS["incidents"].search(README)

    assert found is not None
    assert re.findall(r"^\| `([a-z-]+)` ", found.group(0), re.MULTILINE) == [
        scenario.id for scenario in scenarios.catalogue().values() if not scenario.refutes
    ]


def test_no_figure_of_a_run_outside_the_block() -> None:
    """No latency, ratio or count of a run is written by hand anywhere else in the README."""
    rest = README
    for block in readme.BLOCKS.values():
        rest = block.sub("", rest)

    assert not re.findall(r"\d[\d.,]*\s?(?:ms|µs|×)(?!\w)", rest)


def test_every_command_is_documented() -> None:
    """Each command of `lab` and each verb of the Makefile that a user needs is in the README."""
    commands = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }

    assert {name for name in commands if f"bin/lab {name}" not in README} == set()
    assert all(f"make {verb}" in README for verb in ("demo", "test", "check", "bench", "ten"))


def test_every_command_that_is_documented_exists() -> None:
    """No command, scenario or make verb in the README is gone."""
    commands = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"bin/lab ([a-z]+)", README)) <= commands
    assert set(re.findall(r"bin/lab run ([a-z]+-?[a-z]*)", README)) <= {"all", *scenarios.catalogue()}
    assert set(re.findall(r"make ([a-z]+)\b", re.sub(r"<!--.*?-->", "", README))) <= verbs


def test_a_renewed_readme_is_the_runs(tmp_path: Path) -> None:
    """`make picture` writes block and picture, and says no to a run without a verdict."""
    copy = tmp_path / "README.md"
    copy.write_text("# x\n<!-- verdict: make picture -->\nold\n<!-- /verdict -->\nend\n")
    run = build_run(tmp_path / "run", judged=True)

    readme.renew(run.folder, copy)

    assert readme.verdict_block(run) in copy.read_text()
    assert "\nold\n" not in copy.read_text()
    assert copy.read_text().endswith("end\n")
    assert (tmp_path / "docs" / "key-growth.svg").exists()


def test_a_run_without_a_verdict_is_not_shown(tmp_path: Path) -> None:
    """A partial run has no verdict, so the README keeps its block."""
    run: Any = build_run(tmp_path / "run", judged=False)

    with pytest.raises(UsageError, match="no verdict"):
        readme.verdict_block(run)


def test_the_table_of_incidents_is_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make table` writes a row for each incident: symptom, cause, headline claim, what was measured; no control."""
    with_catalogue(monkeypatch, SWEEP, CONTROL)
    copy = tmp_path / "README.md"
    copy.write_text("# x\n<!-- incidents: make table -->\nold\n<!-- /incidents -->\nend\n")
    for scenario in (SWEEP, CONTROL):
        judged(sweep(scenario), tmp_path / "all" / scenario.id)

    readme.renew_table(tmp_path / "all", copy)

    text = copy.read_text()
    assert text.endswith("end\n") and "\nold\n" not in text
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")] == ["| `sweep`"]
    assert (
        "| iterations crawl | a COUNT \\| of ten | an iteration gets faster with COUNT: ≥ 5 × | 66.0 × "
        in text
    )
    assert json.loads((tmp_path / "docs" / "incidents.json").read_text())["block"] in text


def test_a_table_of_nothing_is_not_written(tmp_path: Path) -> None:
    """A folder without runs is named, and the README keeps its table."""
    with pytest.raises(UsageError, match="holds no runs"):
        readme.incidents_block(tmp_path)
