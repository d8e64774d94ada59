"""The machine's processor time: how many cores there are, and how many of them are idle.

In a container these are the figures of the whole machine (of the virtual machine, where the engine runs in one), which
is what the servers, the storefronts and the observers have to share.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class MachineTimes:
    """One reading. `at`: seconds of a clock that never goes back. `idle_s`: idle seconds of all cores together."""

    at: float
    cores: int
    idle_s: float


def read_machine() -> MachineTimes:
    """Read the processor times now. Time that a hypervisor gave to other machines counts as used."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return MachineTimes(time.monotonic(), psutil.cpu_count() or 1, idle)


def idle_cores(before: MachineTimes, after: MachineTimes) -> float:
    """Mean number of idle cores between two readings."""
    return max(0.0, (after.idle_s - before.idle_s) / (after.at - before.at)) if after.at > before.at else 0.0
