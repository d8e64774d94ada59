"""Validity before verdict: every check passes on a healthy run and fails on one doctored for it alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.settings import STRATEGY_ROWS
from lab.claims.planned import ASKS_FOR, OWN_LAYOUT, SEARCHES
from lab.claims.verdict import write_result
from lab.claims.wording import OF_THE_MACHINE
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.results.schema import PlannedPhase
from lab.runner.judging import reach, validate
from tests.lab.claims.checknames import (
    ASKED,
    CALIBRATED,
    COMPLETED,
    DELIVERED,
    DONE,
    ENOUGH,
    EQUAL,
    EXEMPTED,
    FAILED,
    FIGURES,
    FORCE,
    KEYS,
    LATENCIES,
    LOADS,
    ON_TIME,
    PLAN,
    PLANNED,
    PROBED,
    QUIET,
    SPARE,
    STEADY,
)
from tests.lab.claims.doctorings import each, prediction
from tests.lab.doctored import build_run

ALL = [COMPLETED, DELIVERED, EQUAL, ENOUGH, PROBED, ON_TIME, QUIET, SPARE, STEADY]
ALL += [PLAN, PLANNED, KEYS, FORCE, DONE, FAILED, ASKED, CALIBRATED, FIGURES, EXEMPTED, LATENCIES, LOADS]


def interrupted(facts: RunFacts) -> None:
    """Let the run be interrupted."""
    facts.interrupted = True


def offered(times: float, *names: str) -> dict[str, Any]:
    """Multiply the events that the service accepted."""

    def change(phase: PhaseRecord) -> None:
        phase.events["offered_per_s"] *= times

    return {"doctor": each(change, *names)}


def lopsided(facts: RunFacts) -> None:
    """Keep each side within its tolerance of what was asked, but far from the other side."""
    for phase in facts.phases:
        phase.events["offered_per_s"] *= {"grow": 0.96, "index": 1.04}.get(phase.arm, 1.0)


def few_events(facts: RunFacts) -> None:
    """Let the load be as asked, but with only ten events in a plateau."""
    rate = 10 / facts.phases[3].seconds
    facts.load["events_per_second"] = facts.calibration["events_per_second"] = rate
    for phase in facts.phases:
        phase.events |= {"asked_per_s": rate, "offered_per_s": rate, "finished_per_s": rate}


def second_probe(key: str, value: float) -> dict[str, Any]:
    """Set a figure of the second probe, which tries a wrong turn."""

    def change(phase: PhaseRecord) -> None:
        phase.probes["pool"][key] = value

    return {"doctor": each(change, "turns")}


def probe(key: str, value: float, *names: str) -> dict[str, Any]:
    """Set a figure of the main probe."""

    def change(phase: PhaseRecord) -> None:
        phase.probes["main"][key] = value

    return {"doctor": each(change, *names)}


def machine(key: str, value: float, *names: str) -> dict[str, Any]:
    """Set a share of the machine."""

    def change(phase: PhaseRecord) -> None:
        phase.machine[key] = value

    return {"doctor": each(change, *names)}


def process(name: str, share: float, *names: str) -> dict[str, Any]:
    """Set a process's share of a core."""

    def change(phase: PhaseRecord) -> None:
        phase.processes[name] = share

    return {"doctor": each(change, *names)}


def dearer(times: float) -> dict[str, Any]:
    """Let the server get through so much fewer SCANs on the plateaus, as was predicted there."""

    def doctor(facts: RunFacts) -> None:
        for phase in facts.phases:
            if phase.arm == "grow":
                phase.forecasts = [times * demand for demand in phase.forecasts]
                phase.commands["SCAN"]["calls"] /= times

    return {"doctor": doctor}


def planned(times: float) -> dict[str, Any]:
    """Multiply the knee that calibration planned."""

    def doctor(facts: RunFacts) -> None:
        facts.calibration["planned_knee_keys"] *= times

    return {"doctor": doctor}


def calibrated(times: float) -> Callable[[RunFacts], None]:
    """Multiply the rate that calibration found."""

    def doctor(facts: RunFacts) -> None:
        facts.calibration["events_per_second"] *= times

    return doctor


def exempted(facts: RunFacts) -> None:
    """Exempt a claim from judgement."""
    facts.cannot["index-cures"] = "it cannot"


def record(change: Callable[[PhaseRecord], object], name: str) -> dict[str, Any]:
    """Change one phase."""

    def doctor(phase: PhaseRecord) -> None:
        change(phase)

    return {"doctor": each(doctor, name)}


def shorter_plan(facts: RunFacts) -> None:
    """Halve the planned length of the last phase."""
    facts.plan[-1].seconds /= 2


DOCTORINGS: list[tuple[str, str, dict[str, Any]]] = [
    (COMPLETED, "interrupted", {"doctor": interrupted}),
    (DELIVERED, "12 % of the events were not accepted at the top", offered(0.88, "grow", "index")),
    (EQUAL, "more load on one side", {"doctor": lopsided}),
    (ENOUGH, "a plateau too short for its events", {"doctor": few_events}),
    (PROBED, "a GET of a second probe failed", second_probe("errors", 1.0)),
    (ON_TIME, "a second probe was a second late", second_probe("lag_p99_us", 1e6)),
    (PROBED, "one GET was not answered", probe("errors", 1.0, "grow-3")),
    (PROBED, "the probe lost its rate", probe("rate", 170.0, "grow-7")),
    (ON_TIME, "the probe was half a second late", probe("lag_p99_us", 500_000.0, "grow-2")),
    (ON_TIME, "the machine stood still for half a second", probe("stalled_s", 0.5, "index-4")),
    (QUIET, "another program used half a core", machine("others", 0.5)),
    (QUIET, "the hypervisor took a fifth of a core", machine("steal", 0.2)),
    (SPARE, "the load generator was out of CPU", process("locust", 0.85, "grow-5")),
    (SPARE, "a probe was out of CPU", process("probe-main", 0.95, "index-1")),
    (STEADY, "a scanned key got 60 % dearer after calibration", dearer(1.6)),
    (STEADY, "a scanned key got 24 % cheaper after calibration: no plateau reaches its knee", planned(0.76)),
    (STEADY, "keys so cheap that no knee is predicted", prediction(3.0)),
    (PLAN, "half of a phase's length", {"doctor": shorter_plan}),
    (PLAN, "a phase left out", {"without": ["grow-2"], "doctor": lambda facts: facts.plan.pop(1)}),
    (
        ASKED,
        "3 % more was asked for",
        record(lambda phase: phase.events.update(asked_per_s=1.03 * phase.events["asked_per_s"]), "grow-2"),
    ),
    (PLANNED, "a plateau was left out", {"without": ["grow-2"]}),
    (KEYS, "a fifth fewer keys", record(lambda phase: setattr(phase, "keys", 0.8 * phase.keys), "index-3")),
    (FORCE, "nothing read the index", record(lambda phase: phase.commands.pop("SSCAN"), "index-2")),
    (
        DONE,
        "no event was carried out",
        record(lambda phase: phase.events.update(finished_per_s=0.0), "index-2"),
    ),
    (FAILED, "one request failed", record(lambda phase: phase.events.update(failures=1.0), "index-2")),
    (
        FIGURES,
        "a process's CPU time is missing",
        record(lambda phase: phase.processes.pop("invalidator"), "grow-2"),
    ),
    (
        LATENCIES,
        "a reply is missing",
        record(lambda phase: phase.probes["main"].update(received=601.0), "index-1"),
    ),
    (PLANNED, "a phase of other sizes", record(lambda phase: phase.params.update(count=10.0), "index-1")),
    (LOADS, "a load said the same twice", {"said": [{"t": 1.0}, {"t": 1.0}]}),
    (CALIBRATED, "another rate than the calibrated one", {"doctor": calibrated(1.5)}),
    (EXEMPTED, "a claim that the server can answer", {"doctor": exempted}),
]


@pytest.mark.parametrize("check", ALL)
def test_check_is_ok_on_a_healthy_run(check: str, healthy: Run, control: Run) -> None:
    """A fair run passes, with the cause in it and without."""
    for run in (healthy, control):
        assert next(found for found in validate(run) if found.check == check).ok


@pytest.mark.parametrize(
    ("check", "build"), [pytest.param(c, build, id=f"{c}: {what}") for c, what, build in DOCTORINGS]
)
def test_check_fails_alone_on_a_doctored_run(check: str, build: dict[str, Any], folder: Path) -> None:
    """One thing wrong is found by its own check and by no other, and then there is no verdict (exit code 4)."""
    run = build_run(folder, **build)
    verdict = reach(run)
    write_result(run, verdict)
    assert [found.check for found in verdict.checks if not found.ok] == [check]
    assert (verdict.holds, verdict.exit_code) == (None, 4)
    result = run.result()
    assert result is not None
    assert result["holds"] is None
    assert [v["check"] for v in result["validity"] if not v["ok"]] == [check]


def test_what_the_machine_is_to_blame_for_is_a_check() -> None:
    """The checks after which a verdict advises a calmer machine are checks of validity."""
    assert set(ALL) > OF_THE_MACHINE


def test_every_check_is_doctored(healthy: Run) -> None:
    """Every check is seen to fail here."""
    names = [found.check for found in validate(healthy)]
    assert len(set(names)) == len(names)
    assert set(names) == {check for check, _, _ in DOCTORINGS}


def test_invalid_control_has_no_verdict_either(folder: Path) -> None:
    """A control on a busy machine refutes nothing, although all its claims fail."""
    verdict = reach(build_run(folder, cause="index", **machine("others", 0.9)))
    assert not any(outcome.holds for outcome in verdict.outcomes)
    assert (verdict.holds, verdict.exit_code) == (None, 4)


def test_run_without_phases_is_not_valid(folder: Path) -> None:
    """A run that measured nothing fails validity instead of raising, and says so in result.json."""
    run = build_run(folder, doctor=lambda facts: facts.phases.clear(), judged=True)
    failed = {found.check for found in reach(run).checks if not found.ok}
    assert {COMPLETED, EQUAL, PROBED, ON_TIME} <= failed
    assert json.loads((folder / "result.json").read_text())["holds"] is None


@pytest.mark.parametrize("missing", ["grow", "index"])
def test_one_side_alone_is_no_comparison(missing: str, folder: Path) -> None:
    """If one of the compared sides is missing, their loads do not count as equal."""
    found = {check.check: check.ok for check in validate(build_run(folder, without=[missing]))}
    assert not found[EQUAL]


def test_load_that_nobody_asked_for_was_not_delivered(folder: Path) -> None:
    """If a run never set an event rate, it asked for no events, and those that came are somebody else's."""

    def doctor(facts: RunFacts) -> None:
        facts.load["events_per_second"] = 0.0

    found = {check.check: check.ok for check in validate(build_run(folder, doctor=doctor))}
    assert not found[ASKED]


@pytest.mark.parametrize("times", [0.97, 1.03])
def test_rounding_is_no_shortfall(times: float, folder: Path) -> None:
    """An event more or less in a short phase passes: 3 % of some fifty events is one and a half."""
    assert all(check.ok for check in validate(build_run(folder, **offered(times, "grow-4"))))


def test_more_than_rounding_is_a_shortfall(folder: Path) -> None:
    """A tenth of the events of a short phase is more than an event at its begin and one at its end."""
    found = {check.check: check.ok for check in validate(build_run(folder, **offered(0.92, "grow-4")))}
    assert not found[DELIVERED]


@pytest.mark.parametrize(("missing", "ok"), [(0.5, True), (0.8, False)])
def test_two_events_may_be_missing_in_a_phase(missing: float, ok: bool, folder: Path) -> None:
    """With few events the bound is two events a phase: 0.67 a second in three seconds."""

    def doctor(facts: RunFacts) -> None:
        facts.load["events_per_second"] = facts.calibration["events_per_second"] = 8.0
        for phase in facts.phases:
            offered = 8.0 - missing if phase.id == "grow-4" else 8.0
            phase.events |= {"asked_per_s": 8.0, "offered_per_s": offered, "finished_per_s": 8.0}

    found = {check.check: check.ok for check in validate(build_run(folder, doctor=doctor))}
    assert found[DELIVERED] == ok


@pytest.mark.parametrize(("apart", "ok"), [(0.5, True), (0.8, False)])
def test_both_sides_may_differ_by_two_events_of_the_shorter_one(apart: float, ok: bool, folder: Path) -> None:
    """Two events of three seconds are 0.67 a second, however long the other side lasted."""

    def doctor(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.events["offered_per_s"] = 2.0 + (apart if phase.arm == "index" else 0.0)
        top = next(phase for phase in facts.phases if phase.id == "grow-7")
        top.t0 = top.t1 - 30.0

    found = {check.check: check.ok for check in validate(build_run(folder, doctor=doctor))}
    assert found[EQUAL] == ok


@pytest.mark.parametrize(("share", "ok"), [(0.2, True), (0.3, False)])
def test_a_probe_may_be_late_by_a_quarter_of_what_it_measures(share: float, ok: bool, folder: Path) -> None:
    """Where p99 is long, lateness up to a quarter of it is allowed, and no more."""
    late = probe("lag_p99_us", share * 400_000.0, "grow-7")
    run = build_run(folder, p99_ms={"grow-7": 400.0}, **late)
    assert {check.check: check.ok for check in validate(run)}[ON_TIME] == ok


def test_only_phases_that_claims_use_are_judged(folder: Path) -> None:
    """What happens in a phase that no claim uses does not make the run invalid."""

    def doctor(facts: RunFacts) -> None:
        for phase in facts.phases:
            if phase.arm == "fix":
                phase.events["offered_per_s"] = 0.0
                phase.probes["main"] |= {"errors": 5.0, "rate": 10.0, "lag_p99_us": 1e7}
                phase.machine["others"] = 2.0
                phase.processes["locust"] = 1.0

    assert all(check.ok for check in validate(build_run(folder, doctor=doctor)))


def test_busy_server_is_the_subject_not_a_fault(healthy: Run) -> None:
    """The server may use its whole core: the checks look at the clients."""
    assert max(phase.processes["store"] for phase in healthy.phases) > 0.95
    assert next(found for found in validate(healthy) if found.check == SPARE).ok


def test_detail_names_the_figure_that_failed(folder: Path) -> None:
    """A failed check names the process and its figure."""
    checks = validate(build_run(folder, **process("locust", 0.91, "grow-5")))
    assert "locust, 91%" in next(check.detail for check in checks if check.check == SPARE)


@pytest.mark.parametrize(
    ("plateau", "share", "ok"), [("grow-2", 0.9, True), ("grow-2", 1.1, False), ("grow-7", 0.1, False)]
)
def test_reads_bring_keys_where_not_all_users_were_warmed(
    plateau: str, share: float, ok: bool, folder: Path
) -> None:
    """Reads since the server was empty may bring two keys each, but none where all users were warmed.

    Where few events fit into a second a plateau lasts long, and its readers bring many keys: it must not be refused.
    """

    def doctor(facts: RunFacts) -> None:
        measured = next(phase for phase in facts.phases if phase.id == plateau)
        planned = next(phase for phase in facts.plan if phase.id == plateau)
        seconds = measured.t1 - facts.phases[0].t0
        cold = 1 - planned.keys / facts.keys if plateau == "grow-2" else 1.0
        read_in = 2 * facts.load["reads_per_second"] * seconds * cold
        measured.keys = 1.1 * planned.keys + 500 + share * read_in

    found = {check.check: check.ok for check in validate(build_run(folder, doctor=doctor))}
    assert found[KEYS] == ok


def test_the_checks_know_every_strategy() -> None:
    """Each strategy of the storefront has its command here, but `ttl`, which sends none; searches and layouts agree."""
    assert {*ASKS_FOR, "ttl"} == set(STRATEGY_ROWS)
    searching = {strategy for strategy, (command, _) in ASKS_FOR.items() if command in SEARCHES}
    assert searching == {strategy for strategy, row in STRATEGY_ROWS.items() if row.searches}
    entries_are_keys = {
        strategy for strategy, row in STRATEGY_ROWS.items() if row.layout in ("entries", "tagged", "plain")
    }
    assert set(STRATEGY_ROWS) - set(OWN_LAYOUT) == entries_are_keys


@pytest.mark.parametrize(
    ("asks_for", "wrong"),
    [("SCAN", set()), ("KEYS", {FORCE}), ("SSCAN", {FORCE, DONE})],
)
def test_only_a_strategy_that_asks_for_a_search_may_search(
    asks_for: str, wrong: set[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new strategy may SCAN, and fall behind at half utilisation, only if SCAN is what it asks for."""

    def doctor(facts: RunFacts) -> None:
        phases: list[PlannedPhase | PhaseRecord] = [*facts.plan, *facts.phases]
        for phase in phases:
            phase.strategy = "new" if phase.strategy == "scan" else phase.strategy
        late = next(phase for phase in facts.phases if phase.id == "grow-2")
        late.utilisation = 0.6
        late.events["finished_per_s"] *= 0.7

    monkeypatch.setitem(ASKS_FOR, "new", (asks_for, 3))
    found = validate(build_run(folder, doctor=doctor))
    assert {check.check for check in found if check.check in (FORCE, DONE) and not check.ok} == wrong
