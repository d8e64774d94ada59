"""Holds processes to a share of a core by a control group of the kernel, and counts how often they were held.

The kernel gives the group a quota in each period of 5 ms: with its usual period of 100 ms a server would stand still
for up to that long, and p99 would measure the quota. A server's own clock counts the time in which it was held as
execution, so its calls take longer, as on a slower machine; its CPU time does not. So the lab counts the CPU time of
its own server as a part of what the server may use (`allowed`).

Linux only, with the right to make control groups (root).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from lab.errors import StackError

PERIOD_US = 5_000
SMALLEST = 0.2
"""The smallest share: the kernel takes no quota below 1 ms."""
GROUPS = Path("/sys/fs/cgroup")
ENDING_S = 1.0
"""A group can be removed a moment after its last process."""


class Quota:
    """A control group whose processes get that share of a core together. Raises `StackError` where none can be made.

    `label` tells groups of one process apart.
    """

    def __init__(self, share: float, label: str = "") -> None:
        old = GROUPS / "cpu"  # control groups of version 1 have a tree for each resource
        name = f"latency-lab-{os.getpid()}" + (f"-{label}" if label else "")
        self._folder = (old if old.is_dir() else GROUPS) / name
        quota = round(share * PERIOD_US)
        with suppress(OSError):  # of a process of that id that was killed
            self._folder.rmdir()
        try:
            self._folder.mkdir()
            if old.is_dir():
                (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        except OSError as error:
            self.close()
            raise StackError(
                f"no CPU quota can be set here ({error.strerror}). It needs Linux and root."
            ) from error

    def add(self, pid: int) -> None:
        """Hold a process, with all of its threads. Nothing is done if it has ended."""
        with suppress(ProcessLookupError):
            (self._folder / "cgroup.procs").write_text(str(pid))

    def periods(self) -> tuple[int, int]:
        """In how many periods there was something to do, and in how many of those the processes were held."""
        lines = (self._folder / "cpu.stat").read_text().splitlines()
        found = {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
        return found.get("nr_periods", 0), found.get("nr_throttled", 0)

    def close(self) -> None:
        """Remove the group; processes in it must have ended."""
        end = time.monotonic() + ENDING_S
        while self._folder.is_dir():
            with suppress(OSError):
                self._folder.rmdir()
                return
            if time.monotonic() > end:
                return
            time.sleep(0.02)


def allowed(pid: int) -> float:
    """The share of a core that a process may use, by the quotas of the control groups that the lab is not in itself.

    At most 1: a server has one thread that executes. Also 1 where there is no quota, or none that can be read.
    """
    groups, own = _groups(pid), _groups(os.getpid())
    shares = [1.0]
    for folder in groups - own:
        with suppress(OSError, ValueError, ZeroDivisionError):
            if (folder / "cpu.max").is_file():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if quota.strip() not in ("max", "-1"):
                shares.append(int(quota) / int(period))
    return min(shares)


def _groups(pid: int) -> set[Path]:
    """The folders of the control groups that limit a process's CPU time; empty where they cannot be told."""
    found: set[Path] = set()
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "cpu" in controllers.split(",") or not controllers:
                root = GROUPS / "cpu" if controllers else GROUPS
                place = root / path.lstrip("/")
                found |= {
                    each for each in (place, *place.parents) if each.is_relative_to(root) and each != root
                }
    return found


def why_none(share: float) -> str:
    """Why no process can be held to that share here; empty if it can. Tries it with a group of no process."""
    try:
        Quota(share, "trial").close()
    except StackError as error:
        return str(error)
    return ""
