"""What the machine itself takes from a server that runs on it: the hypervisor, a quota, swapped memory, huge pages, a
slow clock, and pauses in which nothing runs. Linux only; what cannot be read is left out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SYSTEM = Path("/sys")
QUICK_CLOCKS = frozenset(("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"))
"""Clock sources that a program reads without a call of the system."""
STOLEN, THROTTLED = 0.02, 0.01
"""Shares of the time from which the hypervisor and a quota are named."""
FAULTS_PER_S = 1.0
"""Pages a second, read back from disk, from which this is named: each takes as long as the disk."""
PAUSE_S = 0.010
"""Length of a pause of this machine's programs from which it is named."""


@dataclass(frozen=True)
class Counters:
    """Counters of the machine and of one of its processes, in seconds and pages since they began."""

    stolen_s: float
    machine_s: float
    throttled_s: float
    major_faults: int


def read(pid: int, cgroups: Path = SYSTEM / "fs" / "cgroup", processes: Path = Path("/proc")) -> Counters:
    """Read the counters; one that is not there is 0."""
    times = psutil.cpu_times()
    faults = throttled = 0.0
    # proc(5): majflt is the tenth field behind the name
    with contextlib.suppress(OSError, IndexError, ValueError):
        faults = int((processes / f"{pid}/stat").read_text().rpartition(")")[2].split()[9])
    with contextlib.suppress(OSError, IndexError, ValueError, StopIteration):  # cgroups(7), version 2
        group = (processes / f"{pid}/cgroup").read_text().rpartition("0::/")[2].strip()
        lines = (cgroups / group / "cpu.stat").read_text().splitlines()
        throttled = next(float(line.split()[1]) for line in lines if line.startswith("throttled_usec")) / 1e6
    return Counters(getattr(times, "steal", 0.0), sum(times), throttled, int(faults))


def notes(
    before: Counters, after: Counters, seconds: float, pauses_s: Sequence[float], system: Path = SYSTEM
) -> list[str]:
    """Return a sentence for each thing of the machine that can hold a server up.

    `pauses_s`: how late this process woke, each time; the longest is a lower bound of the machine's own latency.
    """
    found = []
    if (machine := after.machine_s - before.machine_s) > 0:
        stolen = (after.stolen_s - before.stolen_s) / machine
        if stolen >= STOLEN:
            found.append(f"the hypervisor took {stolen:.0%} of the processors' time for other machines")
    if (held := (after.throttled_s - before.throttled_s) / seconds) >= THROTTLED:
        found.append(f"a quota of CPU (cgroup) held the server's group back {held:.0%} of the time")
    if (faults := (after.major_faults - before.major_faults) / seconds) >= FAULTS_PER_S:
        found.append(
            f"the server read {faults:,.0f} pages a second back from disk: is its memory swapped out?"
        )
    pages = _text(system / "kernel" / "mm" / "transparent_hugepage" / "enabled")
    if "[always]" in pages:
        found.append("transparent huge pages are on: after a fork each first write to a page copies 2 MB")
    clock = _text(system / "devices" / "system" / "clocksource" / "clocksource0" / "current_clocksource")
    if clock and clock not in QUICK_CLOCKS:
        found.append(f"the clock source is {clock}: each look at the time is a call of the system")
    if (longest := max(pauses_s, default=0.0)) >= PAUSE_S:
        found.append(f"programs of this machine stood still for up to {1000 * longest:.0f} ms")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
