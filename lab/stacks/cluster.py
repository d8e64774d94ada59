"""A cluster of the lab's own: nodes on this machine that share the slots, each limited to a share of a core.

The limit keeps several nodes from getting more of the machine than one, and makes the end of a node's share its knee,
whatever the number of cores. All figures count a node's share as the whole: a busy share of 1 is the whole limit. So
formulas and calibration do not depend on it: a node limited to a quarter is a server on a machine four times as slow.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from statistics import fmean

from lab.errors import StackError
from lab.scenarios.model import ProbeSpec, Scenario
from lab.server.processes import Child, free_port, stop_all
from lab.server.server_stats import ServerObserver, Snapshot
from lab.server.servers import Server
from lab.stacks.native import READY_S, NativeStack, ProcessMeter
from lab.stacks.quota import Quota
from loadtest.cluster import SLOTS, tag_in

NODE_TIMEOUT_MS = "60000"
"""So long that a busy node is not taken for dead: nodes are busy on purpose, and have no replicas."""
FIRST = "store"
"""The name of the first node's process in a run's records; the others are store-2, store-3."""


def slots_of(number: int, count: int) -> tuple[int, int]:
    """Return the first and last slot of a node (from 0) among `count` nodes."""
    return SLOTS * number // count, SLOTS * (number + 1) // count - 1


class Nodes:
    """The nodes' processes, quotas and observers. `start` may be called again after the processes were stopped."""

    def __init__(self, scenario: Scenario, kind: Server, folder: Path, first_port: int) -> None:
        self._scenario, self._kind, self._folder = scenario, kind, folder
        most = max(phase.shards for phase in scenario.phases)
        self._ports = [first_port, *(free_port() for _ in range(most - 1))]
        self._quotas: list[Quota] = []
        self._observers = [
            ServerObserver(self.url(number), scenario.timeout_s, share=lambda: scenario.node_share)
            for number in range(most)
        ]
        self.children: list[Child] = []

    @property
    def observers(self) -> list[ServerObserver]:
        """The observers of the nodes that run."""
        return self._observers[: len(self.children)]

    def url(self, number: int) -> str:
        """Return the address of a node, from 0."""
        return f"redis://127.0.0.1:{self._ports[number]}/0"

    def start(self, count: int) -> None:
        """Start `count` empty nodes as one cluster. Raises `StackError` if one cannot be limited, or is not ready."""
        while len(self._quotas) < len(self._ports):
            self._quotas.append(Quota(self._scenario.node_share, str(len(self._quotas) + 1)))
        buses = [free_port() for _ in range(count)]
        self.children = []
        for number in range(count):
            child = Child(
                FIRST if number == 0 else f"{FIRST}-{number + 1}",
                self._command(number, buses[number]),
                self._folder / f"server-{number + 1}.log",
            )
            self.children.append(child)
            self._quotas[number].add(child.pid)
        for number, observer in enumerate(self.observers):
            observer.wait(READY_S, self.check)
            observer.take_slots(number + 1, *slots_of(number, count))
        for one, other in combinations(range(count), 2):
            self._observers[one].meet(self._ports[other], buses[other])
        for observer in self.observers:
            observer.wait_for_cluster(count, READY_S, self.check)

    def _command(self, number: int, bus: int) -> list[str]:
        notes = self._folder / f"nodes-{number + 1}.conf"
        notes.unlink(missing_ok=True)
        settings = {
            **self._scenario.server_settings,
            "cluster-port": str(bus),
            "cluster-config-file": notes.name,
            "cluster-announce-ip": "127.0.0.1",
            "cluster-node-timeout": NODE_TIMEOUT_MS,
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [*self._kind.command(self._ports[number], str(self._folder)), *words]

    def check(self) -> None:
        """Raise `StackError` if a node has ended."""
        for child in self.children:
            child.check()

    def counters(self, number: int) -> dict[str, float]:
        """Return a node's number of periods with work, and of those in which it was throttled, since its start."""
        busy, throttled = self._quotas[number].periods()
        return {f"node_{number + 1}_periods": float(busy), f"node_{number + 1}_held": float(throttled)}

    def close(self) -> None:
        """Remove the quotas, after the processes have ended."""
        for quota in self._quotas:
            quota.close()
        self._quotas.clear()
        for observer in self._observers:
            observer.close()


class ClusterObserver(ServerObserver):
    """The nodes as one server: counts are those of all nodes together, and the busy share is the nodes' mean.

    `Snapshot.figures` has the counters of each node, with N from 1: ``node_N_busy_s`` (seconds of its whole share),
    ``node_N_scans`` and ``node_N_scan_us`` (calls and execution time of SCAN), ``node_N_periods`` and ``node_N_held``.
    """

    def __init__(self, nodes: Nodes, timeout_s: float) -> None:
        super().__init__(nodes.url(0), timeout_s)
        self._nodes = nodes
        self._at_once = ThreadPoolExecutor(thread_name_prefix="node")

    def snapshot(self) -> Snapshot:
        """Return all counters. The nodes are asked in parallel, because a busy one answers late.

        Raises `StackError` if one does not answer, and while the cluster restarts.
        """
        if not self._nodes.observers:
            raise StackError("the cluster is being started.")
        found = list(self._at_once.map(ServerObserver.snapshot, self._nodes.observers))
        commands: dict[str, tuple[float, float]] = {}
        for each in found:
            for name, (calls, usec) in each.commands.items():
                before = commands.get(name, (0.0, 0.0))
                commands[name] = (before[0] + calls, before[1] + usec)
        busy = [each.main_thread_s for each in found if each.main_thread_s is not None]
        active = [each.active_s for each in found if each.active_s is not None]
        return Snapshot(
            at=fmean(each.at for each in found),
            keys=sum(each.keys for each in found),
            commands=commands,
            main_thread_s=fmean(busy) if len(busy) == len(found) else None,
            active_s=fmean(active) if len(active) == len(found) else None,
            memory_mb=sum(each.memory_mb for each in found),
            clients=sum(each.clients for each in found),
            run_id="/".join(each.run_id for each in found),
            figures={
                name: value
                for number, each in enumerate(found)
                for name, value in self._node_figures(number, each).items()
            },
        )

    def _node_figures(self, number: int, seen: Snapshot) -> dict[str, float]:
        calls, usec = seen.commands.get("SCAN", (0.0, 0.0))
        name = f"node_{number + 1}"
        return {
            f"{name}_busy_s": seen.main_thread_s or 0.0,
            f"{name}_scans": calls,
            f"{name}_scan_us": usec,
            **self._nodes.counters(number),
        }

    def keys_everywhere(self) -> int:
        """Return the number of keys of all nodes."""
        return sum(node.keys_everywhere() for node in self._nodes.observers)

    def configure_slowlog(self, threshold_us: int, length: int = 512) -> None:
        """Set the slow log's threshold and length on every node."""
        for node in self._nodes.observers:
            node.configure_slowlog(threshold_us, length)

    def slowlog(self, newest: int = 512) -> list[tuple[str, float, str, int]]:
        """Return entries of all nodes; `newest` at most of each."""
        return [
            (f"{number}/{identity}", at, command, duration)
            for number, node in enumerate(self._nodes.observers, start=1)
            for identity, at, command, duration in node.slowlog(newest)
        ]

    def close(self) -> None:
        """Close the connection, and end the threads."""
        self._at_once.shutdown(wait=False)
        super().close()


class ClusterStack(NativeStack):
    """The native stack with a cluster in place of the one server.

    `empty` may change the number of nodes; the first one keeps its address.
    """

    def __init__(
        self, scenario: Scenario, kind: Server, folder: Path, seed: int, port: int | None = None
    ) -> None:
        super().__init__(scenario, kind, folder, seed, port=port)
        self.server.close()
        self._shards = scenario.phases[0].shards
        self._nodes = Nodes(scenario, kind, folder / "logs", self.server_port)
        self.server = ClusterObserver(self._nodes, scenario.timeout_s)

    def _start_server(self) -> None:
        try:
            self._nodes.start(self._shards)
        finally:
            self._children[:0] = self._nodes.children
            self._server_child = next(iter(self._nodes.children), None)

    def empty(self, shards: int = 1) -> None:
        """Restart the cluster, empty and with `shards` nodes."""
        self._children = [child for child in self._children if child not in self._nodes.children]
        stop_all(self._nodes.children)
        self._nodes.children, self._shards = [], shards
        self._start_server()
        self.server.configure_slowlog(self._scenario.slowlog_threshold_us)

    def _probed(self, spec: ProbeSpec) -> tuple[str, str]:
        """Return a node's address and the hash tag of a slot that this node always has while it is in the cluster.

        A probe may begin before its node does: it then retries.
        """
        number, most = spec.node - 1, max(phase.shards for phase in self._scenario.phases)
        if number >= most:
            raise StackError(f"probe {spec.name} asks node {spec.node} of {most}.")
        return self._nodes.url(number), tag_in(*slots_of(number, most))

    def meter(self) -> ProcessMeter:
        """Return a new meter, in which all nodes together are ``store``."""
        return ProcessMeter(self._seconds)

    def _seconds(self) -> dict[str, float]:
        spent: dict[str, float] = {}
        for name, child in self._parts().items():
            part = FIRST if child in self._nodes.children else name
            spent[part] = spent.get(part, 0.0) + child.cpu_seconds()
        return spent

    def memory_mb(self) -> dict[str, float]:
        """Return resident memory of each process, in which all nodes together are ``store``."""
        found = super().memory_mb()
        return {
            **{name: value for name, value in found.items() if not name.startswith(FIRST)},
            FIRST: sum(value for name, value in found.items() if name.startswith(FIRST)),
        }

    def down(self) -> None:
        """End every process, and remove the quotas."""
        super().down()
        self._nodes.close()
