"""`lab report --story`: every sentence is made from the run's data, and changes with them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lab import errors, scenarios
from lab.claims.texts import REFUTES
from lab.cli import run_command
from lab.errors import UsageError
from lab.results.folder import RunFacts, write_json
from lab.runner.judging import reach
from lab.runner.story import read, text
from lab.scenarios import keys_command
from tests.lab.doctored import build_run
from tests.lab.plain import Plain
from tests.lab.report.reportkit import INCIDENTS, proved


def story_text(folder: Path) -> str:
    """Return the whole story of a run folder on one line."""
    sections, _ = read(folder)
    return " ".join(text(sections, 200).split())


def test_every_claim_speaks_against_something() -> None:
    """Each claim of the catalogue has an explanation that it refutes, and texts.toml holds no others."""
    known = {claim.id for scenario in scenarios.catalogue().values() for claim in scenario.claims}
    assert known == set(REFUTES)


def test_fixes_name_phases_that_there_are() -> None:
    """The phases or arms named as before and after a fix are in that scenario."""
    for name, scenario in scenarios.catalogue().items():
        names = {phase.id for phase in scenario.phases} | {phase.arm for phase in scenario.phases}
        assert {part for pair in scenario.fixes for part in pair} <= names, name
        assert {scenario.arms.rising, scenario.arms.cured} <= {*names, ""}, name


def test_the_main_story(tmp_path: Path) -> None:
    """The story tells what rose, where the time went, the slow log, refuted explanations, the cause and the fix."""
    story = story_text(build_run(tmp_path / "run").folder)
    for words in (
        "key-growth (SCAN invalidation over a growing keyspace) on valkey 9.1.2",
        "by scan, then by index",
        "“keys grow”, keys raised",
        "p99 of a GET rose",
        "The time went into a queue, not into the GET.",
        "of the execution time went to SCAN",
        "It cannot name a victim",
        "“the clients have too few connections”: refuted.",
        "Each invalidation SCANs the whole keyspace. All 11 claims hold.",
        "a bystander's p99 fell",
    ):
        assert words in story
    assert "NOT refuted" not in story


@pytest.mark.parametrize(
    ("doctored", "gone", "there"),
    [
        (
            {"p99_ms": {"turns:pool": 3.0}},
            "“the clients have too few connections”: refuted.",
            "“the clients have too few connections”: NOT refuted. The claim failed:",
        ),
        ({"slowlog": ["GET"] * 3}, "It cannot name a victim", "3 of"),
        (
            {"p99_ms": {"index": 900.0}},
            "a bystander's p99 fell",
            "a bystander's p99 rose",
        ),
        (
            {"p99_ms": {"return": 1.0}},
            "All 11 claims hold",
            "is not shown by this run: 1 of 11 claims that were tested failed",
        ),
        ({"without": ["index"]}, "a bystander's p99 fell", "The run ended before the fix was measured."),
        (
            {"p99_ms": {f"grow-{i}": 5.0 for i in range(1, 8)}},
            "p99 of a GET rose",
            "p99 of a GET stayed level",
        ),
    ],
)  # fmt: skip
def test_sentences_turn_with_the_data(
    tmp_path: Path, doctored: dict[str, object], gone: str, there: str
) -> None:
    """A sentence that a healthy run tells is replaced by its opposite where the data say otherwise."""
    assert gone in story_text(build_run(tmp_path / "healthy").folder)
    story = story_text(build_run(tmp_path / "run", **doctored).folder)  # type: ignore[arg-type]
    assert there in story
    assert gone not in story


def test_nothing_rose_in_a_control(tmp_path: Path) -> None:
    """A control has nothing to explain, and says what its failing claims prove."""
    story = story_text(build_run(tmp_path / "run", cause="index").folder)
    assert "Nothing rose" in story
    assert "fail without the cause, as they should" in story
    assert "What remains" not in story


def test_a_control_in_which_a_claim_holds(tmp_path: Path) -> None:
    """A control in which a claim holds says so: that claim proves nothing about the cause."""
    grown = {f"grow-{i}": 5.0 * i * i for i in range(1, 8)}
    story = story_text(build_run(tmp_path / "run", cause="index", p99_ms=grown).folder)
    assert "claims hold although the cause is absent" in story
    assert "Nothing rose" not in story


@pytest.mark.parametrize("incident", INCIDENTS)
def test_every_scenario_has_its_story(incident: str, tmp_path: Path) -> None:
    """A run in which every claim holds refutes one explanation a claim; another verdict leaves them standing."""
    run = proved(incident, tmp_path / "run")
    sections, _ = read(run.folder)
    (points,) = [section.points for section in sections if section.heading.startswith("Which hypotheses")]
    assert len(points) == len([found for found in reach(run).outcomes if found.holds])
    assert not [point for point in points if "NOT refuted" in point]

    run.facts.phases.clear()
    write_json(run.folder / "run.json", asdict(run.facts))
    story = story_text(run.folder)
    assert " claims hold." not in story and "refuted." not in story.replace("NOT refuted.", "")


def test_not_valid_concludes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is not valid gives indications only, names the check that failed, and has exit code 4."""

    def noisy(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.machine["steal"] = 0.5

    folder = build_run(tmp_path / "run", doctor=noisy).folder
    story = story_text(folder)
    assert "Nothing is concluded" in story
    assert "Not valid: " in story
    assert ": refuted." not in story
    assert code("report", "--story", str(folder)) == errors.NOT_VALID
    capsys.readouterr()


def test_what_does_not_apply(tmp_path: Path) -> None:
    """A claim that the server cannot answer is told as not tested, with the reason."""
    run = proved("keys-command", tmp_path / "run")
    run.facts.stack = "compose"
    run.facts.cannot["replica-unharmed"] = "this server has no replica"
    write_json(run.folder / "run.json", asdict(run.facts))
    story = story_text(run.folder)
    assert (
        "Not tested: A replica serves GETs unharmed while the primary stalls: not applicable: this" in story
    )
    assert "could not be" in story


def test_a_server_with_another_clock(tmp_path: Path) -> None:
    """Where the server's execution time or slow log includes waiting, the story says so and draws no conclusion."""

    def dragonfly(facts: RunFacts) -> None:
        facts.cannot |= {
            "execution-steady": "its clock includes waiting.",
            "victims-not-slow": "so does its log.",
        }

    plain = story_text(build_run(tmp_path / "run", doctor=dragonfly).folder)
    assert "What is called execution here is more than that: its clock includes waiting." in plain
    assert "Whether it could name a victim is open: so does its log." in plain
    named = story_text(build_run(tmp_path / "named", doctor=dragonfly, slowlog=["GET"]).folder)
    assert "all that a bystander sends: so does its log." in named
    assert "took long to execute" not in plain + named


def test_partial_runs(tmp_path: Path) -> None:
    """An interrupted run tells what it has; a run without a phase has no story and says so."""

    def broken_off(facts: RunFacts) -> None:
        facts.interrupted = True
        del facts.phases[4:]

    story = story_text(build_run(tmp_path / "part", doctor=broken_off).folder)
    assert "The run was broken off after 4 phases" in story
    assert "Not tested: " in story
    empty = Plain(keys_command.SCENARIO)
    empty.facts.phases.clear()
    sections, _ = read(empty.write(tmp_path / "empty").folder)
    assert len(sections) == 1
    assert "there is no story" in sections[0].sentences[-1]


def test_no_run_and_damaged_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints one line and exits with 2 for a folder that is no run, lacks a part, or is damaged."""
    folder = build_run(tmp_path / "run").folder
    assert code("report", "--story", str(tmp_path)) == errors.USAGE
    (folder / "slowlog.csv").write_text("t,command,duration_us\nyesterday,SCAN,1\n")
    with pytest.raises(UsageError, match="damaged"):
        read(folder)
    (folder / "probe.hlog").unlink()
    assert code("report", "--story", str(folder)) == errors.USAGE
    facts = json.loads((folder / "run.json").read_text())
    facts["scenario"] = "key-grow"
    (folder / "run.json").write_text(json.dumps(facts))
    assert code("report", "--story", str(folder)) == errors.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 3
    assert "did you mean 'key-growth'?" in said.err


def code(*words: str) -> int:
    """Run `lab WORDS` and return its exit code."""
    return run_command(list(words))
