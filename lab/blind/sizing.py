"""The programs of a blind scene, their healthy orders, and the measurements from which a cause's size is computed."""

from __future__ import annotations

from dataclasses import dataclass

from lab.blind.inbox import Order
from lab.blind.readings import UserFigures

PROGRAMS = ("program-1", "program-2", "program-3", "program-4")
CHANGER, SECOND, *REST = PROGRAMS
"""The first program carries out price changes in every session; the others rest at first."""
LINK, WEB = "link", "web"
READS_PER_S = 60.0
MEMBERS = 80_000
"""Number of prices; each is an entry and a member of the index set."""
KEYS = 200_000
BACKLOG = 0.45
"""Interval between two changes, as a share of the time that the sequential round trips of one take. Below 1, changes
arrive faster than they finish, so a queue builds up."""
HEADROOM_MB = 48
"""Room between the memory in use at the start and the server's maxmemory, in every session."""
PATTERN = "latency-lab:user:0:*"
RESTING: Order = {"kind": "rest"}

Orders = dict[str, Order]
"""Program → order."""


HEALTHY_UNKNOWN = UserFigures(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Measurements:
    """Measurements of this machine, from which the orders of a cause are computed.

    `ping_us` is a round trip to the idle server, `key_us` its time for a key that SCAN visits. `core` is the core that
    the server is pinned to (None: it is not pinned), `cores` the machine's number of cores. `healthy` has the figures
    that users saw while all was well.
    """

    ping_us: float
    key_us: float
    keys: int
    core: int | None
    cores: int
    healthy: UserFigures = HEALTHY_UNKNOWN

    @property
    def full_scan_ms(self) -> float:
        """Time of a full SCAN over all keys."""
        return self.key_us * self.keys / 1000

    @property
    def change_every_s(self) -> float:
        """Seconds between two price changes."""
        return min(1.8, max(1.0, BACKLOG * MEMBERS * self.ping_us / 1e6))

    @property
    def slow_us(self) -> int:
        """The slow log's threshold: about a third of a full SCAN, from 2 ms to the default of 10 ms."""
        return round(min(10_000.0, max(2_000.0, 350 * self.full_scan_ms)))


def prices(kind: str) -> Order:
    """Return the order to carry out price changes. `kind`: `changes`, or the id of a cause with its own method."""
    return {"kind": kind, "members": MEMBERS}


HEALTHY_ORDERS: Orders = {
    LINK: {"delay_s": 0.0},
    WEB: {"size": 0, "hold_s": 0.0, "wait_s": 0.0},
    CHANGER: prices("changes"),
    **dict.fromkeys((SECOND, *REST), RESTING),
}
"""The orders of all programs before the cause begins, while all is well."""
