"""The programs of a blind scene, their orders while all is well, and the measurements by which a cause is sized."""

from __future__ import annotations

from dataclasses import dataclass

from lab.blind.inbox import Order
from lab.blind.readings import Seen

PROGRAMS = ("program-1", "program-2", "program-3", "program-4")
CHANGER, SECOND, *REST = PROGRAMS
"""The first program carries out changes of prices in every session; the others have nothing to do at first."""
LINK, WEB = "link", "web"
READS_PER_S = 60.0
MEMBERS = 80_000
"""Number of prices; each is an entry and a member of the index set."""
KEYS = 200_000
BACKLOG = 0.45
"""Changes arrive faster than their sequential round trips finish, so a queue builds up: the interval between two
changes, as a share of the time that the round trips of one take."""
HEADROOM_MB = 48
"""Room between what is cached at the start and the server's maxmemory, in every session."""
PATTERN = "latency-lab:user:0:*"
RESTING: Order = {"kind": "rest"}

Orders = dict[str, Order]
"""Program → order."""


HEALTHY_UNKNOWN = Seen(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine, from which the orders of a cause are computed.

    On the idle server `ping_us` is a round trip, `key_us` a key that SCAN visits. `core` is the core that the server is
    kept on (None: it is not kept on one), `cores` the machine's number of cores. `healthy` is what users saw while all
    was well.
    """

    ping_us: float
    key_us: float
    keys: int
    core: int | None
    cores: int
    healthy: Seen = HEALTHY_UNKNOWN

    @property
    def walk_ms(self) -> float:
        """Time of a walk over all keys."""
        return self.key_us * self.keys / 1000

    @property
    def change_every_s(self) -> float:
        """Seconds between two price changes."""
        return min(1.8, max(1.0, BACKLOG * MEMBERS * self.ping_us / 1e6))

    @property
    def slow_us(self) -> int:
        """The slow log's threshold: about a third of a walk over all keys, from 2 ms to the usual 10 ms."""
        return round(min(10_000.0, max(2_000.0, 350 * self.walk_ms)))


def prices(kind: str) -> Order:
    """The order to carry out price changes. `kind`: `changes`, or the id of a cause that does it in its own way."""
    return {"kind": kind, "members": MEMBERS}


WELL: Orders = {
    LINK: {"delay_s": 0.0},
    WEB: {"size": 0, "hold_s": 0.0, "wait_s": 0.0},
    CHANGER: prices("changes"),
    **dict.fromkeys((SECOND, *REST), RESTING),
}
"""The orders of all programs before the cause begins, while all is well."""
