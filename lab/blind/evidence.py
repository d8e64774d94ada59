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
    def busy(self) -> float:
        """Utilisation of the thread that executes commands."""
        ...

    @property
    def evicted_per_s(self) -> float:
        """Entries evicted a second."""
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


def without_a_core(of: Figures, waited: float | None, others: float | None) -> bool:
    """True if GETs are slow while other programs compute and the server, which has little to do, waits for a core.

    `waited` is the share of the time that the server waited, `others` the cores that other programs used. If one is
    None (unknown), the other figures decide.
    """
    waits = waited is None or waited >= WITHOUT_A_CORE
    computing = others is None or others >= OTHERS_CORES
    return of.slow_gets and waits and computing and of.busy < BUSY_ENOUGH and of.spent("SCAN").share < 0.2


def one_by_one(of: Figures) -> bool:
    """True if UNLINK is called once for each key: at least a thousand short calls a second."""
    removed = of.spent("UNLINK")
    return removed.per_s >= REMOVED_PER_S and removed.mean_us < REMOVED_US
