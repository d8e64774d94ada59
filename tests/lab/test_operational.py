"""Operational analysis: demand and knee by hand-made phases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.operational import PATTERNS_PER_EVENT, demand, knee
from lab.runfolder import PhaseRecord, Run
from tests.doctored import build_run

COUNT = 1000


def phase(keys: float, utilisation: float | None, scans_per_s: float, events_per_s: float) -> PhaseRecord:
    """Ten seconds of a plateau."""
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
    assert demand(phase(pages * COUNT, busy, served, events), COUNT) == pytest.approx(busy)


@given(st.floats(1.0, 20.0))
def test_above_saturation_the_demand_goes_on(overload: float) -> None:
    """A server that is always busy and serves a part of what is asked has a demand of the whole over the part."""
    asked = 10.0 * PATTERNS_PER_EVENT * 5
    assert demand(phase(5 * COUNT, 1.0, asked / overload, 10.0), COUNT) == pytest.approx(overload)


def test_a_begun_page_is_a_page() -> None:
    """An iteration over one key more than COUNT takes two calls."""
    one, two = (demand(phase(keys, 1.0, 3.0, 1.0), COUNT) for keys in (COUNT, COUNT + 1))
    assert (one, two) == (1.0, 2.0)


def test_serving_more_than_asked_is_no_negative_demand() -> None:
    """Scans left over from before the phase do not make the demand smaller than the work done."""
    assert demand(phase(COUNT, 0.7, 30.0, 1.0), COUNT) == 0.7


def test_demand_without_scans_or_without_a_clock() -> None:
    """Without SCAN the utilisation is all there is; where that is unknown the demand is."""
    assert demand(phase(COUNT, 0.02, 0.0, 10.0), COUNT) == 0.02
    assert demand(phase(COUNT, None, 30.0, 10.0), COUNT) is None


def with_demand(run: Run, slope: float, **changes: Any) -> Run:
    """The run with a demand of `slope` per key on every plateau: busy until 1, then falling behind."""
    for record in run.arm("grow"):
        wanted = slope * record.keys
        asked = record.events["offered_per_s"] * PATTERNS_PER_EVENT
        record.utilisation = min(1.0, wanted)
        record.commands["SCAN"] = {"calls": asked / max(1.0, wanted) * record.seconds, "usec": 1.0}
    run.facts = replace(run.facts, **changes)
    return run


@pytest.mark.parametrize("saturates_at", [120_000, 150_000, 190_000])
def test_knee_is_where_the_demand_reaches_1(saturates_at: int, folder: Path) -> None:
    """The knee is found from plateaus on both sides of it, whichever it falls between."""
    assert knee(with_demand(build_run(folder), 1 / saturates_at)) == pytest.approx(saturates_at, rel=1e-6)


def test_no_knee_where_the_server_is_never_busy(control: Run, folder: Path) -> None:
    """Neither the control nor a server with a tenth of the demand has a knee."""
    assert knee(control) is None
    assert knee(with_demand(build_run(folder), 1e-7)) is None


def test_no_knee_without_utilisation(folder: Path) -> None:
    """A server that does not tell its CPU time has no observed knee; nothing is guessed."""

    def doctor(facts: Any) -> None:
        for record in facts.phases:
            record.utilisation = None

    assert knee(build_run(folder, doctor=doctor)) is None


def test_where_scans_return_early_work_is_counted_in_events() -> None:
    """With SCAN calls of any length, demand beyond capacity shows in events that do not keep up with arrivals."""
    steady = PhaseRecord(
        "a", "grow", "", "scan", 0.0, 10.0, 100_000,
        commands={"SCAN": {"calls": 900.0, "usec": 1.0}}, utilisation=0.6,
        events={"offered_per_s": 10.0, "finished_per_s": 10.0},
    )  # fmt: skip
    behind = replace(steady, utilisation=0.99, events={"offered_per_s": 10.0, "finished_per_s": 8.0})
    stuck = replace(steady, events={"offered_per_s": 10.0, "finished_per_s": 0.0})
    assert demand(steady, 4_000_000, whole_scans=False) == pytest.approx(0.6)
    assert demand(behind, 4_000_000, whole_scans=False) == pytest.approx(0.99 * 10 / 8)
    assert demand(behind, 4_000_000, whole_scans=True) == pytest.approx(0.99), "90 calls/s look like plenty"
    assert demand(stuck, 4_000_000, whole_scans=False) is None
