"""Figures of a server on this machine: the cores that other programs used, and the time its thread had no core."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from lab.diagnose import machine
from lab.server.window import Window
from loadtest import info


@dataclass
class Local:
    """Figures of a server that is a process of this machine, at one moment."""

    pid: int
    waited_s: float | None
    own_s: float
    machine_s: float
    counters: machine.Counters
    at: float = field(default_factory=time.monotonic)


def find(fields: info.Fields) -> Local | None:
    """Return the server's process if this machine has one with the same process id, age and program, else None.

    The program is compared because containers may share an address and have process ids of their own, all from 1.
    """
    with contextlib.suppress(psutil.Error, ValueError, KeyError):
        process = psutil.Process(int(fields["process_id"]))
        age = time.time() - process.create_time()
        program = Path(fields.get("executable", "")).name  # Dragonfly does not report it
        if abs(age - float(fields["uptime_in_seconds"])) < 10 and program in ("", process.name()):
            return _measure(process.pid)
    return None


def _measure(pid: int) -> Local:
    times = psutil.Process(pid).cpu_times()
    all_times = psutil.cpu_times()
    idle = all_times.idle + getattr(all_times, "iowait", 0.0) + getattr(all_times, "guest", 0.0)
    own = sum(times[:4])  # with children that have ended: the processes that a server forks are its own
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):
            own += sum(child.cpu_times()[:2])
    return Local(pid, _waited_s(pid), own, sum(all_times) - idle, machine.read(pid))


def _waited_s(pid: int) -> float | None:
    """Return the seconds that a process's first thread was ready to run but had no core; None except on Linux."""
    try:  # proc(5): time on a core, time waiting for one (both ns), and times it was put on one
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def add(window: Window, before: Local | None) -> Window:
    """Return the window with `waited`, `others` and `machine` filled in, if the server runs on this machine."""
    if before is None:
        return window
    with contextlib.suppress(psutil.Error):
        after = _measure(before.pid)
        seconds = after.at - before.at
        waited = None
        if after.waited_s is not None and before.waited_s is not None:
            waited = (after.waited_s - before.waited_s) / seconds
        others = ((after.machine_s - before.machine_s) - (after.own_s - before.own_s)) / seconds
        lags = [each.lag_s for each in window.probed]
        notes = machine.notes(before.counters, after.counters, seconds, lags)
        return replace(window, waited=waited, others=max(0.0, others), machine=tuple(notes))
    return window
