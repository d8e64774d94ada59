"""A phase that the machine disturbed is measured again; its results have no influence on that."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from lab.claims import latency
from lab.claims.fairness import (
    LATE_MS,
    OTHERS_MOST,
    STALLED_MOST,
    STEAL_MOST,
    measured_again,
    why_unfair,
)
from lab.claims.validity import why_lost
from lab.claims.verdict import as_result
from lab.errors import NOT_VALID, NotFair
from lab.report import write_report
from lab.report.terminal import show_verdict
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.runner.judging import reach, validate
from lab.runner.repetition import SAMPLES, Repetition, check_machine, noise
from lab.server import processes
from tests.lab.doctored import build_run

ASKED = 10.0


def measured(**changes: float) -> PhaseRecord:
    """A fair phase of three seconds, but for the changes: steal, others, lag_ms, due_per_s, p99 and failures."""
    return PhaseRecord(
        id="grow-3",
        arm="grow",
        title="keys grow",
        strategy="scan",
        t0=100.0,
        t1=103.0,
        keys=60_000,
        events={
            "asked_per_s": changes.get("asked_per_s", ASKED),
            "due_per_s": changes.get("due_per_s", ASKED),
            "offered_per_s": changes.get("offered_per_s", ASKED),
            "failures": changes.get("failures", 0.0),
        },
        probes={
            "main": {
                "lag_p99_us": changes.get("lag_ms", 1.0) * 1000,
                "errors": changes.get("errors", 0.0),
                "stalled_s": changes.get("stalled_s", 0.0),
            }
        },
        machine={"steal": changes.get("steal", 0.0), "others": changes.get("others", 0.0), "busy": 1.0},
        client_p99_ms={"app": changes.get("p99_ms", 1.0)},
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steal": 0.31}, "the hypervisor took 31 % of a core"),
        ({"others": 0.52}, "other programs used 52 % of a core"),
        ({"lag_ms": 63.0}, "probe main sent 63 ms late"),
        ({"stalled_s": 0.030}, "the machine stood still for 30 ms"),
        ({"lag_ms": LATE_MS + 0.01}, "probe main sent 20 ms late"),
        ({"stalled_s": 0.600}, "the machine stood still for 600 ms"),
        ({"due_per_s": 8.0}, "the load generator reached 8.0 of 10.0 events a second"),
        ({"due_per_s": 9.2}, "the load generator reached 9.2 of 10.0 events a second"),
    ],
)
def test_what_the_machine_took_makes_a_phase_unfair(changes: dict[str, float], said: str) -> None:
    """Each disturbance is named with its figure."""
    assert [reason.replace("%", " %").replace("  ", " ") for reason in why_unfair(measured(**changes))] == [
        said
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"steal": STEAL_MOST},
        {"others": OTHERS_MOST},
        {"lag_ms": LATE_MS},
        {"stalled_s": STALLED_MOST * 3.0},
        {"due_per_s": 9.5},
        {"asked_per_s": 100.0, "due_per_s": 95.0},
        {"p99_ms": 4000.0},
        {"failures": 30.0, "offered_per_s": 0.0},
        {"errors": 12.0},
    ],
)
def test_what_came_out_makes_no_phase_unfair(changes: dict[str, float]) -> None:
    """Latencies, refused or failed requests and disturbances within their bounds make no phase unfair."""
    assert why_unfair(measured(**changes)) == []


@pytest.mark.parametrize(
    ("forecasts", "changed"), [([], False), ([0.02, 0.01], False), ([0.9, 1.3], False), ([1.15, 0.71], True)]
)
def test_a_machine_that_changed_its_speed_makes_a_phase_unfair(forecasts: list[float], changed: bool) -> None:
    """Demand of one load is predicted before and after a plateau; half as much again means another machine."""
    phase = measured()
    phase.forecasts = forecasts
    assert why_unfair(phase) == (
        ["the machine changed its speed: the same load would have taken 115%, and then 71%"]
        if changed
        else []
    )


def test_what_nobody_measured_makes_no_phase_unfair() -> None:
    """Shares of the machine and of the load that a stack does not tell make no phase unfair."""
    assert why_unfair(replace(measured(), machine={}, events={"due_per_s": 0.0})) == []


def test_a_phase_that_was_not_repeated_has_its_reason() -> None:
    """Its name is for people where there is one, else it is the phase's id."""
    record = replace(measured(), unfair=["other programs"])
    said = " was disturbed: other programs. It was not measured again."
    assert (measured_again(record, []), measured_again(record, [], "keys grow")) == (
        f"grow-3{said}",
        f"keys grow{said}",
    )


def test_each_attempt_is_told_with_all_its_reasons() -> None:
    """All reasons of each attempt are told, split by commas and semicolons; other phases are left out."""
    first, second, kept = (
        replace(measured(), unfair=[f"{word} one", f"{word} two"]) for word in ("a", "b", "c")
    )
    said = measured_again(kept, [first, replace(first, id="grow-9"), second])
    told = "grow-3 was measured 3 times: a one, a two; b one, b two; and the last time c one, c two. "
    assert said == told + "No attempt was fair, so the last one counts; the others are in run.json."


class Walk:
    """A phase whose attempts go as the test says, with a clock of its own."""

    def __init__(self, *attempts: dict[str, float], seconds: float = 5.0) -> None:
        self._attempts, self._seconds = attempts, seconds
        self.now = 0.0
        self.walked: list[int] = []

    def __call__(self, attempt: int) -> PhaseRecord:
        """Measure one attempt."""
        self.walked.append(attempt)
        self.now += self._seconds
        return measured(**self._attempts[attempt - 1])

    def measure(self, attempts: int = 3, budget_s: float = 100.0) -> tuple[PhaseRecord, list[PhaseRecord]]:
        """Measure with repetitions; return the attempt that counts and the discarded ones."""
        return Repetition(attempts, budget_s, lambda: self.now).measure(self)


def test_fair_phase_is_measured_once() -> None:
    """A fair attempt is not repeated, however slow it was."""
    walk = Walk({"p99_ms": 900.0}, {"p99_ms": 1.0})
    record, discarded = walk.measure()
    assert (walk.walked, record.attempt, record.unfair, discarded) == ([1], 1, [], [])


def test_first_fair_attempt_counts_and_not_the_best() -> None:
    """The second attempt is fair and slow, a third would be fast: the second counts."""
    walk = Walk({"steal": 0.3, "p99_ms": 1.0}, {"p99_ms": 900.0}, {"p99_ms": 1.0})
    record, discarded = walk.measure()
    assert walk.walked == [1, 2]
    assert record.client_p99_ms == {"app": 900.0}
    assert (record.attempt, record.unfair) == (2, [])
    assert [(one.attempt, one.unfair) for one in discarded] == [(1, ["the hypervisor took 30% of a core"])]
    assert (
        measured_again(record, discarded)
        == "grow-3 was measured twice: the hypervisor took 30% of a core. The first "
        "fair attempt counts; the others are in run.json."
    )
    assert measured_again(record, discarded, "keys grow").startswith("keys grow was measured twice")


def test_a_phase_that_no_claim_looks_at_is_measured_once() -> None:
    """The moment of the fix is in no claim, so what the machine did then makes no difference, and is not reported."""
    walk = Walk(*[{"others": 0.6}] * 3)
    record, discarded = Repetition(3, 100.0).measure(lambda attempt: replace(walk(attempt), arm="fix"))
    assert (walk.walked, record.unfair, discarded) == ([1], [], [])


def test_attempts_are_used_up() -> None:
    """If no attempt is fair the last one counts and says why it was unfair; the others are kept."""
    walk = Walk(*[{"others": 0.6}] * 5)
    record, discarded = walk.measure(attempts=3)
    assert walk.walked == [1, 2, 3]
    assert record.unfair == ["other programs used 60% of a core"]
    assert len(discarded) == 2
    assert "was measured 3 times" in measured_again(record, discarded)
    assert "the last time other programs" in measured_again(record, discarded)
    assert "No attempt was fair, so the last one counts" in measured_again(record, discarded)


def test_repetitions_share_a_budget_of_time() -> None:
    """No repetition begins that would take longer than the time left for all phases of the run together."""
    walk = Walk(*[{"others": 0.6}] * 3, seconds=10.0)
    repetition = Repetition(3, 15.0, lambda: walk.now)
    assert repetition.measure(walk)[0].attempt == 2  # a third would take 10 s, and 5 are left
    assert repetition.measure(walk)[0].attempt == 1


def looks(*shares: tuple[float, float]) -> Callable[[], dict[str, float]]:
    """Return a function that gives the machine's (steal, others), sample by sample."""
    told: Iterator[tuple[float, float]] = iter(shares)
    return lambda: dict(zip(("steal", "others"), next(told), strict=True))


def test_quiet_machine_is_looked_at_once() -> None:
    """A quiet machine is sampled once, a machine that is busy for a moment again."""
    waited: list[float] = []
    assert noise(looks((0.02, 0.1)), waited.append) == ""
    assert noise(looks((0.4, 0.1), (0.0, 0.9), (0.0, 0.0)), waited.append) == ""
    assert noise(looks((0.15, 0.5)), waited.append) == ""  # beyond what is fair, but not hopeless
    assert len(waited) == 5


@pytest.mark.parametrize(
    ("look", "said"),
    [((0.4, 0.0), "hypervisor took 40% of a core.*Take another machine"), ((0.0, 0.8), "Close other")],
)
def test_machine_that_stays_busy_is_told_of_in_seconds(look: tuple[float, float], said: str) -> None:
    """A machine that stays busy is refused within ten seconds, in one line, with the exit code of an invalid run."""
    waited: list[float] = []
    with pytest.raises(NotFair, match=said) as caught:
        check_machine(False, lambda: noise(looks(*[look] * SAMPLES), waited.append))
    assert caught.value.exit_code == NOT_VALID
    assert "--despite-noise" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sum(waited) <= 10


def machine_of(
    cores: int,
    others: float,
    monkeypatch: pytest.MonkeyPatch,
    waits: Callable[[float], dict[str, dict[int, float]]],
) -> dict[str, float]:
    """Return the meter's figures for a second of a simulated machine on which the lab's parts use nothing."""
    moment = 0.0
    monkeypatch.setattr(processes, "_machine_seconds", lambda: (others * moment, 0.0))
    monkeypatch.setattr(processes, "cores", lambda: cores)
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: moment))
    monkeypatch.setattr(processes, "tree_seconds", lambda _pid: 0.0)
    meter = processes.CpuMeter()
    meter.shares({}, waits=waits(moment))
    moment = 1.0
    return meter.shares({}, waits=waits(moment))[1]


def test_idle_cores_let_a_run_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen cores of which another program takes one: nothing is said. Two cores that it takes both: a reason."""
    many = machine_of(16, 1.0, monkeypatch, lambda _: {})
    assert (many["busy"], many["others"]) == (1.0, 0.0)
    assert noise(lambda: many, lambda _: None) == ""
    few = machine_of(2, 2.0, monkeypatch, lambda _: {})
    assert noise(lambda: few, lambda _: None) == "other programs used 200% of a core"


def test_waiting_is_judged_and_not_what_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing measured waited, both cores may be in use. A single thread that waited is seen."""

    def waits(store: float) -> Callable[[float], dict[str, dict[int, float]]]:
        return lambda at: {"store": {1: 5 + store * at, 2: 9.0}, "probe": {3: 0.01 * at}}

    calm = machine_of(2, 1.9, monkeypatch, waits(0.04))
    assert why_unfair(replace(measured(), machine=calm)) == []
    delayed = machine_of(2, 1.9, monkeypatch, waits(0.31))
    assert why_unfair(replace(measured(), machine=delayed)) == [
        "the server waited for a core 31% of the time"
    ]
    assert why_unfair(replace(measured(), machine={**calm, "waited_probe": 0.2})) == [
        "the probe waited for a core 20% of the time"
    ]


@pytest.mark.whole
def test_a_run_despite_noise_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that is refused may be used all the same; then run.json, the terminal and the report say why it was."""
    reason = check_machine(True, lambda: "other programs used 200% of a core")

    def doctor(facts: RunFacts) -> None:
        facts.despite_noise = reason
        for phase in facts.phases:
            phase.machine |= {"waited_store": 0.4, "waited_probe": 0.0}
            phase.unfair = why_unfair(phase)

    run = build_run(tmp_path / "run", doctor=doctor, judged=True)
    assert run.facts.despite_noise == reason != ""
    show_verdict(Console(width=300), run.folder)
    told = capsys.readouterr().out
    assert f"started despite noise: {reason}" in told and "No verdict" in told
    headline = next(one for one in reach(run).outcomes if one.claim.id == "index-cures")
    assert f"seen    {headline.measured}" in told
    assert "was disturbed: the server waited for a core 40% of the time" in told
    page = write_report(run, False).read_text()
    assert f"Started despite noise: {reason}." in page


def test_a_verdict_that_is_lost_is_named_after_the_phase(tmp_path: Path) -> None:
    """After a fair phase there is nothing to say; what no later phase can mend is said with its figure."""
    fair = build_run(tmp_path / "fair")
    assert why_lost(fair, fair.phases[-1]) == ""
    failed = build_run(tmp_path / "failed", doctor=lambda facts: facts.phases[2].events.update(failures=3.0))
    assert why_lost(failed, failed.phases[2]) == "not fulfilled: no request failed"
    assert why_lost(fair, replace(fair.phases[2], unfair=["a", "b"])) == "a, b"


def test_attempts_are_kept_and_told(tmp_path: Path) -> None:
    """A run folder keeps every attempt; loads' lines of discarded attempts are left out."""

    def again(facts: object) -> None:
        phase = facts.phases[2]  # type: ignore[attr-defined]
        first = copy.deepcopy(phase)
        first.t0, first.t1 = first.t0 - 0.9, first.t0 - 0.1
        first.unfair = ["the hypervisor took 31% of a core"]
        phase.attempt = 2
        facts.discarded.append(first)  # type: ignore[attr-defined]

    run = build_run(tmp_path / "run", doctor=again)
    phase = run.phases[2]
    lines = [f'{{"phase": "{phase.id}", "attempt": {n}, "load": "x", "n": {n}}}' for n in (1, 2)]
    (run.folder / "loads.jsonl").write_text(
        "\n".join([*lines, '{"phase": "other", "load": "x", "n": 3}']) + "\n"
    )
    again_read = Run(run.folder)
    assert [line["n"] for line in again_read.loads] == [2, 3]
    assert [one.id for one in again_read.facts.discarded] == [phase.id]
    verdict = reach(again_read)
    assert verdict.holds
    assert as_result(again_read, verdict)["repeated"] == [
        f"{phase.id} was measured twice: the hypervisor took 31% of a core. The first fair attempt counts; the others "
        "are in run.json."
    ]
    quiet = next(check for check in validate(again_read) if check.check == "the machine was quiet")
    assert "1 of 15 phases had to be measured again" in quiet.detail


# -- repetition chooses no results ------------------------------------------------------------------------------------

IDS = ("grow-1", "grow-2", "restart", "return", "index-1", "index-2")


@dataclass
class Told:
    """The part of a run that claims about p99 use."""

    phases: list[PhaseRecord]
    p99s: dict[str, float] = field(default_factory=dict)

    def arm(self, name: str) -> list[PhaseRecord]:
        """See `Run`."""
        return [phase for phase in self.phases if phase.arm == name]

    def phase(self, name: str) -> PhaseRecord | None:
        """See `Run`."""
        return next((phase for phase in self.phases if phase.id == name), None)

    def p99_ms(self, phase: PhaseRecord, _probe: str = "main") -> float | None:
        """See `Run`."""
        return self.p99s[phase.id]


CLAIMS = (
    latency.rises("grow", 5),
    latency.restart_restores("grow", 0.9, 5),
    latency.cures("index-cures", "SCAN", "the index", "grow", "index", 12.5),
)


def one_machine(chance: random.Random, cause: bool, attempts: int) -> tuple[bool, bool]:
    """Simulate a run on a machine that disturbs one phase in three and then raises p99 tenfold; return (valid, wrong).

    Besides these disturbances, which the checks see, there are as many that no check sees and that raise p99 as well.
    Repetition must not select among those.
    """
    phases, p99s, valid = [], {}, True
    repetition = Repetition(attempts, 1e9)
    for name in IDS:

        def walk(_attempt: int, name: str = name) -> PhaseRecord:
            seen, unseen = chance.random() < 1 / 3, chance.random() < 1 / 3
            record = measured(steal=0.3 if seen else 0.0)
            record.id, record.arm = name, name.split("-")[0]
            record.keys = 1000.0 if name in ("grow-1", "restart", "index-1") else 200_000.0
            ill = cause and name in ("grow-2", "return")
            record.client_p99_ms["app"] = (60.0 if ill else 1.0) * (10 if seen else 1) * (10 if unseen else 1)
            return record

        record, _ = repetition.measure(walk)
        valid = valid and not record.unfair
        phases.append(record)
        p99s[name] = float(record.client_p99_ms["app"] or 0.0)
    told = Told(phases, p99s)
    holds = [claim.check(told).holds for claim in CLAIMS]  # type: ignore[arg-type] # as much of a run as they look at
    return valid, not all(holds) if cause else any(holds)


@pytest.mark.parametrize("cause", [True, False])
def test_repetition_makes_wrong_verdicts_no_more_frequent(cause: bool) -> None:
    """Repetition does not raise the share of wrong verdicts among valid runs, with the cause or on the control."""
    shares = {}
    for attempts in (1, 3):
        chance = random.Random(20261122)
        runs = [one_machine(chance, cause, attempts) for _ in range(6000)]
        verdicts = [wrong for valid, wrong in runs if valid]
        shares[attempts] = sum(verdicts) / len(verdicts)
        valid = len(verdicts) / len(runs)
        assert valid < 0.2 if attempts == 1 else valid > 0.7
    assert shares[1] > 0.05  # without repetition some verdicts are wrong
    assert shares[3] <= shares[1] + 0.05  # two standard errors of the smaller sample


def test_choosing_by_the_outcome_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: repeating attempts with a low p99 too changes the share of wrong verdicts."""
    monkeypatch.setattr(
        "lab.runner.repetition.why_unfair",
        lambda phase: why_unfair(phase) or (["p99 was low"] if (phase.client_p99_ms["app"] or 0) < 5 else []),
    )
    chance = random.Random(1)
    wrong = [one_machine(chance, False, 3) for _ in range(2000)]
    verdicts = [one for valid, one in wrong if valid]
    monkeypatch.undo()
    chance = random.Random(1)
    plain = [one for valid, one in (one_machine(chance, False, 3) for _ in range(2000)) if valid]
    assert abs(sum(verdicts) / max(1, len(verdicts)) - sum(plain) / len(plain)) > 0.05
