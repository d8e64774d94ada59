"""The report of a control, of a refuted claim, of a run without a verdict, and of one that lacks figures."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.claims.verdict import write_result
from lab.report import style, write_report
from lab.report.page import pictures
from lab.report.view import RunView
from lab.results.folder import Run, RunFacts, write_json
from lab.runner.judging import reach, validate
from tests.lab.doctored import build_run
from tests.lab.report.reportkit import page_of, proved, words


@pytest.mark.usefixtures("words_only")
def test_a_control_reads_as_it_should(tmp_path: Path) -> None:
    """In a control a refuted claim is told to be as it should be."""
    text = words(page_of(build_run(tmp_path / "run", cause="index", judged=True)))

    assert "without the cause, all 11 applicable claims are refuted" in text
    assert text.count("not shown, as it should be") == 11


@pytest.mark.usefixtures("words_only")
def test_a_claim_that_fails_is_named(tmp_path: Path) -> None:
    """A refuted claim shows in the verdict and in the list, as a word and not as a colour."""
    text = words(page_of(build_run(tmp_path / "run", slowlog=["GET"] * 40, judged=True)))

    assert "1 of 11 claims was refuted." in text
    assert text.count("✗") == 2  # the verdict's and the claim's
    assert "are GET, all that a bystander sends" in text


@pytest.mark.usefixtures("words_only")
def test_a_claim_that_does_not_apply_says_why(tmp_path: Path) -> None:
    """A claim that does not apply is neither passed nor failed, and says why."""

    def foreign(facts: RunFacts) -> None:
        facts.cannot["restart-restores"] = "the lab did not start this server"

    text = words(page_of(build_run(tmp_path / "run", doctor=foreign, judged=True)))

    assert ": not applicable." in text
    assert "the lab did not start this server" in text


@pytest.mark.usefixtures("words_only")
def test_an_invalid_run_has_no_verdict(tmp_path: Path) -> None:
    """In place of a verdict an invalid run shows the failed condition."""

    def noisy(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.machine["others"] = 0.9

    text = words(page_of(build_run(tmp_path / "run", doctor=noisy, judged=True)))

    assert "No verdict: the run is not valid. Not fulfilled: the machine was quiet. Close other" in text


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (None, ""),
        (1.08, ""),
        (1.4, "it was at work for longer than it had a core"),
        (0.6, "that clock counts a round of the event loop when it is over"),
    ],
)
@pytest.mark.usefixtures("words_only")
def test_two_clocks_that_disagree_are_told(times: float | None, said: str, tmp_path: Path) -> None:
    """The server's own clock of its main thread is shown with its CPU time where they differ by more than a tenth."""

    def told(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.active = times and times * (phase.utilisation or 0.0)

    text = words(page_of(build_run(tmp_path / "run", doctor=told, judged=True)))

    assert ("By its own clock it was at work" in text) is bool(said)
    assert said in text


@pytest.mark.usefixtures("words_only")
def test_the_clocks_are_compared_in_every_phase(tmp_path: Path) -> None:
    """They agree in all phases but one, which is none of the saturated ones: that one is told with both figures."""

    def told(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.active = phase.utilisation
        odd = next(phase for phase in facts.phases if 0.3 < (phase.utilisation or 0.0) < 0.7)
        odd.utilisation, odd.active, odd.processes["store"] = 0.5, 0.8, 0.5

    text = words(page_of(build_run(tmp_path / "run", doctor=told, judged=True)))

    assert "By its own clock it was at work 80 % of" in text
    assert "by its CPU time 50 %: it was at work for longer than it had a core" in text


@pytest.mark.usefixtures("words_only")
def test_the_clocks_of_a_server_that_is_held_are_not_compared(tmp_path: Path) -> None:
    """Its busy share is one of what it may use, and its own clock goes on while it is held."""

    def told(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.processes["store"] = 0.25 * (phase.utilisation or 0.0)
            phase.active = 0.5 * (phase.utilisation or 0.0)

    text = words(page_of(build_run(tmp_path / "run", doctor=told, judged=True)))

    assert "By its own clock" not in text


ARMS = ("grow", "turns", "restart", "return", "fix", "index")


@pytest.mark.parametrize("kept", (0, 1, len(ARMS) - 1))
def test_a_partial_run_is_reported_as_partial(tmp_path: Path, kept: int) -> None:
    """A run that ended after any arm, even before the first, gives a report that says so."""

    def interrupt(facts: RunFacts) -> None:
        facts.interrupted = True

    text = words(page_of(build_run(tmp_path / "run", without=ARMS[kept:], doctor=interrupt)))

    assert "This is a partial run" in text
    assert "never judged" in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


@pytest.mark.usefixtures("words_only")
def test_missing_figures_are_dashes_and_never_zeros(tmp_path: Path) -> None:
    """A server that counts nothing and a run without calibration leave gaps, not zeros, and do not crash."""

    def poor(facts: RunFacts) -> None:
        facts.calibration, facts.load, facts.host, facts.marks = {}, {}, {}, []
        for phase in facts.phases:
            phase.utilisation = None
            phase.commands, phase.client_p99_ms = {}, {"app": None}
            phase.processes, phase.memory_mb = {}, {}

    run = build_run(tmp_path / "run", doctor=poor)
    text = words(page_of(run))

    assert "it cannot be split" in text
    documents = {
        name: json.dumps(style.spec(make(RunView(run)), description, validate=True), allow_nan=False)
        for name, make, description in pictures(RunView(run))
    }
    assert '\\"part\\"' not in documents["parts"]
    assert "Locust, the whole" not in documents["eyes"].split('"domain"')[0]
    assert '\\"demand\\": 0' not in documents["picture-utilisation"]


def test_a_run_without_phases_names_the_strategy_that_it_planned(tmp_path: Path) -> None:
    """Before any plateau is measured, the side before the fix is called after the first strategy planned."""
    run = proved("keys-command", tmp_path / "run")
    run.facts.phases.clear()
    assert RunView(run).sides == ["keys", "index"]


def test_a_hole_in_the_samples_is_a_gap(tmp_path: Path) -> None:
    """A second in which the server did not answer is a gap in the chart."""
    run = build_run(tmp_path / "run", without=["index"])
    path = run.folder / "samples.csv"
    lines = path.read_text().splitlines()
    t, phase, strategy, *rest = lines[20].split(",")
    lines[20] = ",".join([t, phase, strategy, *("" for _ in rest)])
    path.write_text("\n".join(lines) + "\n")
    page_of(Run(run.folder))

    from lab.report.timeline import _keys

    row = _keys(RunView(Run(run.folder)))[19]
    assert row["value"] is None


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    """A last line cut in the middle of a histogram, as an interrupted run may leave it, is left out."""
    run = build_run(tmp_path / "run", without=["index", "fix"])
    path = run.folder / "probe.hlog"
    path.write_text(path.read_text()[:-30])

    assert "This run has not been judged" in words(page_of(Run(run.folder)))


def test_a_plateau_without_keys_has_no_part_in_the_knee(tmp_path: Path) -> None:
    """A plateau near the knee that holds no key makes the run not valid, and its report can be drawn."""
    run = proved("key-growth", tmp_path / "run")
    next(phase for phase in run.phases if phase.id == "grow-5").keys = 0.0
    write_json(run.folder / "run.json", asdict(run.facts))
    assert "the server held the keys that were planned" in {one.check for one in validate(run) if not one.ok}
    write_result(run, reach(run))
    write_report(Run(run.folder))
