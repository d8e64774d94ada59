"""Operational analysis: demand, knee and capacity of hand-made phases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.results.knee import PATTERNS_PER_EVENT
from lab.results.operational import _knee, capacity, demand, knee, predicted_demand
from tests.lab.doctored import build_run

COUNT = 1000


def facts(**changes: Any) -> RunFacts:
    """Return facts of a run on a server whose SCAN calls return once COUNT keys were visited."""
    said: dict[str, Any] = dict.fromkeys(
        ("scenario", "title", "story", "source", "server_version", "started", "command"), "-"
    )
    found = {
        "refutes": False, "server": "valkey", "stack": "native", "pace": "quick", "seed": 1, "keys": 1, "host": {},
        "load": {}, "scan_count": COUNT, "slowlog_threshold_us": 1, "plan": [],
    }  # fmt: skip
    return RunFacts(**{**said, **found, **changes})


def phase(keys: float, utilisation: float | None, scans_per_s: float, events_per_s: float) -> PhaseRecord:
    """Return a plateau of ten seconds."""
    return PhaseRecord(
        id="p",
        arm="grow",
        title="",
        strategy="scan",
        t0=100.0,
        t1=110.0,
        keys=keys,
        commands={"SCAN": {"calls": scans_per_s * 10, "usec": 1.0}} if scans_per_s else {},
        utilisation=utilisation,
        events={"offered_per_s": events_per_s},
    )


@given(st.integers(1, 50), st.floats(0.01, 0.99), st.floats(0.5, 50))
def test_below_saturation_the_demand_is_the_utilisation(pages: int, busy: float, events: float) -> None:
    """Where the server serves all it is asked for, the busy share is the demand."""
    served = events * PATTERNS_PER_EVENT * pages
    assert demand(phase(pages * COUNT, busy, served, events), facts()) == pytest.approx(busy)


@given(st.floats(1.0, 20.0))
def test_above_saturation_the_demand_goes_on(overload: float) -> None:
    """The demand on a server that is always busy is what is asked over what is served."""
    asked = 10.0 * PATTERNS_PER_EVENT * 5
    assert demand(phase(5 * COUNT, 1.0, asked / overload, 10.0), facts()) == pytest.approx(overload)


def test_a_begun_page_is_a_page() -> None:
    """An iteration over one key more than COUNT takes two calls."""
    one, two = (demand(phase(keys, 1.0, 3.0, 1.0), facts()) for keys in (COUNT, COUNT + 1))
    assert (one, two) == (1.0, 2.0)


def test_serving_more_than_asked_is_no_negative_demand() -> None:
    """Scans left over from before the phase do not make the demand smaller than the work done."""
    assert demand(phase(COUNT, 0.7, 30.0, 1.0), facts()) == 0.7


def test_demand_without_scans_or_without_a_clock() -> None:
    """Without SCAN the demand is the utilisation; where that is unknown the demand is None."""
    assert demand(phase(COUNT, 0.02, 0.0, 10.0), facts()) == 0.02
    assert demand(phase(COUNT, None, 30.0, 10.0), facts()) is None


def with_demand(run: Run, slope: float, **changes: Any) -> Run:
    """Give each plateau a demand of `slope` per key, of what the base load leaves: above 1 the server falls behind."""
    base = run.facts.calibration["base_utilisation"]
    for record in run.arm("grow"):
        wanted = base + slope * (1 - base) * record.keys
        asked = record.events["offered_per_s"] * PATTERNS_PER_EVENT
        record.utilisation = min(1.0, wanted)
        record.commands["SCAN"] = {"calls": asked / max(1.0, wanted) * record.seconds, "usec": 1.0}
    run.facts = replace(run.facts, **changes)
    return run


@pytest.mark.parametrize("saturates_at", [120_000, 150_000, 190_000])
def test_knee_is_where_the_demand_reaches_1(saturates_at: int, folder: Path) -> None:
    """The knee is found from plateaus on both sides of it, whichever it falls between."""
    assert knee(with_demand(build_run(folder), 1 / saturates_at), "grow") == pytest.approx(
        saturates_at, rel=1e-6
    )


def test_no_knee_where_the_server_is_never_busy(control: Run, folder: Path) -> None:
    """Neither the control nor a server with a small demand has a knee."""
    assert knee(control, "grow") is None
    assert knee(with_demand(build_run(folder), 1e-7), "grow") is None


def test_no_knee_without_utilisation(folder: Path) -> None:
    """A server that does not tell its CPU time has no observed knee; nothing is guessed."""

    def doctor(facts: Any) -> None:
        for record in facts.phases:
            record.utilisation = None

    assert knee(build_run(folder, doctor=doctor), "grow") is None


def interleaving(phases: list[PhaseRecord]) -> RunFacts:
    """Return facts of a run whose SCAN calls may return early."""
    return facts(phases=phases, whole_scans=False, calibration={"base_utilisation": 0.1})


STEADY = PhaseRecord(
    "a", "grow", "", "scan", 0.0, 10.0, 100_000,
    commands={"SCAN": {"calls": 900.0, "usec": 1.0}}, utilisation=0.6,
    events={
        "asked_per_s": 10.0, "offered_per_s": 10.0, "finished_per_s": 10.0, "in_flight_end": 0.0, "failures": 0.0,
    },
)  # fmt: skip


def test_a_knee_beyond_the_largest_plateau_was_not_observed(folder: Path) -> None:
    """A knee up to a tenth beyond the largest plateau is observed; one at 1.3 times its keys is a guess, so None."""
    run = build_run(folder)
    largest = max(record.keys for record in run.arm("grow"))
    assert knee(with_demand(run, 1 / (1.09 * largest)), "grow") == pytest.approx(1.09 * largest)
    assert knee(with_demand(run, 1 / (1.3 * largest)), "grow") is None


def test_no_knee_without_growth(folder: Path) -> None:
    """A run without plateaus has no knee, and raises no error."""
    assert knee(build_run(folder, without=["grow"]), "grow") is None


def test_the_base_is_a_share_of_what_the_server_can_have() -> None:
    """The base load counts as a share of the capacity: 0.1 of a core is an eighth of 0.8."""
    phases = [replace(STEADY, id=str(keys), keys=keys) for keys in (40_000.0, 60_000.0, 80_000.0)]
    stuck = replace(
        STEADY, arm="over", utilisation=0.8, events={"offered_per_s": 10.0, "in_flight_end": 60.0}
    )
    facts = interleaving([*phases, stuck])
    base = 0.1 / 0.8
    found = _knee(phases, facts, lambda phase, facts: base + (1 - base) * phase.keys / 90_000)
    assert found == pytest.approx(90_000)
    facts.calibration.clear()
    assert _knee(phases, facts, lambda phase, facts: phase.keys / 90_000) == pytest.approx(90_000)


def test_capacity_is_what_a_server_with_a_backlog_came_to() -> None:
    """Capacity is the utilisation with a backlog, at most a core; it is a core without a backlog or without counts."""
    left = {"offered_per_s": 10.0, "in_flight_end": 60.0}
    assert capacity(interleaving([replace(STEADY, utilisation=0.87, events=left)])) == 0.87
    assert capacity(interleaving([replace(STEADY, utilisation=1.2, events=left)])) == 1.0
    assert capacity(interleaving([replace(STEADY, events={})])) == 1.0
    assert capacity(interleaving([replace(STEADY, events={"in_flight_end": 1.0})])) == STEADY.utilisation


def test_where_scans_return_early_work_is_counted_in_events() -> None:
    """With SCAN calls of any length, demand beyond capacity shows in events that do not keep up with arrivals."""
    behind = replace(STEADY, utilisation=0.99, events={"offered_per_s": 10.0, "finished_per_s": 8.0})
    stuck = replace(STEADY, events={"offered_per_s": 10.0, "finished_per_s": 0.0})
    assert demand(STEADY, interleaving([STEADY])) == pytest.approx(0.6)
    assert demand(behind, interleaving([behind])) == pytest.approx(0.99 * 10 / 8)
    assert demand(behind, facts(scan_count=4_000_000)) == pytest.approx(0.99), "90 calls/s look like plenty"
    assert demand(stuck, interleaving([stuck])) is None


def test_work_of_events_that_interleave_is_their_cpu_time() -> None:
    """Few of many interleaved events end within a plateau: demand counts the CPU time of each until all are done."""
    late = replace(
        STEADY, events={"offered_per_s": 10.0, "finished_per_s": 1.0, "in_flight_end": 0.0, "server_s": 0.12}
    )
    assert demand(late, interleaving([late])) == pytest.approx(0.1 + 10 * 0.12)
    assert demand(late, replace(interleaving([late]), calibration={})) == pytest.approx(10 * 0.12), (
        "no load but that of the events was calibrated"
    )


def test_capacity_is_what_the_thread_has_when_events_are_left_over() -> None:
    """A thread that used 0.8 of a core with a backlog has no more: demand, predicted or not, is a share of that."""
    full = replace(
        STEADY, utilisation=0.8, events={"offered_per_s": 10.0, "finished_per_s": 5.0, "in_flight_end": 50.0}
    )
    hiccup = replace(STEADY, utilisation=0.9, events={**STEADY.events, "in_flight_end": 19.0})
    assert capacity(interleaving([STEADY, hiccup])) == 1.0
    run = interleaving([STEADY, hiccup, full])
    assert capacity(run) == 0.8
    assert demand(STEADY, run) == pytest.approx(0.6 / 0.8)
    assert predicted_demand(replace(STEADY, forecasts=[0.5, 0.7]), run) == pytest.approx(0.6 / 0.8)
    assert predicted_demand(STEADY, run) is None
    assert capacity(facts(phases=[full])) == 1.0, "one SCAN call is one search: it waits for nobody"
