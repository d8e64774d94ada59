"""A core of its own for the server, where loads use all the CPU that they get."""

from __future__ import annotations

import os


class OwnCore:
    """Keeps this process and all that it starts off one core, which `give` hands to the server and the probes.

    On two cores two busy loads would otherwise hold up the server that they measure. Needs Linux and two cores;
    elsewhere, and unless it is `wanted`, nothing changes.
    """

    def __init__(self, wanted: bool) -> None:
        self._cores: set[int] = (
            os.sched_getaffinity(0) if wanted and hasattr(os, "sched_setaffinity") else set()
        )
        if len(self._cores) < 2:
            self._cores = set()

    def keep(self) -> None:
        """Leave the core; processes and threads started from now on inherit this."""
        if self._cores:
            os.sched_setaffinity(0, self._cores - {max(self._cores)})

    def give(self, pid: int) -> None:
        """Let the main thread of a process run on the core, and nowhere else."""
        if self._cores:
            os.sched_setaffinity(pid, {max(self._cores)})

    def release(self) -> None:
        """Use all cores again."""
        if self._cores:
            os.sched_setaffinity(0, self._cores)
