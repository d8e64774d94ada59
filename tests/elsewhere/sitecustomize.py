"""Makes Linux look like another system, as far as possible. Python runs this first if the folder is on its path.

It takes away epoll, the affinity of processes, and what the lab reads in /proc and /sys/fs/cgroup. `ELSEWHERE_SELECTOR`
names the class of `selectors` to use: "PollSelector" (which nearly every system has) or "SelectSelector" (which all
have). psutil still reads /proc: on another system it asks the kernel by other means.
"""

from __future__ import annotations

import io
import os
import select
import selectors
from typing import Any

import psutil

if hasattr(select, "epoll"):
    del select.epoll
for name in ("sched_setaffinity", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
if hasattr(psutil.Process, "cpu_affinity"):
    del psutil.Process.cpu_affinity
selectors.DefaultSelector = getattr(  # type: ignore[misc] # that is the point
    selectors, os.environ.get("ELSEWHERE_SELECTOR", "PollSelector")
)

_open = io.open


def _open_elsewhere(file: Any, *arguments: Any, **named: Any) -> Any:
    if isinstance(file, str | os.PathLike) and os.fspath(file).startswith(("/proc/", "/sys/fs/cgroup")):
        raise FileNotFoundError(2, "No such file or directory", os.fspath(file))
    return _open(file, *arguments, **named)


io.open = _open_elsewhere  # pathlib opens by it; psutil does not
