"""The figures that the law judges. A diagnosis (`Window`) and a blind session (`Readings`) both measure them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

OWN = frozenset(
    {"INFO", "PING", "SLOWLOG", "SLOWLOG|GET", "COMMANDLOG|GET", "LATENCY", "LATENCY|LATEST", "LATENCY|HISTOGRAM",
     "CONFIG", "CONFIG|GET", "CLIENT", "CLIENT|LIST"}
)  # fmt: skip
"""Commands that a diagnosis sends besides GET, as commandstats writes them."""
CONSTANT = ("GET", "SET", "SETEX", "EXISTS", "EXPIRE", "PING", "INCR", "HGET", "HSET", "SISMEMBER", "TTL")
"""Commands whose execution takes microseconds whatever the keyspace holds."""

TIMES_HEALTHY = 3.0
"""This multiple of the healthy value is a symptom: of the floor of the round trips in a diagnosis, of what was measured
in the same scene before the cause began in a blind session."""
LEAST_GET_MS = 5.0
"""A symptom must reach this p99, too: a rise from one millisecond to three is no complaint."""


@dataclass(frozen=True)
class Spent:
    """The cost of a command for the server: calls a second, share of its main thread, mean µs a call."""

    per_s: float
    share: float
    mean_us: float


@dataclass(frozen=True)
class Evidence:
    """The evidence of a cause. `found`: it is in the figures. `text`: the figures that decided it."""

    found: bool
    text: str


class Figures(Protocol):
    """Figures of one server and of a bystander over a stretch of time. Properties with a value here are optional.

    A dataclass of figures has slots, so that a field takes the place of the property with its name.
    """

    @property
    def seconds(self) -> float:
        """Length of the stretch."""
        ...

    @property
    def get_ms(self) -> float:
        """The p99 of a bystander's waits, in ms."""
        ...

    @property
    def wait_ms(self) -> float:
        """The mean of a bystander's waits without a round trip, in ms."""
        ...

    @property
    def slow_from_ms(self) -> float:
        """The p99 from which a bystander's waits are a symptom, in ms."""
        ...

    @property
    def p99_text(self) -> str:
        """The p99 of a bystander in words."""
        ...

    @property
    def busy(self) -> float:
        """Utilisation of the thread that executes commands, 0 to 1."""
        ...

    @property
    def commands(self) -> Mapping[str, Spent]:
        """Command → its cost."""
        ...

    @property
    def slow(self) -> Mapping[str, tuple[int, float]]:
        """Command → number of its entries in the slow log, and the longest (ms)."""
        ...

    @property
    def keys(self) -> int:
        """Keys in all databases."""
        ...

    @property
    def memory(self) -> float:
        """Largest share of maxmemory in use."""
        ...

    @property
    def evicted_per_s(self) -> float:
        """Entries evicted a second."""
        ...

    @property
    def expired_per_s(self) -> float:
        """Entries that expired, a second."""
        ...

    @property
    def connects_per_s(self) -> float:
        """Connections that the server accepted, a second."""
        ...

    @property
    def sent_mb_per_s(self) -> float:
        """Rate at which the server sends to its clients, in MB/s."""
        ...

    @property
    def waited(self) -> float | None:
        """Share of the time that the server's thread was ready but had no core. None: unknown."""
        ...

    @property
    def others(self) -> float | None:
        """Cores that other programs used. None: unknown."""
        ...

    @property
    def lengths(self) -> Mapping[str, Mapping[int, int]]:
        """Command → bound in µs → calls between half of it and it."""
        return {}

    @property
    def senders(self) -> Mapping[str, str]:
        """Command → the client behind it, by name and library, with its number of connections; empty if unknown."""
        return {}

    @property
    def threads(self) -> int:
        """Threads that execute commands."""
        return 1

    @property
    def clock_includes_waits(self) -> bool:
        """True if the time of a command includes its waits for other commands."""
        return False

    @property
    def torn(self) -> tuple[int, int] | None:
        """Executions of commands of constant time, and how many were interrupted."""
        return None

    @property
    def interrupted(self) -> bool:
        """True if commands of constant time were interrupted too often for chance."""
        return False

    @property
    def copied(self) -> bool:
        """True if GETs are slow while a replica copies the whole data set, and are not slow at other times."""
        return False

    @property
    def capped_per_s(self) -> float | None:
        """Interruptions of the removal of expired entries, a second: the server lets commands through."""
        return None

    @property
    def period_s(self) -> float | None:
        """The median time from one stall of a bystander to the next."""
        return None

    @property
    def per_read(self) -> float | None:
        """Commands per read of a socket: near 1 without pipelining."""
        return None

    @property
    def busy_by_second(self) -> list[float]:
        """The utilisation of single seconds."""
        return []

    # --- figures that follow from those above

    @property
    def slow_gets(self) -> bool:
        """True if a bystander's waits are a symptom."""
        return self.get_ms >= self.slow_from_ms

    @cached_property
    def dearest(self) -> list[tuple[str, Spent]]:
        """Commands by their share of the time, the largest first, without our own."""
        theirs = [(name, spent) for name, spent in self.commands.items() if name not in OWN]
        return sorted(theirs, key=lambda item: -item[1].share)

    def spent(self, command: str) -> Spent:
        """Return the cost of a command; all zero if it was not called."""
        return self.commands.get(command, Spent(0.0, 0.0, 0.0))

    def share(self, command: str) -> float:
        """Return a command's share of the time of the threads that execute commands, 0 to 1.

        If the clock includes waits, it is at most the command's part of the used CPU time.
        """
        share = min(1.0, self.spent(command).share / self.threads)
        if not self.clock_includes_waits:
            return share
        total = sum(spent.share for _, spent in self.dearest)
        return min(share, self.busy * self.spent(command).share / total) if total else 0.0

    def calls(self, command: str) -> list[tuple[float, float]]:
        """Return (calls a second, s a call) of a command on one thread: by its histogram, else by mean and slow log.

        Calls of a bin are three quarters of its bound long, scaled to their total time. A histogram
        of interrupted executions is no measure of a command, so then its mean is taken.
        """
        spent, threads = self.spent(command), self.threads
        bins = self.lengths.get(command, {})
        counted_us = sum(0.75 * bound * calls for bound, calls in bins.items())
        if counted_us and not self.interrupted and not self.clock_includes_waits:
            scale = spent.share * self.seconds / counted_us
            return [(calls / self.seconds / threads, scale * 0.75 * bound) for bound, calls in bins.items()]
        rate, share = spent.per_s / threads, self.share(command)
        logged, longest_ms = self.slow.get(command, (0, 0.0))
        longest_s = longest_ms / 1000
        found = []
        if logged and longest_s and not self.clock_includes_waits:
            # Of the logged calls only the longest is known; as many as a third of them may be like it.
            alike = min(max(1.0, logged / 3) / self.seconds / threads, rate, share / longest_s)
            found.append((alike, longest_s))
            rate, share = rate - alike, share - alike * longest_s
        return [*found, (rate, share / rate)] if rate > 0 else found
