"""Calibration of a running scene: a few seconds at half load, and the event rate that follows.

The same arithmetic as a run's calibration (`lab.knee`), by other means: here the events are counted where they
end, at the invalidator, because on Dragonfly one iteration is many SCAN calls; and a server that does not tell
its CPU time is judged by the execution time of its SCANs, which is too long where calls take turns.

The keys are as many as the wanted knee, because a key costs more in a larger keyspace: one machine here
needed 0.12 µs a key at 60 000 and 0.22 at 150 000. Filling in that many takes a second or two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.control.clients import Clients
from lab.control.config import Config
from lab.errors import StackError
from lab.knee import PATTERNS_PER_EVENT, cost_per_key, saturating_events
from lab.store import Snapshot

BUSY_SHARE = 0.5
MOST_EVENTS = 200.0
FEW_EVENTS = 20.0
LONGEST = 3.0
BASE_S = 1.5
FILL_S = 120.0
DRAIN_S = 60.0
NOBODY = 10**9


@dataclass(frozen=True)
class Tuning:
    """The result: base utilisation, seconds of the server's time per key, and the event rate for the knee."""

    base_share: float
    cost_s: float
    events_per_second: float


def tune(
    clients: Clients,
    config: Config,
    load: Callable[[float], None],
    pause: Callable[[float], None],
) -> Tuning:
    """Fill, measure the base load, then the events' work, and solve. `load` sets the event rate; `pause` sleeps
    and may raise. Ends without events, with the calibration's keys still cached.

    Raises:
        StackError: something did not answer, or the events' work could not be told from the base load.
    """
    load(0.0)
    clients.web.use("scan", config.scan_count)
    clients.web.warm(config.knee_keys, restart=False, seconds=FILL_S, check=lambda: pause(0.0))
    drain(clients, pause)
    quiet = clients.store.snapshot()
    pause(BASE_S)
    idle = clients.store.snapshot()
    base = max(0.0, _busy(quiet, idle)) / (idle.at - quiet.at)
    # As the storefront's own patterns begin: matching costs more than half of a scan.
    pattern = f"{config.key_prefix}:*:user:{NOBODY}:page-*"
    one_scan_s = clients.store.scan_cost_us(pattern, config.scan_count, 0.3) / 1e6
    # From an empty queue to an empty queue: whole events only.
    drained, before = clients.look().finished, clients.store.snapshot()
    rate = min(MOST_EVENTS, BUSY_SHARE * idle.threads / (PATTERNS_PER_EVENT * one_scan_s))
    load(rate)
    pause(min(max(config.calibration_seconds, FEW_EVENTS / rate), LONGEST * config.calibration_seconds))
    load(0.0)
    drain(clients, pause)
    after, finished = clients.store.snapshot(), clients.look().finished
    events, keys = finished - drained, (before.keys + after.keys) / 2
    if events <= 0 or keys <= 0:
        raise StackError("calibration saw no events: they do not reach the invalidator.")
    elapsed = after.at - before.at
    cost = cost_per_key(_busy(before, after), base, elapsed, events * PATTERNS_PER_EVENT * keys)
    if cost <= 0:
        raise StackError("calibration saw no work in the server: the machine is too busy to measure.")
    return Tuning(base, cost, saturating_events(base, config.knee_keys, cost))


def drain(clients: Clients, pause: Callable[[float], None]) -> None:
    """Wait until no event is in flight."""
    waited = 0.0
    while (left := clients.look().in_flight) > 0:
        if waited > DRAIN_S:
            raise StackError(f"{left:.0f} events are in flight after {DRAIN_S:g} s without a new one.")
        pause(0.1)
        waited += 0.1


def _busy(before: Snapshot, after: Snapshot) -> float:
    """Seconds of the server's executing thread between two snapshots."""
    if before.main_thread_s is not None and after.main_thread_s is not None:
        return after.main_thread_s - before.main_thread_s
    # No CPU time told: the execution time of scans. The base load is then taken as nothing.
    return (after.commands.get("SCAN", (0.0, 0.0))[1] - before.commands.get("SCAN", (0.0, 0.0))[1]) / 1e6
