"""CPU seconds and memory of containers, from the kernel's cgroups, from their processes, or else from `docker stats`.

Cgroups cost nothing to read and are exact. An engine without root on cgroups v1 keeps all containers in one cgroup;
there the processes of each container are summed up. Both are out of sight where the engine runs in a virtual machine
(Docker Desktop); there a thread asks `docker stats`, and its percentages are summed up over time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil

from lab.errors import StackError
from lab.stacks.asking import in_bytes
from lab.stacks.docker import Container, Docker
from lab.stacks.processes import CpuMeter

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
STATS_EVERY_S = 2.0


class Usage(Protocol):
    """CPU seconds and memory by part."""

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        ...

    def memory_mb(self) -> dict[str, float]:
        """Memory in use by part, in MB, without cached files that the kernel could drop."""
        ...

    def close(self) -> None:
        """Stop measuring."""
        ...


class CgroupUsage:
    """Reads the containers' cgroups (version 2 or 1). `by_part` names the containers that make up a part."""

    def __init__(
        self, by_part: Mapping[str, list[Container]], proc: Path = PROC, cgroups: Path = CGROUPS
    ) -> None:
        self._folders = {
            part: [_folders(container, proc, cgroups) for container in containers]
            for part, containers in by_part.items()
        }

    def cpu_seconds(self) -> dict[str, float]:
        """See `Usage`."""
        return {part: sum(_or_none(_cpu, cpu) for cpu, _ in found) for part, found in self._folders.items()}

    def memory_mb(self) -> dict[str, float]:
        """See `Usage`."""
        return {
            part: sum(_or_none(_memory, memory) for _, memory in found) / 1e6
            for part, found in self._folders.items()
        }

    def close(self) -> None:
        """Do nothing: no file is held open."""


def _folders(container: Container, proc: Path, cgroups: Path) -> tuple[Path, Path]:
    """The cgroup folders of a container, for CPU and for memory. Raises `OSError` when they are out of sight.

    Their paths contain the container's id. If not, the container's `pid` is of another machine, and means nothing here.
    """
    paths: dict[str, str] = {}
    for line in (proc / str(container.pid) / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    if "cpuacct" in paths:  # version 1: one hierarchy for each controller
        cpu, memory = cgroups / "cpuacct" / paths["cpuacct"][1:], cgroups / "memory" / paths["memory"][1:]
    else:
        cpu = memory = cgroups / paths[""][1:]
    _cpu(cpu)
    if container.id not in str(cpu):
        raise FileNotFoundError(f"{cpu} is not about {container.service}")
    return cpu, memory


def _or_none(read: Callable[[Path], float], folder: Path) -> float:
    """What `read` finds in a folder; 0 while the folder is gone, because the container is being restarted."""
    try:
        return read(folder)
    except OSError:
        return 0.0


def _cpu(folder: Path) -> float:
    if (folder / "cpu.stat").exists() and (found := _stat(folder / "cpu.stat").get("usage_usec")) is not None:
        return found / 1e6
    return int((folder / "cpuacct.usage").read_text()) / 1e9


def _memory(folder: Path) -> float:
    stat = _stat(folder / "memory.stat")
    for name, inactive in (
        ("memory.current", "inactive_file"),
        ("memory.usage_in_bytes", "total_inactive_file"),
    ):
        if (folder / name).exists():
            return max(0.0, int((folder / name).read_text()) - stat.get(inactive, 0.0))
    return 0.0


def _stat(file: Path) -> dict[str, float]:
    pairs = (line.split() for line in file.read_text().splitlines()) if file.exists() else ()
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}


class ProcessUsage:
    """Sums up the processes of the containers, which it knows by their namespace of process ids.

    Memory that processes share counts for each of them. A container that is started again has another namespace, and
    counts as nothing from then on. Raises `OSError` where the containers' processes are out of
    sight: their `pid` then is of another machine, or this user may not look.
    """

    def __init__(self, by_part: Mapping[str, list[Container]], proc: Path = PROC) -> None:
        self._proc = proc
        self._parts = list(by_part)
        self._part_of = {
            self._namespace(container.pid): part for part, found in by_part.items() for container in found
        }
        if self._namespace(os.getpid()) in self._part_of:
            raise FileNotFoundError("a container's first process has no process ids of its own here")

    def _namespace(self, pid: int) -> str:
        return str((self._proc / str(pid) / "ns" / "pid").readlink())

    def _sum(self, wanted: str, read: Callable[[Any], float]) -> dict[str, float]:
        sums = dict.fromkeys(self._parts, 0.0)
        for process in psutil.process_iter([wanted]):
            try:
                part = self._part_of.get(self._namespace(process.pid))
            except OSError:  # it has just ended, or is somebody else's
                continue
            if part is not None and process.info[wanted] is not None:
                sums[part] += read(process.info[wanted])
        return sums

    def cpu_seconds(self) -> dict[str, float]:
        """See `Usage`. Processes that ended count with those that started them."""
        return self._sum(
            "cpu_times",
            lambda times: times.user + times.system + times.children_user + times.children_system,
        )

    def memory_mb(self) -> dict[str, float]:
        """See `Usage`."""
        return self._sum("memory_info", lambda memory: memory.rss / 1e6)

    def close(self) -> None:
        """Do nothing: no file is held open."""


class StatsUsage:
    """Asks `docker stats` in a thread until it is closed."""

    def __init__(
        self, docker: Docker, by_part: Mapping[str, list[Container]], every_s: float = STATS_EVERY_S
    ) -> None:
        self._docker = docker
        self._parts = {container.id: part for part, found in by_part.items() for container in found}
        self._every_s = every_s
        self._seconds = dict.fromkeys(by_part, 0.0)
        self._memory = dict.fromkeys(by_part, 0.0)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        threading.Thread(target=self._run, name="docker-stats", daemon=True).start()

    def cpu_seconds(self) -> dict[str, float]:
        """See `Usage`."""
        with self._lock:
            return dict(self._seconds)

    def memory_mb(self) -> dict[str, float]:
        """See `Usage`."""
        with self._lock:
            return dict(self._memory)

    def close(self) -> None:
        """End the thread once the `docker stats` under way has answered."""
        self._stop.set()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.is_set():
            try:
                text = self._docker.ask(
                    "stats", "--no-stream", "--no-trunc", "--format", "{{json .}}", *self._parts
                )
                shares, memory = read_stats(text, self._parts)
            except StackError:  # a container is being restarted: the next answer covers this time too
                self._stop.wait(self._every_s)
                continue
            now = time.monotonic()
            with self._lock:
                self._memory.update(memory)
                for part, share in shares.items():
                    self._seconds[part] += share * (now - last)
            last = now
            self._stop.wait(self._every_s)


def read_stats(text: str, parts: Mapping[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    """Shares of a core and megabytes by part, from what `docker stats` prints as JSON."""
    shares: dict[str, float] = {}
    memory: dict[str, float] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            whole = next((part for full, part in parts.items() if full.startswith(row["ID"])), None)
            if whole is None:
                continue
            shares[whole] = shares.get(whole, 0.0) + float(row["CPUPerc"].rstrip("%")) / 100
            memory[whole] = memory.get(whole, 0.0) + in_bytes(row["MemUsage"].partition("/")[0]) / 1e6
        except (ValueError, KeyError, AttributeError) as error:
            raise StackError(f"docker stats says something unexpected: {error!r}") from error
    return shares, memory


def usage_of(docker: Docker, by_part: Mapping[str, list[Container]]) -> Usage:
    """`CgroupUsage` where the cgroups can be read, else `ProcessUsage` where the processes can, else `StatsUsage`."""
    for by in (CgroupUsage, ProcessUsage):
        try:
            return by(by_part)
        except (OSError, ValueError, KeyError):
            continue
    return StatsUsage(docker, by_part)


class ContainerMeter:
    """CPU time of containers, see `lab.stacks.base.Meter`."""

    def __init__(self, seconds: Callable[[], dict[str, float]]) -> None:
        self._seconds = seconds
        self._meter = CpuMeter()

    def sample(self) -> tuple[dict[str, float], dict[str, float]]:
        """Shares by part and of the machine since the last sample."""
        return self._meter.shares(self._seconds())
