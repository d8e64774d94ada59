"""Limits processes to a share of a core by a control group of the kernel, and counts how often they were throttled.

The kernel gives the group a quota in each period of 5 ms: with its usual period of 100 ms a server would stand still
for up to that long, and p99 would measure the quota. A server's own clock counts the time in which it was throttled as
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
GROUPS = Path("/sys/fs/cgroup")
ENDING_S = 1.0
"""A group can be removed a moment after its last process."""


class Quota:
    """A control group whose processes share a limit of CPU time. Raises `StackError` if none can be made.

    `share`: cores, at most 1. `label` distinguishes groups of one process.
    """

    def __init__(self, share: float, label: str = "") -> None:
        old = GROUPS / "cpu"  # control groups of version 1 have a tree for each resource
        name = f"latency-lab-{os.getpid()}" + (f"-{label}" if label else "")
        self._folder = (old if old.is_dir() else GROUPS) / name
        quota = round(share * PERIOD_US)
        with suppress(OSError):  # left by a killed process of the same id
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
        """Limit a process, with all of its threads. Does nothing if it has ended."""
        with suppress(ProcessLookupError):
            (self._folder / "cgroup.procs").write_text(str(pid))

    def periods(self) -> tuple[int, int]:
        """Return the number of periods with work, and of those in which the processes were throttled."""
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
    """Return the share of a core that a process may use, by quotas of control groups to which the lab does not belong.

    At most 1: a server has one thread that executes. Also 1 without a readable quota.
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
    """Return the folders of the control groups that limit a process's CPU time; empty if they cannot be read."""
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
    """Return the reason why no process can be limited to that share here; empty if one can. Tries an empty group."""
    try:
        Quota(share, "trial").close()
    except StackError as error:
        return str(error)
    return ""
