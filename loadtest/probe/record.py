"""The probe's measurements in one interval: three histograms and one JSON line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

from loadtest.histogram import HIGHEST_US, LOWEST_US, Histogram

Observer = Callable[[int, int], None]


def percentile(ordered: list[int], percent: float) -> int:
    """The nearest-rank percentile of values in ascending order; 0 when there are none."""
    if not ordered:
        return 0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class Interval:
    """Counts and latencies of an interval: of what happened in it, or of the requests that were due in it.

    Over all lines by arrival: sum(sent) = sum(received) + sum(errors) + the last line's in_flight. In each line by due
    time: sent = received + errors + in_flight.
    """

    def __init__(self, began_ns: int) -> None:
        self.began_ns = began_ns
        self.received = 0
        self.errors = 0
        self._ended: dict[str, object] = {}
        self._waits: list[int] = []
        self._intended = Histogram()
        self._service = Histogram()
        self._lag = Histogram()

    def request_was_due(self, lag_ns: int) -> None:
        """A request's time came (whether or not a connection could take it), `lag_ns` after it was due."""
        self._lag.record(lag_ns // 1000)

    @property
    def unanswered(self) -> int:
        """The requests that were due in the interval and have neither a reply nor an error."""
        return self._lag.total - self.received - self.errors

    def reply_came(self, since_due_ns: int, since_sent_ns: int) -> None:
        """A reply came: record its latency from the intended time and from the send time."""
        since_due = min(max(since_due_ns // 1000, LOWEST_US), HIGHEST_US)
        self._intended.record(since_due)
        self._service.record(since_sent_ns // 1000)
        self._waits.append(since_due)
        self.received += 1

    def end(self, now_ns: int, in_flight: int, oldest_due_ns: int | None, **more: object) -> None:
        """End the interval. This is quick; `line()` can be called later, when there is time for it."""
        self._ended = {
            "by": "arrival",
            "t": round(time.time(), 6),
            "interval_s": round((now_ns - self.began_ns) / 1e9, 6),
            "in_flight": in_flight,
            "oldest_in_flight_us": 0 if oldest_due_ns is None else (now_ns - oldest_due_ns) // 1000,
            **more,
        }

    def end_with(self, other: Interval) -> None:
        """End this interval, of the requests that were due, at the moment at which `other` ended."""
        self._ended = other._ended | {"by": "due", "oldest_in_flight_us": 0}

    def line(self, name: str) -> str:
        """The interval, after its end, as one line of JSON; times in microseconds unless named otherwise."""
        waits = sorted(self._waits)
        return json.dumps(
            {
                "name": name,
                "sent": self._lag.total,
                "received": self.received,
                "errors": self.errors,
                "lag_p99_us": self._lag.percentile(99),
                "p50_us": percentile(waits, 50),
                "p99_us": percentile(waits, 99),
                "max_us": waits[-1] if waits else 0,
                "intended": self._intended.encode(),
                "service": self._service.encode(),
                "lag": self._lag.encode(),
                **self._ended,
                **({"in_flight": self.unanswered} if self._ended["by"] == "due" else {}),
            }
        )
