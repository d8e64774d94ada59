"""Finds the three phases of each eviction cycle in a load's samples of the server: by memory and evictions alone.

Latencies and response rates are not used, so claims about them are not circular. The cycles are located by memory
first; the clients' waits in each phase are looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

FULL = 0.97
"""Share of the limit from which memory counts as full. The server evicts ahead, for what the next command may need."""
ROOM = 0.98
"""Evictions belong to one burst while memory stays above this share of the limit. Below it a new climb begins."""
FREED = 0.01
"""Share of the limit that a recovery must free after the last eviction."""


@dataclass(frozen=True)
class CycleSample:
    """A short interval that ends at `t`, as the crowd load and the server's INFO report it.

    Counts are those of the interval. Levels (in flight, keys, memory in MB) are those at its end. `clients_mb` is
    mem_clients_normal, `busy` the busy share of the server's main thread.
    """

    t: float
    interval_s: float
    offered_per_s: float
    answered: int
    in_flight: int
    inserted: int
    evicted: int
    expired: int
    keys: int
    used_mb: float
    limit_mb: float
    clients_mb: float
    busy: float

    @property
    def start(self) -> float:
        """Start of the interval."""
        return self.t - self.interval_s


Stretch = tuple[CycleSample, ...]


@dataclass(frozen=True)
class Cycle:
    """Memory climbs to its limit, keys are evicted there, and memory falls without any eviction."""

    healthy: Stretch
    burst: Stretch
    recovery: Stretch


def read_sample(line: dict[str, Any]) -> CycleSample | None:
    """The sample in a line of the crowd load; None for another line. Raises `ValueError` when a figure is unusable."""
    try:
        found = {name: line[name] for name in CycleSample.__dataclass_fields__}
    except KeyError:
        return None
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{name} is no number")
    if not (found["interval_s"] > 0 and found["limit_mb"] > 0):
        raise ValueError("interval_s and limit_mb should be above 0")
    return CycleSample(**found)


def seconds(samples: Sequence[CycleSample]) -> float:
    """Total length of the samples, in seconds."""
    return sum(sample.interval_s for sample in samples)


def rate(samples: Sequence[CycleSample]) -> float:
    """Answers per second."""
    return sum(sample.answered for sample in samples) / max(seconds(samples), 1e-9)


def cost_us(samples: Sequence[CycleSample]) -> float:
    """CPU time of the main thread per answer, in µs."""
    return (
        sum(sample.busy * sample.interval_s for sample in samples)
        / max(sum(sample.answered for sample in samples), 1)
        * 1e6
    )


def evicted_per_insert(samples: Sequence[CycleSample]) -> float:
    """Entries evicted per entry inserted. All entries have one size, so inserts alone need 1."""
    return sum(sample.evicted for sample in samples) / max(sum(sample.inserted for sample in samples), 1)


def bursts_at(samples: Sequence[CycleSample]) -> list[tuple[int, int]]:
    """Indices of the first and last sample of each burst of evictions, inside a whole cycle or not."""
    evicting = [i for i, sample in enumerate(samples) if sample.evicted]
    found: list[tuple[int, int]] = []
    for i in evicting:
        between = samples[found[-1][1] + 1 : i] if found else ()
        if found and all(sample.used_mb > ROOM * sample.limit_mb for sample in between):
            found[-1] = (found[-1][0], i)
        else:
            found.append((i, i))
    return found


def cycles(samples: Sequence[CycleSample]) -> list[Cycle]:
    """All whole cycles in the samples, in order.

    A cycle is whole if memory first climbed to its limit, was full while keys were evicted, and then fell without
    evictions. A server that steadily evicts as much as is inserted has no cycle.
    """
    bursts = bursts_at(samples)
    nexts = [*(first for first, _ in bursts[1:]), len(samples)]
    lows = [
        min(range(last, after), key=lambda i: samples[i].used_mb)
        for (_, last), after in zip(bursts, nexts, strict=False)
    ]
    found = []
    for begin, (first, last), low in zip([-1, *lows], bursts, lows, strict=False):
        cycle = Cycle(
            tuple(samples[begin + 1 : first]),
            tuple(samples[first : last + 1]),
            tuple(samples[last + 1 : low + 1]),
        )
        if _is_whole(cycle):
            found.append(cycle)
    return found


def _is_whole(cycle: Cycle) -> bool:
    if not cycle.healthy or not cycle.recovery:
        return False
    limit = cycle.burst[0].limit_mb
    climbed = cycle.healthy[0].used_mb <= ROOM * limit
    full = max(sample.used_mb for sample in (cycle.healthy[-1], *cycle.burst)) >= FULL * limit
    freed = cycle.burst[-1].used_mb - cycle.recovery[-1].used_mb >= FREED * limit
    return climbed and full and freed


def below_limit(samples: Sequence[CycleSample]) -> int:
    """Entries evicted in bursts that began below the limit: memory was full neither before nor after the first sample.

    Only the start of a burst is tested. A sample reads memory at its end. While the server evicts, reads requests and
    frees buffers, a sample can last a second, without an answer, and may well end below the limit.
    """
    early, evicting, full = 0, False, False
    for before, now in pairwise(samples):
        if now.evicted and not evicting:
            full = max(before.used_mb / before.limit_mb, now.used_mb / now.limit_mb) >= FULL
        evicting = bool(now.evicted)
        early += 0 if full else now.evicted
    return early
