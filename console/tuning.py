"""Calibration of a running scene: a few seconds at half load, and the event rate that follows.

The arithmetic is that of a run's calibration (`lab.results.knee`); the inputs differ. Events are counted where they
end, at the invalidator, because on Dragonfly one iteration is many SCAN calls. For a server that does not report its
CPU time, the execution time of its SCANs is taken, which is too long where calls take turns.

Calibration fills as many keys as the wanted knee, because a key costs more in a larger keyspace: one machine needed
0.12 µs a key at 60 000 keys and 0.22 at 150 000. Filling that many takes a second or two.

At the knee the server has no time left. On a small machine it does not get a core for itself: two servers, two
storefronts and the observers share what there is. So the plan counts the machine's cores: those not in use without
events are divided evenly among the servers of the scene, and a server's events cost its storefront's time, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.clients import Clients
from console.config import Config
from console.machine import MachineTimes, idle_cores, read_machine
from lab.errors import StackError
from lab.results.knee import PATTERNS_PER_EVENT, cost_of_each, saturating_events
from lab.stacks.server_stats import Snapshot

BUSY_SHARE = 0.5
MOST_EVENTS = 200.0
FEW_EVENTS = 20.0
LONGEST = 3.0
BASE_S = 2.0
FILL_S = 120.0
DRAIN_S = 60.0
NOBODY = 10**9
LEAST_CORES = 0.25
"""Least cores for a server and its storefront: the kernel gives them that much even if other programs want everything.
"""
SPARE_CORES = 0.1
"""Cores of the machine that the kernel and the container engine need besides; no server's plan counts them."""


@dataclass(frozen=True)
class Tuning:
    """The result. `base_share`: share of the time that each of the server's `threads` is busy without events; `cost_s`:
    seconds of its time per key visited, at `keys` keys; `storefront_s`: core seconds that an event costs outside the
    server; `events_per_second`: the rate that puts the knee at `keys`.
    """

    base_share: float
    cost_s: float
    events_per_second: float
    keys: int = 0
    threads: int = 1
    storefront_s: float = 0.0


def planned_events(
    base: float, cost_s: float, keys: int, threads: int, storefront_s: float, fair_cores: float
) -> float:
    """Events a second that saturate a server at `keys` keys: what its threads or its cores allow, the lesser of both.

    `fair_cores`: cores that the server and its storefront can have together, above what the idle scene uses.
    """
    of_threads = saturating_events(base, keys, cost_s)
    of_machine = fair_cores / (PATTERNS_PER_EVENT * keys * cost_s * threads + storefront_s)
    return min(of_threads, of_machine)


def tune(
    clients: Clients,
    config: Config,
    hungry: int,
    load: Callable[[float], None],
    pause: Callable[[float], None],
    machine: Callable[[], MachineTimes] = read_machine,
) -> Tuning:
    """Fill, measure the base load, then the events' work, and compute the event rate. `load` sets the event rate;
    `pause` sleeps and may raise; `hungry` servers share the machine. At the end no events are sent, and the
    calibration's keys are still cached.

    Raises:
        StackError: something did not answer, or the events' work could not be told from the base load.
    """
    load(0.0)
    clients.web.use("scan", config.scan_count)
    clients.web.warm(config.knee_keys, restart=False, seconds=FILL_S, check=lambda: pause(0.0))
    drain(clients, pause)
    quiet, cores_before = clients.server.snapshot(), machine()
    pause(BASE_S)
    idle, cores_idle = clients.server.snapshot(), machine()
    threads = idle.threads
    base = max(0.0, _busy(quiet, idle)) / (idle.at - quiet.at)
    spare = idle_cores(cores_before, cores_idle)
    # A pattern like the storefront's own: matching costs more than half of a scan.
    pattern = f"{config.key_prefix}:*:user:{NOBODY}:page-*"
    one_scan_s = clients.server.scan_cost_us(pattern, config.scan_count, 0.3) / 1e6
    # Measured from an empty queue to an empty queue, so that only whole events count.
    drained, before, cores_loaded = finished(clients), clients.server.snapshot(), machine()
    rate = min(MOST_EVENTS, BUSY_SHARE * threads / (PATTERNS_PER_EVENT * one_scan_s))
    load(rate)
    pause(min(max(config.calibration_seconds, FEW_EVENTS / rate), LONGEST * config.calibration_seconds))
    load(0.0)
    drain(clients, pause)
    after, done, cores_after = clients.server.snapshot(), finished(clients), machine()
    events, keys = done - drained, (before.keys + after.keys) / 2
    if events <= 0 or keys <= 0:
        raise StackError("calibration saw no events: they do not reach the invalidator.")
    elapsed, busy = after.at - before.at, _busy(before, after)
    cost = cost_of_each(busy, base, elapsed, events * PATTERNS_PER_EVENT * keys)
    if cost <= 0:
        raise StackError("calibration saw no work in the server: the machine is too busy to measure.")
    used = (spare - idle_cores(cores_loaded, cores_after)) * elapsed
    storefront = max(0.0, used - (busy - base * elapsed) * threads) / events
    fair = max(LEAST_CORES, (spare - SPARE_CORES) / max(1, hungry))
    events_per_second = planned_events(base, cost, config.knee_keys, threads, storefront, fair)
    return Tuning(base, cost, events_per_second, config.knee_keys, threads, storefront)


def finished(clients: Clients) -> float:
    """Events that the invalidator has finished since it started."""
    return clients.sample()[0].finished


def drain(clients: Clients, pause: Callable[[float], None], seconds: float = DRAIN_S) -> None:
    """Wait until no event is in flight. Raises `StackError` if that takes longer than `seconds`."""
    waited = 0.0
    while (left := clients.sample()[0].in_flight) > 0:
        if waited > seconds:
            raise StackError(f"{left:.0f} events are in flight after {seconds:g} s without a new one.")
        pause(0.1)
        waited += 0.1


def _busy(before: Snapshot, after: Snapshot) -> float:
    """Seconds that the server's executing thread was busy between two snapshots."""
    if before.main_thread_s is not None and after.main_thread_s is not None:
        return after.main_thread_s - before.main_thread_s
    # The server reports no CPU time: take the execution time of its SCANs. The base load then counts as 0.
    return (after.commands.get("SCAN", (0.0, 0.0))[1] - before.commands.get("SCAN", (0.0, 0.0))[1]) / 1e6
