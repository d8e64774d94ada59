"""What each cause means in orders: solved from what this machine's server was measured to cost, never constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lab.blind.inbox import Order
from lab.blind.readings import Seen
from lab.blind.scene import LINK, PROGRAMS, READS_PER_S, WEB

MEMBERS = 80_000
"""Prices: entries, and members of their index set."""
KEYS = 200_000
BACKLOG = 0.45
"""Changes arrive faster than their sequential round trips finish, so a queue builds up: the interval between two
changes, as a share of the time that the round trips of one take."""
WAIT_MS = 60.0
"""What a bystander is to wait for one round of the searches."""
BUSY = 0.35
"""Share of the main thread that KEYS is to take."""
HEADROOM_MB = 48
"""Between what is cached at the start and the store's maxmemory, in every session."""
BYTES_PER_ENTRY = 330
PATTERN = "latency-lab:*:user:0:*"
FIRST, SECOND, *REST = PROGRAMS
RESTING: Order = {"kind": "rest"}

Orders = dict[str, Order]
"""Program → order."""


HEALTHY_UNKNOWN = Seen(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Measured:
    """The idle server of this machine: µs of a round trip and of a visited key; and what users saw in health."""

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
        """Between two changes of prices."""
        return min(1.8, max(1.0, BACKLOG * MEMBERS * self.ping_us / 1e6))

    @property
    def slow_us(self) -> int:
        """The slow log's threshold: far below a walk over all keys, at most the usual 10 ms."""
        return round(min(10_000.0, max(2_000.0, 350 * self.walk_ms)))


def prices(way: str) -> Order:
    """Carry out changes in this way."""
    return {"kind": "changes", "way": way, "members": MEMBERS}


WELL: Orders = {
    LINK: {"delay_s": 0.0},
    WEB: {"size": 0, "hold_s": 0.0, "wait_s": 0.0},
    FIRST: prices("chunks"),
    **dict.fromkeys((SECOND, *REST), RESTING),
}
"""The orders of all programs before the cause begins, while all is well."""


def _walks(of: Measured, strength: float) -> Orders:
    call_ms = min(1.5, 0.3 * of.slow_us / 1000)
    count = min(20_000, max(500, round(1000 * call_ms / of.key_us)))
    lines = min(400, math.ceil(strength * WAIT_MS / (count * of.key_us / 1000)))
    return {SECOND: {"kind": "walk", "pattern": PATTERN, "count": count, "connections": lines}}


def _lists(of: Measured, strength: float) -> Orders:
    return {
        SECOND: {"kind": "list", "pattern": PATTERN, "every_s": of.walk_ms / 1000 / min(0.8, strength * BUSY)}
    }


def _crowds(of: Measured, strength: float) -> Orders:
    order = {
        "kind": "crowd",
        "connections": 40,
        "report_bytes": 2**20,
        "small_reads": round(12 * strength),
        "entries": HEADROOM_MB * 1_000_000 // BYTES_PER_ENTRY // 250 * 250,
        "fill_s": 2.0,
        "every_s": 4.0,
    }
    return {SECOND: order}


def _holds(of: Measured, strength: float) -> Orders:
    size = 2
    wait_s = max(0.3, 6 * of.healthy.page_ms / 1000)
    return {WEB: {"size": size, "hold_s": strength * 1.5 * size / READS_PER_S, "wait_s": wait_s}}


def _delays(of: Measured, strength: float) -> Orders:
    return {LINK: {"delay_s": strength * min(0.5, max(0.04, 6 * of.healthy.page_ms / 1000))}}


def _computes(of: Measured, strength: float) -> Orders:
    threads = 4 if of.core is not None else 2 * of.cores
    order = {"kind": "compute", "threads": round(threads * strength), "core": of.core}
    return dict.fromkeys((SECOND, *REST), order)


BEGIN: dict[str, Callable[[Measured, float], Orders]] = {
    "scan-storm": _walks,
    "keys-command": _lists,
    "giant-index": lambda _of, _strength: {FIRST: prices("whole")},
    "eviction-cycle": _crowds,
    "unpipelined-deletes": lambda _of, _strength: {FIRST: prices("each")},
    "exhausted-pool": _holds,
    "slow-network": _delays,
    "noisy-neighbour": _computes,
    "nothing": lambda _of, _strength: {},
}


def orders(cause: str, measured: Measured, strength: float = 1.0) -> Orders:
    """Everybody's orders under a cause: those that have none of their own are told what they were told before."""
    return WELL | BEGIN[cause](measured, strength)
