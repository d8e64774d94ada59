"""Decides whether the figures of a server show a cause, for blind sessions and for `bin/lab diagnose` alike.

Each function returns whether the evidence of one cause is there. The bounds are those of the blind sessions, whose
causes exceed them several times over (`bin/lab blind causes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

TIMES_HEALTHY = 3.0
"""This multiple of the healthy value, measured in the same scene before the cause began, is a symptom."""
LEAST_GET_MS = 5.0
"""A symptom must reach this p99, too: nobody would complain of two milliseconds that become six."""
LONG_MS = 3.0
"""A call of this length is noticed by other clients."""
SCANS_PER_S, SCANS_SHARE = 50, 0.4
LONG_SHARE = 0.1
EVICTED_PER_S, MEMORY_SHARE = 100, 0.95
WITHOUT_A_CORE, BUSY_ENOUGH, OTHERS_CORES = 0.05, 0.7, 0.5
REMOVED_PER_S, REMOVED_US = 1000, 100
EXPIRED_PER_S = 2000
CONNECTS_PER_S = 200
"""New connections a second: each costs the server as much as some dozen GETs, and TLS a thousand."""
SENT_MB_PER_S, ANSWER_BYTES, ANSWERING = 50.0, 10_000, 0.3
"""What a server sends, the size of its mean answer, from which answers are big rather than many, and the utilisation
from which the work of sending them makes others wait."""
STALL_MS, STALL_TIMES = 100.0, 4.0
"""A wait of this length is a stall, if it is this many times the longest wait on the other ways."""


@dataclass(frozen=True)
class Spent:
    """What one command cost the server: calls a second, share of its main thread, µs a call in the mean."""

    per_s: float
    share: float
    mean_us: float


class Figures(Protocol):
    """The figures that are judged: those of `lab.blind.readings.Readings` or of `lab.diagnose.window.Window`."""

    @property
    def slow_gets(self) -> bool:
        """True if a bystander's GETs are plainly slower than when all is well."""
        ...

    @property
    def get_ms(self) -> float:
        """The p99 of a bystander's GETs, in ms."""
        ...

    @property
    def busy(self) -> float:
        """Utilisation of the thread that executes commands."""
        ...

    @property
    def evicted_per_s(self) -> float:
        """Entries evicted a second."""
        ...

    @property
    def expired_per_s(self) -> float:
        """Entries a second whose time to live was over."""
        ...

    @property
    def connects_per_s(self) -> float:
        """Connections that the server accepted, a second."""
        ...

    @property
    def sent_mb_per_s(self) -> float:
        """What the server sends to its clients, in MB/s."""
        ...

    @property
    def commands(self) -> Mapping[str, Spent]:
        """What each command cost."""
        ...

    @property
    def memory(self) -> float:
        """Largest share of maxmemory in use."""
        ...

    @property
    def slow(self) -> Mapping[str, tuple[int, float]]:
        """Command → number of its entries in the slow log, and the longest (ms)."""
        ...

    def spent(self, command: str) -> Spent:
        """What a command cost."""
        ...


def scan_storm(of: Figures) -> bool:
    """True if GETs are slow and SCAN takes much of the main thread's time, in many calls."""
    scan = of.spent("SCAN")
    return of.slow_gets and scan.share >= SCANS_SHARE and scan.per_s >= SCANS_PER_S


def long_calls(of: Figures, command: str) -> bool:
    """True if GETs are slow, and a command's calls are long enough to be noticed and take a good part of the time."""
    spent = of.spent(command)
    return of.slow_gets and spent.mean_us / 1000 >= LONG_MS and spent.share >= LONG_SHARE


def giant_set(of: Figures) -> bool:
    """True if GETs are slow, SMEMBERS and UNLINK are called, one of them is long, and one is in the slow log."""
    read, removed = of.spent("SMEMBERS"), of.spent("UNLINK")
    longer_ms = max(read.mean_us, removed.mean_us) / 1000
    logged = "SMEMBERS" in of.slow or "UNLINK" in of.slow
    return of.slow_gets and read.per_s > 0 and removed.per_s > 0 and longer_ms >= LONG_MS and logged


def evictions(of: Figures) -> bool:
    """True if GETs are slow and at least a hundred entries a second are evicted, with memory at its limit."""
    return of.slow_gets and of.evicted_per_s >= EVICTED_PER_S and of.memory >= MEMORY_SHARE


def expiries(of: Figures) -> bool:
    """True if GETs are slow and thousands of entries a second expire, and no eviction explains that GETs are slow."""
    return of.slow_gets and of.expired_per_s >= EXPIRED_PER_S and not evictions(of)


def big_answers(of: Figures) -> bool:
    """True if GETs are slow, and a busy server sends tens of megabytes a second, in answers of more than 10 kB."""
    calls = sum(spent.per_s for spent in of.commands.values())
    big = of.sent_mb_per_s * 1e6 >= ANSWER_BYTES * calls
    return of.slow_gets and of.busy >= ANSWERING and of.sent_mb_per_s >= SENT_MB_PER_S and big


def connects(of: Figures) -> bool:
    """True if GETs are slow, and the server accepts hundreds of new connections a second."""
    return of.slow_gets and of.connects_per_s >= CONNECTS_PER_S


def stalls(of: Figures, most_ms: float, elsewhere_ms: float) -> bool:
    """True if `most_ms`, the longest wait on a way, is a stall, and neither GETs nor other ways wait nearly as long."""
    return most_ms >= max(STALL_MS, STALL_TIMES * elsewhere_ms, STALL_TIMES * of.get_ms)


def without_a_core(of: Figures, waited: float | None, others: float | None) -> bool:
    """True if GETs are slow while other programs compute and the server, which has little to do, waits for a core.

    `waited` is the share of the time that the server waited, `others` the cores that other programs used. If one is
    None (unknown), the other figures decide. Programs that read big answers, or connect again and again, compute, too:
    then that is the reason.
    """
    waits = waited is None or waited >= WITHOUT_A_CORE
    computing = others is None or others >= OTHERS_CORES
    little = of.busy < BUSY_ENOUGH and of.spent("SCAN").share < 0.2
    return of.slow_gets and waits and computing and little and not big_answers(of) and not connects(of)


def one_by_one(of: Figures) -> bool:
    """True if UNLINK is called once for each key: at least a thousand short calls a second."""
    removed = of.spent("UNLINK")
    return removed.per_s >= REMOVED_PER_S and removed.mean_us < REMOVED_US
