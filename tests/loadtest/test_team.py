"""A Locust master with workers, and Locust's metrics: real processes against a stand-in for the storefront."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from loadtest.customers.load import Load
from loadtest.customers.metrics import BUCKETS, Counts, exposition
from tests.app.servicekit import eventually

WITHIN = 0.15
"""The tolerance of rates: a process that was stopped for half a second catches up at once. Twice or half is far off."""


def rate(moments: list[tuple[float, str]]) -> float:
    """Requests per second between the first and the last request."""
    return (len(moments) - 1) / (moments[-1][0] - moments[0][0])


def steady(storefront: Any, per_second: float, seconds: float = 3.0) -> list[tuple[float, str]]:
    """Wait for that rate, then return the events of some seconds at it."""

    def arrived() -> bool:
        storefront.events.clear()
        time.sleep(1.0)
        return abs(len(storefront.events) - per_second) <= max(2, 0.15 * per_second)

    eventually(arrived, 60)
    storefront.events.clear()
    time.sleep(seconds)
    return list(storefront.events)


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The values of an exposition by (name, label values in the order of the labels' names)."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.whole
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_deliver_the_rate_exactly_once_and_evenly(
    storefront: Any, start_team: Callable[..., Any], workers: int
) -> None:
    """Workers together send the asked rate, not a multiple or a part of it, and their turns interleave."""
    team = start_team(storefront.url, workers, LOADTEST_EVENTS_PER_SECOND="30", LOADTEST_READS_PER_SECOND="0")
    events = steady(storefront, 30, seconds=4)
    assert rate(events) == pytest.approx(30, rel=WITHIN)
    gaps = sorted(b[0] - a[0] for a, b in itertools.pairwise(events))
    assert gaps[len(gaps) // 2] == pytest.approx(1 / 30, rel=0.25)
    assert gaps[len(gaps) * 9 // 10] < 2 / 30
    report = team.master.ask("GET", "/load")[1]
    assert report["events"]["missed"] == report["events"]["failures"] == 0
    assert report["users"] > 3


def test_master_changes_resets_and_sums(storefront: Any, start_team: Callable[..., Any]) -> None:
    """/load on the master is that of the whole team: it changes every worker's rate, and counts every request once."""
    team = start_team(storefront.url, 2, LOADTEST_EVENTS_PER_SECOND="10", LOADTEST_READS_PER_SECOND="0")
    steady(storefront, 10, seconds=0)
    team.master.change(events_per_second=40, reads_per_second=20)
    assert rate(steady(storefront, 40)) == pytest.approx(40, rel=WITHIN)

    team.master.change(events_per_second=0, reads_per_second=0)
    time.sleep(1)
    storefront.events.clear()
    storefront.reads.clear()
    before = samples(team.master.text("/metrics"))
    report = team.master.ask("POST", "/load/reset")[1]
    assert report["events"]["count"] == report["reads"]["count"] == 0
    time.sleep(1)
    assert storefront.events == storefront.reads == []

    team.master.change(events_per_second=20, reads_per_second=10, users_population=7)
    time.sleep(3)
    team.master.change(events_per_second=0, reads_per_second=0)
    time.sleep(0.7)
    report = team.master.ask("GET", "/load")[1]
    assert report["events"]["count"] == len(storefront.events) == pytest.approx(60, rel=0.15)
    assert report["reads"]["count"] == len(storefront.reads) == pytest.approx(30, rel=0.2)
    assert 0 < report["events"]["p50_ms"] <= report["events"]["p99_ms"]
    assert {int(path.split("/")[2]) for _, path in storefront.reads} <= set(range(1, 8))
    after = samples(team.master.text("/metrics"))
    for kind, seen in (("events", storefront.events), ("reads", storefront.reads)):
        # Labels in the order of their names: outcome, request.
        name = ("locust_requests_total", "ok", kind)
        assert after[name] - before[name] == len(seen)


@pytest.mark.whole
def test_worker_that_dies_and_one_that_joins(storefront: Any, start_team: Callable[..., Any]) -> None:
    """After a worker was killed the others take over its turns; a new one takes a share. Counters never fall."""
    team = start_team(storefront.url, 2, LOADTEST_EVENTS_PER_SECOND="20", LOADTEST_READS_PER_SECOND="0")
    steady(storefront, 20, seconds=1)
    before = samples(team.master.text("/metrics"))["locust_requests_total", "ok", "events"]
    team.workers[0].kill()
    time.sleep(5)  # Locust calls a worker missing after three heartbeats, a second apart
    assert rate(steady(storefront, 20)) == pytest.approx(20, rel=WITHIN)
    assert samples(team.master.text("/metrics"))["locust_requests_total", "ok", "events"] > before
    team.join()
    time.sleep(5)
    assert rate(steady(storefront, 20)) == pytest.approx(20, rel=WITHIN)


@pytest.mark.whole
def test_shape_on_the_master_shapes_every_worker(storefront: Any, start_team: Callable[..., Any]) -> None:
    """Under LOADTEST_SHAPE=growth the workers together have the step's share of the rate, then all of it."""
    start_team(
        storefront.url, 2, LOADTEST_SHAPE="growth", LOADTEST_STEP_SECONDS="2", LOADTEST_EVENTS_PER_SECOND="50",
        LOADTEST_READS_PER_SECOND="0",
    )  # fmt: skip
    eventually(lambda: len(storefront.events) > 3, 60)
    first = storefront.events[0][0]
    eventually(lambda: storefront.events[-1][0] > first + 12, 60)
    early = [at for at, _ in storefront.events if at < first + 1.5]
    late = [at for at, _ in storefront.events if first + 9.5 <= at < first + 11.5]
    assert len(early) < 1.5 * 50 * 0.5
    assert len(late) == pytest.approx(100, rel=0.2)


def test_metrics_of_one_process_count_what_was_asked(
    storefront: Any, start_locust: Callable[..., Any]
) -> None:
    """Requests by outcome, durations and users are exported, equal what the storefront saw, and survive a reset."""
    locust = start_locust(storefront.url, LOADTEST_READS_PER_SECOND="0", LOADTEST_EVENTS_PER_SECOND="40")
    eventually(lambda: len(storefront.events) >= 20, 60)
    storefront.broken = True
    locust.ask("POST", "/load/reset")
    eventually(lambda: len(storefront.events) >= 60, 60)
    locust.change(events_per_second=0)
    time.sleep(0.7)
    seen = samples(locust.text("/metrics"))
    ok, failed = (seen["locust_requests_total", outcome, "events"] for outcome in ("ok", "failed"))
    assert ok + failed == len(storefront.events)
    assert min(ok, failed) >= 15
    assert seen["locust_request_duration_seconds_count", "events"] == ok + failed
    assert seen["locust_request_duration_seconds_bucket", "10.0", "events"] == ok + failed
    assert seen["locust_request_duration_seconds_bucket", "0.0001", "events"] < ok
    assert 0 < seen["locust_request_duration_seconds_sum", "events"] < 60
    assert seen["locust_requests_total", "ok", "reads"] == seen["locust_missed_total", "events"] == 0
    assert seen["locust_users",] > 0
    openmetrics = locust.text("/metrics", accept="application/openmetrics-text; version=1.0.0")
    families = read_openmetrics(openmetrics)  # type: ignore[no-untyped-call] # the package has no type information
    assert {family.name for family in families} == {
        "locust_requests", "locust_missed", "locust_request_duration_seconds", "locust_users",
    }  # fmt: skip


def test_missed_turns_survive_a_reset() -> None:
    """`missed` of /load begins again with a reset, the counter does not."""
    load = Load()
    load.events.missed = 3
    load.reset()
    load.events.missed = 2
    events: Any = load.describe(0)["events"]
    assert events["missed"] == 2
    assert load.counts_now()["events"].missed == 5


def test_histogram_is_cumulative_and_ends_in_infinity() -> None:
    """Each request is in its bucket and all larger ones; one that took longer than every bound is in +Inf only."""
    counts = Counts()
    for seconds in (BUCKETS[0], 0.0015, 0.25, 99.0):
        counts.add(seconds, failed=seconds > 1)
    text = exposition({"reads": counts.plus(counts)}, 5, "")[0].decode()
    seen = samples(text)
    name = "locust_request_duration_seconds_bucket"
    assert [seen[name, le, "reads"] for le in ("0.0001", "0.001", "0.002", "0.3", "10.0", "+Inf")] == [
        2, 2, 4, 6, 6, 8,
    ]  # fmt: skip
    assert (
        seen["locust_requests_total", "ok", "reads"],
        seen["locust_requests_total", "failed", "reads"],
    ) == (6, 2)
