"""Locust's requests and their results, as Prometheus metrics on its web UI's port.

    locust_requests_total{request,outcome}          outcome: ok, failed
    locust_request_duration_seconds{request}        histogram, as Locust measured it: a closed loop's view
    locust_missed_total{request}                    turns that no user was free to take: the load was not open-loop
    locust_users                                    users that carry the load

`request` is reads, events or visits, as in `/load`. The counters are those of all processes together, and never fall.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from app.exposition import encoder_for

BUCKETS = (*(round(step * 10.0**power, 6) for power in range(-4, 1) for step in range(1, 10)), 10.0)
"""Upper bounds in seconds, the same as the probe's, so that the two can be compared."""


@dataclass
class Counts:
    """Counts of one kind of request since the process began. `buckets` are not cumulative; the last is +Inf."""

    ok: int = 0
    failed: int = 0
    missed: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))

    def add(self, seconds: float, failed: bool) -> None:
        """Count one finished request."""
        self.ok += not failed
        self.failed += failed
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS, seconds)] += 1

    def plus(self, other: Counts) -> Counts:
        """The sum of both."""
        return Counts(
            self.ok + other.ok,
            self.failed + other.failed,
            self.missed + other.missed,
            self.seconds + other.seconds,
            [a + b for a, b in zip(self.buckets, other.buckets, strict=True)],
        )


class _Counted(Collector):
    def __init__(self, counts: Mapping[str, Counts], users: int) -> None:
        self._counts = counts
        self._users = users

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "locust_requests", "Finished requests by outcome.", labels=["request", "outcome"]
        )
        missed = CounterMetricFamily(
            "locust_missed", "Turns that no user was free to take.", labels=["request"]
        )
        duration = HistogramMetricFamily(
            "locust_request_duration_seconds", "Duration of a request as Locust saw it.", labels=["request"]
        )
        for request, counts in self._counts.items():
            requests.add_metric([request, "ok"], counts.ok)
            requests.add_metric([request, "failed"], counts.failed)
            missed.add_metric([request], counts.missed)
            duration.add_metric([request], _cumulative(counts.buckets), counts.seconds)
        yield from (requests, missed, duration)
        yield GaugeMetricFamily("locust_users", "Users that carry the load.", value=self._users)


def _cumulative(buckets: list[int]) -> list[Any]:
    rows, total = [], 0
    for bound, count in zip((*BUCKETS, float("inf")), buckets, strict=True):
        total += count
        rows.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call] # it has no types
    return rows


def exposition(counts: Mapping[str, Counts], users: int, accept: str) -> tuple[bytes, str]:
    """The metrics in the format that an Accept header prefers, and its content type."""
    registry = CollectorRegistry()
    registry.register(_Counted(counts, users))
    encode: Callable[[CollectorRegistry], bytes]
    encode, content_type = encoder_for(accept)
    return encode(registry), content_type
