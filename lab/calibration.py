"""Calibration: what a scanned key costs this server on this machine, and the event rate that follows from it.

The server's main thread is busy a share U = U₀ + λ · P · N · c of the time: λ events a second, P patterns for
each, N keys, c seconds of its CPU for each key visited. It saturates where U = 1: at N* = (1 - U₀) / (λ · P · c)
keys, the knee. Calibration measures U₀ and c in a few seconds at half load, and solves for the λ that puts the knee
where the scenario wants it. So the incident comes at the same key count on a slow machine and on a fast one,
and the run itself tests the prediction.

c is measured at the wanted N*, not at a small N: it is no constant. A key costs several times more once the
keyspace has outgrown the processor's caches (one run here: 0.15 µs at 32 000 keys, 0.22 at 105 000, 0.26 at
195 000), so a knee extrapolated from few keys comes out far too high. And it is measured through the real
invalidator and beside the run's own reads, because back-to-back scans of an otherwise idle machine keep the
keyspace in the caches and look cheaper. It is taken from the server's CPU time, not from the clock, so that
moments in which the machine did something else do not count.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from lab.errors import StackError
from lab.knee import PATTERNS_PER_EVENT, cost_per_key, saturating_events
from lab.scenario import Scenario
from lab.stacks.base import Stack
from lab.store import Snapshot

BUSY_SHARE = 0.5
NOBODY = 10**9


@dataclass(frozen=True)
class Calibration:
    """The result. Times in µs or seconds as named; `ping_floor_us` is the idle server's median round trip."""

    ping_floor_us: float
    base_utilisation: float
    keys: int
    cost_alone_us_per_key: float
    cost_us_per_key: float
    events_per_second: float
    predicted_knee_keys: float
    seconds: float

    def as_dict(self) -> dict[str, float]:
        """For run.json."""
        return asdict(self)


def calibrate(
    stack: Stack,
    scenario: Scenario,
    keys: int,
    window_s: float,
    pause: Callable[[float], None],
    say: Callable[[str], None],
    whole_scans: bool = True,
) -> Calibration:
    """Measure, and solve for the event rate that saturates the server at `scenario.knee_at` of `keys`.

    Keys visited are counted by SCAN calls, ⌈keys / COUNT⌉ to a scan, where a call goes on until it has seen COUNT keys
    (`whole_scans`), and by finished events where the server may return earlier.
    """
    began = time.monotonic()
    population = max(1, keys // scenario.fragments_per_user)
    ping = stack.store.ping_us()
    stack.web.use("scan", scenario.scan_count)
    wanted_knee = scenario.knee_at * keys
    say(f"calibrating: {wanted_knee:,.0f} keys")
    stack.web.warm(round(wanted_knee), restart=False, seconds=120, check=stack.check)
    stack.locust.load(scenario.reads_per_second, 0.0, population)
    pause(0.5)
    quiet = stack.store.snapshot()
    pause(max(0.8, window_s / 3))
    idle = stack.store.snapshot()
    base = _busy(quiet, idle)
    pattern = f"{stack.key_prefix}:*:{NOBODY}:page-*"
    one_scan_us = stack.store.scan_cost_us(pattern, scenario.scan_count, 0.3)
    first_guess = BUSY_SHARE * idle.threads / (PATTERNS_PER_EVENT * one_scan_us / 1e6)
    say(f"calibrating: {first_guess:.1f} events a second for {window_s:g} s")
    stack.locust.load(scenario.reads_per_second, first_guess, population)
    pause(0.7)
    before, began_events = stack.store.snapshot(), stack.observe().finished
    pause(window_s)
    after, ended_events = stack.store.snapshot(), stack.observe().finished
    stack.locust.load(scenario.reads_per_second, 0.0, population)
    calls = after.commands.get("SCAN", (0.0, 0.0))[0] - before.commands.get("SCAN", (0.0, 0.0))[0]
    scans = calls / max(1, math.ceil(after.keys / scenario.scan_count))
    if not whole_scans:
        scans = min(scans, PATTERNS_PER_EVENT * (ended_events - began_events))
    visited = scans * after.keys
    if visited <= 0:
        raise StackError(
            "calibration saw no SCAN: the events do not reach the server. Look at logs/ in the run folder."
        )
    elapsed = after.at - before.at
    cost = cost_per_key(_busy(before, after) * elapsed, base, elapsed, visited)
    if cost <= 0:
        raise StackError(
            "calibration saw no work in the server: the machine is too busy to measure. Try again."
        )
    events = saturating_events(base, after.keys, cost)
    return Calibration(
        ping_floor_us=statistics.median(ping),
        base_utilisation=base,
        keys=after.keys,
        cost_alone_us_per_key=one_scan_us / idle.keys,
        cost_us_per_key=cost * 1e6,
        events_per_second=events,
        predicted_knee_keys=float(after.keys),
        seconds=time.monotonic() - began,
    )


def _busy(before: Snapshot, after: Snapshot) -> float:
    if before.main_thread_s is None or after.main_thread_s is None:
        raise StackError("this server does not tell its CPU time, which calibration needs.")
    return (after.main_thread_s - before.main_thread_s) / (after.at - before.at)
