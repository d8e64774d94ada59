"""CPU time, throttling, waiting and memory of containers in pods, and what their nodes do meanwhile.

In each container a shell reads the files in which the kernel counts, as often as it is asked (`SCRIPT`): the
container's own control group, of version 2 or 1, and the node's /proc. Nothing is installed in the cluster, and no
right beyond `kubectl exec` is needed. A reading takes some milliseconds of the container's CPU time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.errors import StackError
from lab.stacks.kubectl import END, Inside, Kubectl
from lab.stacks.pods import PodContainer, ServerPods
from lab.stacks.processes import beyond_spare, tree_seconds

GROUP = "/sys/fs/cgroup"
NEW = ("cpu.stat", "cpu.max", "cpu.pressure", "memory.current", "memory.stat")
OLD = (
    "cpuacct/cpuacct.usage",
    "cpu/cpu.stat",
    "cpu/cpu.cfs_quota_us",
    "cpu/cpu.cfs_period_us",
    "memory/memory.usage_in_bytes",
    "memory/memory.stat",
)
NODE = ("/proc/uptime", "/proc/stat", "/proc/pressure/cpu")
FILES = (*(f"{GROUP}/{name}" for name in (*NEW, *OLD)), *NODE)
SCRIPT = f"while read -r n; do grep -Hsv -e '^intr' -e '^softirq' {' '.join(FILES)}; echo \"{END}$n\"; done"
"""Reads all files with one process, and prints each line with its file's name before it. grep is in every image of the
chart: its health checks need it. The two counters that are left out are lines of many kilobytes."""
TICKS = 100.0
"""/proc/stat counts in hundredths of a second (USER_HZ), whatever the kernel's own clock."""
HELD = {
    "store": "store",
    "web": "web",
    "invalidator": "invalidator",
    "locust": "locust",
    "probe-containers": "probe",
}
"""The parts whose throttling is recorded, and their names there. (The warmer rests while something is measured.)"""
WAITING = ("store", "probe-containers")
"""The parts whose waiting for a core is recorded: what they do is what is measured."""

Lines = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class NodeReading:
    """A node's counters. `at`: its uptime, s. `idle_s`: of all cores. `stolen_s`: each core's loss to the hypervisor.

    `pressure_s`: seconds in which some process of the node waited for a core, None where the kernel does not tell.
    """

    at: float
    idle_s: float
    stolen_s: tuple[float, ...]
    pressure_s: float | None


@dataclass(frozen=True)
class Reading:
    """The counters of one container, and of its node at the same moment.

    `cpu_s`: CPU seconds. `held_s`: seconds in which its limit held it, added up over cores. `waited_s`: seconds in
    which some process of it was ready and got no core, None without control groups of version 2. `quota`: its limit in
    cores, None without one. `version`: that of the control groups.
    """

    cpu_s: float
    held_s: float
    waited_s: float | None
    quota: float | None
    memory_mb: float
    version: int
    node: NodeReading


@dataclass(frozen=True)
class Placed:
    """A reading, and whose it is: the pod's uid, and the name of the node."""

    uid: str
    where: str
    reading: Reading


def parse(said: Sequence[str]) -> Reading:
    """The reading in what `SCRIPT` printed. Raises `StackError` that names what is missing."""
    files: dict[str, list[str]] = {}
    for line in said:
        name, _, content = line.partition(":")
        files.setdefault(name, []).append(content)
    try:
        return _new(files) if f"{GROUP}/cpu.stat" in files else _old(files)
    except KeyError as error:
        raise StackError(f"a container here cannot read {error.args[0]}") from error
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise StackError(f"a container here reads something unexpected: {error}") from error


def _new(files: Lines) -> Reading:
    stat, memory = _table(files, "cpu.stat"), _table(files, "memory.stat")
    quota, period = files[f"{GROUP}/cpu.max"][0].split()
    return Reading(
        cpu_s=stat["usage_usec"] / 1e6,
        held_s=stat["throttled_usec"] / 1e6,
        waited_s=_pressure(files, f"{GROUP}/cpu.pressure"),
        quota=None if quota == "max" else int(quota) / int(period),
        memory_mb=_memory(files, "memory.current", memory.get("inactive_file", 0.0)),
        version=2,
        node=_node(files),
    )


def _old(files: Lines) -> Reading:
    stat, memory = _table(files, "cpu/cpu.stat"), _table(files, "memory/memory.stat")
    quota, period = (int(files[f"{GROUP}/cpu/cpu.cfs_{name}_us"][0]) for name in ("quota", "period"))
    return Reading(
        cpu_s=int(files[f"{GROUP}/cpuacct/cpuacct.usage"][0]) / 1e9,
        held_s=stat["throttled_time"] / 1e9,
        waited_s=None,
        quota=None if quota <= 0 else quota / period,
        memory_mb=_memory(files, "memory/memory.usage_in_bytes", memory.get("total_inactive_file", 0.0)),
        version=1,
        node=_node(files),
    )


def _table(files: Lines, name: str) -> dict[str, float]:
    pairs = (line.split() for line in files[f"{GROUP}/{name}"])
    return {pair[0]: float(pair[1]) for pair in pairs if len(pair) == 2}


def _memory(files: Lines, name: str, droppable: float) -> float:
    return max(0.0, int(files[f"{GROUP}/{name}"][0]) - droppable) / 1e6


def _pressure(files: Lines, name: str) -> float | None:
    """Seconds in which some process waited, as the kernel's pressure stall information counts them."""
    some = next((line for line in files.get(name, ()) if line.startswith("some ")), "")
    total = some.rpartition("total=")[2]
    return int(total) / 1e6 if total else None


def _node(files: Lines) -> NodeReading:
    """proc(5): user, nice, system, idle, iowait, irq, softirq, steal."""
    rows = [line.split() for line in files["/proc/stat"] if line.startswith("cpu")]
    cores = [row for row in rows if row[0] != "cpu"]
    return NodeReading(
        at=float(files["/proc/uptime"][0].split()[0]),
        idle_s=sum(int(row[4]) + int(row[5]) for row in cores) / TICKS,
        stolen_s=tuple(int(row[8]) / TICKS for row in cores),
        pressure_s=_pressure(files, "/proc/pressure/cpu"),
    )


class PodUsage:
    """Readings of the parts of a scene, each by a shell in its container.

    `read` may be called in any thread; all else belongs in the main one, because it starts and ends processes.
    """

    def __init__(self, kubectl: Kubectl, parts: Mapping[str, PodContainer], logs: Path) -> None:
        self._kubectl, self._logs = kubectl, logs
        self._turn = threading.Lock()
        self._of: dict[str, tuple[PodContainer, Inside]] = {}
        for part, container in parts.items():
            self.begin(part, container)

    def begin(self, part: str, container: PodContainer) -> None:
        """Begin to read a part, also one that was read in an earlier pod."""
        self.end(part)
        log = self._logs / f"reading-{part}.log"
        shell = Inside(self._kubectl, container.pod, container.service, ("sh", "-c", SCRIPT), log)
        with self._turn:
            self._of[part] = container, shell

    def end(self, part: str) -> None:
        """Read a part no more."""
        with self._turn:
            found = self._of.pop(part, None)
        if found:
            found[1].close()

    def read(self) -> dict[str, Placed]:
        """A reading of each part, all asked for at once. Raises `StackError` when one does not answer."""
        with self._turn:
            for _, shell in self._of.values():
                shell.ask()
            return {
                part: Placed(container.uid, container.node, parse(shell.answer()))
                for part, (container, shell) in self._of.items()
            }

    def ended(self) -> list[PodContainer]:
        """The containers whose shell has ended, as it does when the container ends."""
        return [container for container, shell in self._of.values() if not shell.alive()]

    def close(self) -> None:
        """Read nothing any more."""
        for part in list(self._of):
            self.end(part)


class PodMeter:
    """CPU time of the parts and of their nodes, see `lab.stacks.base.Meter`. Shares are measured by the nodes' clocks.

    Where the parts are on several nodes, the machine's figures are the worst of them; ``busy`` is that of the server's.

    - ``steal``: the share that the hypervisor took of the core that lost most.
    - ``others``: cores that other programs used, beyond those of a node that a run can do without.
    - ``pressure``: share of the time in which some process of the node waited for a core, where the kernel tells it.
    - ``throttled_PART``: seconds a second in which a container's limit held it.
    - ``waited_PART``: share of the time in which a process of a container waited for a core, where the kernel tells it.
    """

    def __init__(self, read: Callable[[], Mapping[str, Placed]]) -> None:
        self._read = read
        self._before: Mapping[str, Placed] = {}
        self._lab_s, self._at = tree_seconds(os.getpid()), time.monotonic()

    def sample(self) -> tuple[dict[str, float], dict[str, float]]:
        """Shares by part, and of the machine, since the last sample. A part whose pod was replaced meanwhile has 0."""
        now = self._read()
        pairs = {
            part: (old.reading, new.reading)
            for part, new in now.items()
            if (old := self._before.get(part)) and old.uid == new.uid
        }
        self._before = now
        shares = dict.fromkeys(now, 0.0) | {
            part: _rise(old.cpu_s, new.cpu_s) / _between(old, new) for part, (old, new) in pairs.items()
        }
        machine = {"busy": 0.0, "steal": 0.0, "others": 0.0, **_waiting(pairs)}
        for where in {now[part].where for part in pairs}:
            here = [part for part in pairs if now[part].where == where]
            first, last = pairs[here[0]]
            found = node_shares(first.node, last.node, sum(shares[part] for part in here))
            if "store" not in here:
                del found["busy"]
            machine |= {name: max(share, machine.get(name, 0.0)) for name, share in found.items()}
        return {**shares, "lab": self._lab()}, machine

    def _lab(self) -> float:
        """The lab's own share of a core, of the machine that it runs on."""
        spent, at = tree_seconds(os.getpid()), time.monotonic()
        share = (spent - self._lab_s) / max(at - self._at, 1e-6)
        self._lab_s, self._at = spent, at
        return max(0.0, share)


def _rise(old: float, new: float) -> float:
    return max(0.0, new - old)


def _between(old: Reading, new: Reading) -> float:
    """Seconds between two readings, by the node's clock, which counts in hundredths."""
    return max(new.node.at - old.node.at, 0.01)


def _waiting(pairs: Mapping[str, tuple[Reading, Reading]]) -> dict[str, float]:
    """How long each part was held by its limit, and how long the measured ones waited for a core, as shares."""
    found = {}
    for part, (old, new) in pairs.items():
        if name := HELD.get(part):
            found[f"throttled_{name}"] = _rise(old.held_s, new.held_s) / _between(old, new)
            if part in WAITING and old.waited_s is not None and new.waited_s is not None:
                found[f"waited_{name}"] = _rise(old.waited_s, new.waited_s) / _between(old, new)
    return found


def node_shares(first: NodeReading, last: NodeReading, used: float) -> dict[str, float]:
    """What a node did between two readings, of which the run's own parts `used` so many cores: see `PodMeter`."""
    seconds, cores = max(last.at - first.at, 0.01), len(last.stolen_s)
    stolen = [_rise(old, new) for old, new in zip(first.stolen_s, last.stolen_s, strict=False)]
    # Busy is what was not idle: Linux measures idle time, and only samples what a core was busy with.
    busy = max(0.0, cores - (last.idle_s - first.idle_s + sum(stolen)) / seconds)
    found = {
        "busy": busy,
        "steal": max(stolen, default=0.0) / seconds,
        "others": beyond_spare(busy - used, cores),
    }
    if first.pressure_s is not None and last.pressure_s is not None:
        found["pressure"] = _rise(first.pressure_s, last.pressure_s) / seconds
    return found


def require_metrics(scene: ServerPods) -> dict[str, Reading]:
    """A reading of each part that is judged. Raises `StackError` where a container cannot read what validity needs."""
    parts = {part: place for part, place in scene.parts().items() if part in HELD}
    with TemporaryDirectory(prefix="latency-lab-") as folder:
        usage = PodUsage(scene.kubectl, parts, Path(folder))
        try:
            return {part: placed.reading for part, placed in usage.read().items()}
        except StackError as error:
            raise StackError(
                f"this cluster does not show what a run's validity is judged by: {str(error).rstrip('.')}."
            ) from error
        finally:
            usage.close()
