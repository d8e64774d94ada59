"""The knee as it is corrected while keys grow."""

import pytest

from console.estimate import Estimate, Moment
from console.machine import MachineTimes, idle_cores
from console.tuning import planned_events

COST, KNEE, RATE = 0.2e-6, 150_000, 6.0


def fed(
    estimate: Estimate, cost: float, keys: int, idle: float, base: float = 0.0, seconds: int = 30
) -> Estimate:
    """Feed the estimate with `seconds` in each of which `RATE` events search `keys` keys at `cost` and `idle` cores are
    idle.
    """
    for at in range(seconds):
        busy = at * (base + RATE * 3 * keys * cost)
        estimate.add(Moment(float(at), busy, at * idle, at * RATE, 0.0, keys))
    return estimate


def test_before_anything_is_seen() -> None:
    """Before the first sample there is no knee, and the cost is the calibrated one."""
    estimate = Estimate(0.0, COST, KNEE)
    assert estimate.capacity() is None and estimate.knee_keys(RATE, None) is None and estimate.cost_s == COST


def test_a_server_with_a_core_of_its_own() -> None:
    """With cores to spare the capacity is one core, and the knee follows from rate and cost."""
    estimate = fed(Estimate(0.0, COST, KNEE), COST, 100_000, idle=3.0)
    assert estimate.capacity(2, 0.5) == 1.0
    assert estimate.knee_keys(RATE, 1.0) == pytest.approx(1 / (3 * RATE * COST))
    assert estimate.share(RATE, 100_000, 1.0) == pytest.approx(0.36)


def test_servers_that_share_what_is_idle() -> None:
    """Servers share idle cores until all have the same; one ahead keeps what it has; a server alone gets all."""
    estimate = fed(Estimate(0.0, COST, KNEE), COST, 100_000, idle=0.4)
    assert estimate.busy == pytest.approx(0.36)
    assert estimate.capacity(2, 0.36) == pytest.approx(0.56)
    assert estimate.capacity(2, 0.80) == pytest.approx(0.78)
    assert estimate.capacity(1) == pytest.approx(0.76)
    ahead = fed(Estimate(0.0, COST, KNEE), COST, 200_000, idle=0.1)
    assert ahead.capacity(2, 0.2) == pytest.approx(0.72)
    assert estimate.knee_keys(RATE, 0.56) == pytest.approx(0.56 / (3 * RATE * COST))


def test_a_key_that_costs_more_moves_the_knee() -> None:
    """A cost measured at the calibrated number of keys counts fully; at a third of it only a ninth, because a key is
    cheaper there.
    """
    dearer = fed(Estimate(0.0, COST, KNEE), 1.5 * COST, KNEE, idle=3.0)
    assert dearer.cost_s == pytest.approx(1.5 * COST)
    early = fed(Estimate(0.0, COST, KNEE), 0.5 * COST, KNEE // 3, idle=3.0)
    assert early.cost_s == pytest.approx(COST * (1 - 0.5 / 9))


def test_a_growing_backlog_says_nothing_of_the_cost() -> None:
    """While the backlog grows the cost stays as it was: unfinished work would make the finished events look costly."""
    estimate = Estimate(0.0, COST, KNEE)
    for at in range(30):
        estimate.add(Moment(float(at), 0.9 * at, 0.0, 2.0 * at, 4.0 * at, KNEE))
    assert estimate.cost_s == COST


def test_another_life_begins_a_new_window() -> None:
    """Counters that went back are not subtracted; the former figures hold until the new window is full."""
    estimate = fed(Estimate(0.0, COST, KNEE), COST, 100_000, idle=1.0)
    for at in range(40, 47):
        estimate.add(Moment(float(at), 0.0, float(at), 0.0, 0.0, 0))
    assert estimate.busy == pytest.approx(0.36) and estimate.capacity() == 1.0
    estimate.add(Moment(48.0, 0.0, 48.0, 0.0, 0.0, 0))
    assert estimate.busy == 0.0


def test_the_plan_counts_the_machine() -> None:
    """With enough cores the thread limits the planned rate; with fewer, the fair part of them, storefront included."""
    alone = planned_events(0.0, COST, KNEE, 1, 0.0, fair_cores=2.0)
    assert alone == pytest.approx(1 / (3 * KNEE * COST))
    assert planned_events(0.0, COST, KNEE, 1, 0.0, 0.6) == pytest.approx(0.6 * alone)
    assert planned_events(0.0, COST, KNEE, 1, 0.09, 0.6) == pytest.approx(0.5 * 0.6 * alone)


def test_idle_cores() -> None:
    """Idle core seconds over the time between two readings."""
    assert idle_cores(MachineTimes(10.0, 2, 100.0), MachineTimes(14.0, 2, 106.0)) == 1.5
    assert idle_cores(MachineTimes(10.0, 2, 100.0), MachineTimes(10.0, 2, 100.0)) == 0.0


def test_a_server_that_has_fallen_behind_says_nothing_of_the_cost() -> None:
    """While a server is behind the cost stays as it was: work on its queue would make a key look costly, and so move
    the knee.
    """
    estimate = Estimate(0.0, COST, KNEE)
    for at in range(30):
        estimate.add(Moment(float(at), 0.9 * at, 0.0, 2.0 * at, 9.0, KNEE, behind=at > 10))
    early = estimate.cost_s
    assert estimate.busy == pytest.approx(0.9)
    for at in range(30, 60):
        estimate.add(Moment(float(at), 0.9 * at, 0.0, 0.5 * at + 45, 9.0, KNEE, behind=True))
    assert estimate.cost_s == early
