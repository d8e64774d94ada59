"""The plan of a server's load: measured and computed once, before the keys grow.

One event searches the keyspace `PATTERNS_PER_EVENT` times, so at N keys its searches take a share
``U = events per second × PATTERNS_PER_EVENT × seconds of one search of N keys`` of the server's time (the utilisation
law: see `lab.results.knee`). The wanted share at the planned number of keys gives the event rate. Nothing corrects it
afterwards: every later change comes from the number of keys, or from a person.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.clients import Clients
from console.config import Config
from lab.errors import StackError
from lab.results.knee import PATTERNS_PER_EVENT, saturating_keys
from lab.server.server_stats import absent_pattern

SEARCH_S = 3.0
FILL_S = 120.0
DRAIN_S = 60.0
MOST_EVENTS = 200.0


@dataclass(frozen=True)
class Plan:
    """The plan of a server's load.

    `search_s`: seconds of each of the server's `threads` for one search of `keys` keys with SCAN's COUNT `scan_count`.
    `events_per_second`: the rate whose searches then take the share `utilisation` of their time.
    """

    keys: int
    scan_count: int
    search_s: float
    threads: int
    events_per_second: float
    utilisation: float

    @property
    def cost_s(self) -> float:
        """Seconds of a thread's time per key visited."""
        return self.search_s / self.keys

    def saturating_keys(self, events_per_second: float) -> float | None:
        """Return the number of keys at which the searches of that rate saturate the server; None without events."""
        return saturating_keys(0.0, events_per_second, self.cost_s) if events_per_second > 0 else None


def make_plan(clients: Clients, config: Config, scan_count: int, pause: Callable[[float], None]) -> Plan:
    """Fill the planned number of keys, time searches of them, and compute the event rate. The keys stay.

    `pause` sleeps, and may raise. Raises `StackError` when something does not answer or no search could be timed.
    """
    clients.web.warm(
        config.customers * config.fragments_per_user, restart=False, seconds=FILL_S, check=lambda: pause(0.0)
    )
    told_us, worked_us = clients.server.search_us(absent_pattern(config.key_prefix), scan_count, SEARCH_S)
    now = clients.server.snapshot()
    # CPU time if it is reported: on a busy machine a server's clock goes on while it waits for a core.
    search_s = (worked_us or told_us / now.threads) / 1e6
    if search_s <= 0 or now.keys <= 0:
        raise StackError(f"{clients.addresses.name} counts no time for a SCAN, so no load can be planned.")
    events = min(MOST_EVENTS, config.utilisation / (PATTERNS_PER_EVENT * search_s))
    utilisation = events * PATTERNS_PER_EVENT * search_s
    return Plan(now.keys, scan_count, search_s, now.threads, float(f"{events:.3g}"), utilisation)


def drain(clients: Clients, pause: Callable[[float], None], seconds: float = DRAIN_S) -> None:
    """Wait until no event is in flight. Raises `StackError` if that takes longer than `seconds`."""
    waited = 0.0
    while (left := clients.sample()[0].in_flight) > 0:
        if waited > seconds:
            raise StackError(f"{left:.0f} events are in flight after {seconds:g} s without a new one.")
        pause(0.1)
        waited += 0.1
