"""The guide's formulas: their arithmetic, and recorded runs where the guide says that they hold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lab.report.quantities import quantity
from lab.report.view import RunView
from lab.results import formulas
from lab.results.folder import Run

RUNS = Path(__file__).resolve().parents[3] / "docs" / "runs"
TIME_TO_SPARE = (0.05, 0.66)
"""Range of busy shares in which searches are nearly all of the server's work, and events do not meet yet."""
ABOVE = (0.8, 2.0)
"""Range of p99 over the formula's value, which is a lower bound: see `wait_of_absences`."""


@pytest.mark.parametrize(
    ("share", "expected"), [(0.005, 0.0), (0.01, 0.0), (0.02, 50.0), (0.1, 90.0), (1.0, 99.0)]
)
def test_absences_show_in_p99_from_a_hundredth_of_the_time_on(share: float, expected: float) -> None:
    """Absences below a hundredth of the time do not show in p99; soon above it nearly all of their length does."""
    assert formulas.wait_of_absences(100.0, share) == pytest.approx(expected)
    assert formulas.wait_of_absences(100.0, 0.02, percentile=50) == 0.0


def test_absences_are_what_a_simulation_finds() -> None:
    """The formula agrees with a simulated server that is absent for 30 of every 100 ms and asked at random moments."""
    dice = random.Random(1)
    waits = sorted(max(0.0, 30 - dice.uniform(0, 100)) for _ in range(200_000))
    assert formulas.wait_of_absences(30.0, 0.3) == pytest.approx(waits[int(0.99 * len(waits))], rel=0.01)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.5, 0.5), (0.9, 4.5), (1.0, float("inf"))])
def test_random_work_waits_behind_other_work(share: float, expected: float) -> None:
    """The mean wait is as in chapter 1: half of a job at a busy share of 0.5, 4.5 jobs at 0.9."""
    assert formulas.mean_wait_of_random_work(1.0, share) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("run", "command"),
    [("key-growth", "SCAN"), ("key-growth-standard", "SCAN"), ("keys-command", "KEYS")],
)
def test_p99_of_recorded_runs_is_what_the_formula_says_or_somewhat_more(run: str, command: str) -> None:
    """Recorded p99s agree on every plateau where the server has time to spare. (Beyond the knee see the next test.)"""
    seen, foretold = RunView(Run(RUNS / run)), quantity(f"foretold:{command}")
    low, high = TIME_TO_SPARE
    ratios = {}
    for phase in seen.run.facts.phases:
        value, p99 = foretold.read(phase, seen.latencies), seen.p99(phase)
        if isinstance(value, float) and p99 and low <= (phase.utilisation or 0) <= high:
            ratios[phase.id] = p99 / value
    assert ratios
    assert all(ABOVE[0] <= ratio <= ABOVE[1] for ratio in ratios.values()), ratios


def test_beyond_the_knee_the_formula_fails_as_the_guide_says() -> None:
    """On the last plateau of the main incident events wait for events, and p99 is over three times the formula's."""
    seen = RunView(Run(RUNS / "key-growth-standard"))
    top = seen.run.arm("grow")[-1]
    value, p99 = quantity("foretold:SCAN").read(top, seen.latencies), seen.p99(top)
    assert isinstance(value, float)
    assert p99 is not None
    assert p99 > 3 * value


def test_a_phase_without_the_command_or_without_events_foretells_nothing() -> None:
    """A phase under the index has no SCAN, so the formula gives nothing for it."""
    seen = RunView(Run(RUNS / "key-growth"))
    index = seen.run.arm("index")[0]
    assert quantity("foretold:SCAN").read(index, seen.latencies) is None


def test_walks_of_a_recorded_run_take_what_the_formula_says() -> None:
    """With the round trip of the first row and the time a name of the last, the rows between follow within 15 %."""
    rows = {phase.id: phase for phase in Run(RUNS / "scan-count").facts.phases}

    def of(name: str) -> tuple[float, float, float, float]:
        found = rows[name].figures
        call_us = rows[name].execution_us("SCAN")
        assert call_us is not None
        return found["keys_per_call"], found["mean_call_ms"] / 1e3, call_us / 1e6, found["iteration_s"]

    first, last = of("one-10"), of("one-10000")
    round_trip_s = first[1] - first[2]
    name_s = (last[1] - last[2] - round_trip_s) / last[0]
    for name in ("one-100", "one-1000"):
        count, _, call_s, walk_s = of(name)
        keys = walk_s / of(name)[1] * count  # the keys that this walk visited
        assert formulas.walk_s(keys, count, round_trip_s, call_s, name_s) == pytest.approx(walk_s, rel=0.15)


@pytest.mark.parametrize("phase", ["rtt-half", "rtt-1", "rtt-5"])
def test_the_gain_of_a_pipeline_is_what_the_formula_says(phase: str) -> None:
    """Over a network the gain is within 15 %. (On loopback the program's own time is as long as the round trip.)"""
    found = next(each for each in Run(RUNS / "pipelined-delete").facts.phases if each.id == phase).figures
    gain = found["pipelined_keys_per_s"] / found["one_by_one_keys_per_s"]
    foretold = formulas.gain_of_a_pipeline(found["round_trip_ms"] / 1e3, 1 / found["pipelined_keys_per_s"])
    assert gain == pytest.approx(foretold, rel=0.15)
