"""Calibration: measures the cost of a scanned key on this server and machine, and plans the event rate from it.

The server's main thread is busy a share U = U₀ + λ · P · N · c of the time: λ events a second, P patterns for
each, N keys, c seconds of its CPU for each key visited. It saturates where U = 1: at N* = (1 - U₀) / (λ · P · c)
keys, the knee. `calibrate` measures U₀ and c at half load, in a few seconds or until it has seen events, and solves for
the λ that puts the knee where the scenario wants it. So the incident comes at the same key count on a slow machine and
on a fast one.

c is measured at the wanted N*, not at a small N, because it is not constant. A key costs more once the
keyspace has outgrown the processor's caches (one run here: 0.15 µs at 32 000 keys, 0.22 at 105 000, 0.26 at
195 000), so a knee extrapolated from few keys comes out far too high. c is measured through the real
invalidator and during the run's own reads, because back-to-back scans of an otherwise idle machine keep the
keyspace in the caches and look cheaper. It is taken from the server's CPU time, not from the clock, so that
moments in which the machine did something else do not count.

Calibration only plans the knee. The prediction that a run tests is made again at each plateau (`predict`), from c
measured just before and just after the plateau, at three quarters of the load. The reason is that c also changes with
time. Most of it is waiting for memory, and on a machine shared with strangers that was seen to change by a third within
five seconds and by 1.8 times within two minutes, while the core's own speed stayed within 3 % and no counter showed it.
One calibration at the start would be out of date when the plateaus come. A sample before and a sample after cancel
what drifts evenly between them. The load is as much as three quarters because the rarer the scans, the more of the
caches other programs have taken before the next one. Whether plan and prediction drifted apart is a check of validity.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from lab.errors import StackError
from lab.results.knee import PATTERNS_PER_EVENT, cost_of_each, demand, saturating_events
from lab.scenarios.model import Scenario
from lab.server.server_stats import Snapshot, absent_pattern
from lab.stacks.base import Stack

BUSY_SHARE = 0.5
SAMPLE_SHARE = 0.75
EVENTS_SEEN = 2.5
"""Mean number of events in a measurement of rare events. They come evenly, so at least two come."""
STRAGGLER_S = 0.1
"""Seconds until a request under way at the load's end has become an event."""


@dataclass(frozen=True)
class Calibration:
    """The result of calibration. Units as named; `ping_floor_us` is the idle server's median round trip."""

    ping_floor_us: float
    base_utilisation: float
    keys: int
    cost_alone_us_per_key: float
    cost_us_per_key: float
    events_per_second: float
    planned_knee_keys: float
    seconds: float

    def as_dict(self) -> dict[str, float]:
        """Return the fields for run.json."""
        return asdict(self)


@dataclass(frozen=True)
class IdleCounters:
    """The server's counters and the number of finished events, at a moment when no event is under way."""

    server: Snapshot
    finished: float


class Calibrator:
    """Measures the cost of scanned keys on a stack. `pause(s)` waits s seconds, `drain` until no event is left."""

    def __init__(
        self,
        stack: Stack,
        scenario: Scenario,
        population: int,
        pause: Callable[[float], None],
        drain: Callable[[], None],
    ) -> None:
        self._stack = stack
        self._scenario = scenario
        self._population = population
        self._pause = pause
        self._drain = drain
        self._base = 0.0

    def calibrate(self, wanted_knee: int, window_s: float, say: Callable[[str], None]) -> Calibration:
        """Measure, and solve for the event rate that saturates the server at `wanted_knee` keys.

        The run offers the scenario's `load_share` of that rate (`lab.runner.phases`).

        Raises `StackError` if the server does not report its CPU time, or nothing was scanned.
        """
        began = time.monotonic()
        stack, scenario = self._stack, self._scenario
        ping = stack.server.ping_us()
        stack.web.use(scenario.searching, scenario.scan_count)
        say(f"calibrating: {wanted_knee:,.0f} keys")
        stack.web.warm(wanted_knee, restart=False, seconds=120, check=stack.check)
        self._load(0.0)
        self._pause(0.5)
        quiet = stack.server.snapshot()
        self._pause(max(0.8, window_s / 3))
        idle = stack.server.snapshot()
        self._base = _busy(quiet, idle)
        one_scan_us = stack.server.scan_cost_us(absent_pattern(stack.key_prefix), scenario.scan_count, 0.3)
        first_guess = BUSY_SHARE * idle.threads / (PATTERNS_PER_EVENT * one_scan_us / 1e6)
        say(f"calibrating: {first_guess:.1f} events a second for {window_s:g} s")
        cost, keys = self._cost(first_guess, window_s)
        if cost <= 0:
            raise StackError(
                "calibration saw no work in the server: the machine is too busy to measure. Try again."
            )
        return Calibration(
            ping_floor_us=statistics.median(ping),
            base_utilisation=self._base,
            keys=keys,
            cost_alone_us_per_key=one_scan_us / idle.keys,
            cost_us_per_key=cost * 1e6,
            events_per_second=saturating_events(self._base, keys, cost),
            planned_knee_keys=float(keys),
            seconds=time.monotonic() - began,
        )

    def predict(self, events_per_second: float, window_s: float) -> float:
        """Return the demand (1 saturates the server) of an event rate at the current keys, measured at `SAMPLE_SHARE`.

        If nothing is scanned, the events' work is small against the base load. The demand can then be slightly below
        that load.
        """
        cost, keys = self._cost(SAMPLE_SHARE * events_per_second, window_s)
        return demand(self._base, events_per_second, keys, cost)

    def _cost(self, events_per_second: float, window_s: float) -> tuple[float, int]:
        """Return the server's CPU seconds per visited key at that event rate, and the number of keys.

        Takes `window_s`, or longer if events are rare (`EVENTS_SEEN`). It measures from one empty queue to the
        next, so that every counted event was served wholly in between.
        """
        before = self.mark()
        self._load(events_per_second)
        self._pause(max(window_s, EVENTS_SEEN / events_per_second))
        self._load(0.0)
        self._pause(STRAGGLER_S)
        after = self.mark()
        keys = after.server.keys
        return self.event_cost(before, after) / (PATTERNS_PER_EVENT * keys) if keys else 0.0, keys

    def mark(self) -> IdleCounters:
        """Wait until no event is under way. Returns the counters of that moment."""
        self._drain()
        return IdleCounters(self._stack.server.snapshot(), self._stack.observe().finished)

    def event_cost(self, before: IdleCounters, after: IdleCounters) -> float:
        """Return the server's CPU seconds for each event between two marks, without the base load of the reads.

        Raises `StackError` when no event was finished.
        """
        finished = after.finished - before.finished
        if finished <= 0:
            raise StackError(
                "calibration saw no event finish: events do not reach the server. Look at logs/ in the run folder."
            )
        elapsed = after.server.at - before.server.at
        return cost_of_each(_busy(before.server, after.server) * elapsed, self._base, elapsed, finished)

    def _load(self, events_per_second: float) -> None:
        self._stack.locust.load(self._scenario.reads_per_second, events_per_second, self._population)


def _busy(before: Snapshot, after: Snapshot) -> float:
    if before.main_thread_s is None or after.main_thread_s is None:
        raise StackError("this server does not report its CPU time, which calibration needs.")
    return (after.main_thread_s - before.main_thread_s) / (after.at - before.at)
