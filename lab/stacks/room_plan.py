"""What a room of groups needs of a cluster: its pods, their requests, and the nodes that they are packed onto.

Everything comes from the chart's values: what each container asks for is in `values.yaml`, and which containers share a
pod is written here once; tests/deploy holds it against the pods that Helm renders. CPU is in thousandths of a core and
memory in MiB, as in `values.yaml`. Nothing here talks to a cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab import ROOT
from lab.errors import UsageError

CHART = ROOT / "deploy" / "helm" / "redis-latency-lab"
ROOM = "latency-lab-room"
"""The namespace of what the groups share: Prometheus, Tempo, Grafana."""
GROUPS_MOST = 200
HOURS = 3
"""A long workshop."""
NODE_SIZES = (4, 8, 16, 32)
"""Cores of the nodes that are announced."""
GIB_PER_CORE = 4
KEPT = 0.10
"""Share of a node's cores and memory that is not for the room: kubelet, system, pods that run on every node."""
PODS_PER_NODE = 110
"""What a kubelet takes if nobody says otherwise."""
PER_GROUP: dict[str, dict[str, int]] = {
    "prometheus": {"cpu": 25, "memory": 72, "disk": 128},
    "tempo": {"cpu": 20, "memory": 32, "disk": 64},
    "grafana": {"cpu": 5, "memory": 8},
}
"""What the shared pods get for each group after the first. It is an estimate, which was not measured on a cluster: the
recorded scene in workshop/cold-case has 4,200 series that a group would have, Prometheus may keep 16 KiB for each, and
it scrapes them every two seconds. In three hours these are 23 million samples, for each of which its log and its blocks
have six bytes on the disk. What Tempo and Grafana get is a guess."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Pod:
    """What the scheduler keeps free for a pod, and the labels that its node must have."""

    name: str
    cpu: int
    memory: int
    selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Node:
    """What a node has for pods, and how much of it others have taken."""

    name: str
    cpu: int
    memory: int
    pods: int = PODS_PER_NODE
    taken_cpu: int = 0
    taken_memory: int = 0
    taken_pods: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


# -- values -----------------------------------------------------------------------------------------------------------


def merged(values: Values, more: Values) -> dict[str, Any]:
    """Values with others on top, as Helm merges them: maps are merged, all else is replaced, null takes a key away."""
    found: dict[str, Any] = dict(values)
    for key, value in more.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = merged(found[key], value)
        else:
            found[key] = copy.deepcopy(value)
    return found


def read(path: Path) -> dict[str, Any]:
    """A file of values. Raises `UsageError` in one line when it cannot be read, or is no map."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}.") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no file of values: it must have lines such as `servers: [redis]`.")
    return found


def chart_values(files: Iterable[Path] = ()) -> dict[str, Any]:
    """The chart's own values with these files on top. Raises `UsageError` as `read` does."""
    found = read(CHART / "values.yaml")
    for path in files:
        found = merged(found, read(path))
    return found


# -- pods -------------------------------------------------------------------------------------------------------------


def names(groups: int) -> list[str]:
    """The names of the groups, which are their namespaces."""
    return [f"team-{number}" for number in range(1, groups + 1)]


def group_pods(values: Values) -> list[Pod]:
    """The pods of a group's release, in the order in which Helm makes them: servers and storefronts come last."""
    servers, measured = values["servers"], values["nodeSelector"]
    found = [_pod(values, "control", "control")]
    for server in servers:
        found.append(_pod(values, f"locust-{server}", "locust"))
        found.append(_pod(values, f"probe-{server}", "probe", selector=measured))
    if set(servers) - {"dragonfly"}:  # Dragonfly needs nobody to translate for Prometheus
        found.append(_pod(values, "redis-exporter", "redisExporter"))
    found += [_pod(values, server, "server", selector=measured) for server in servers]
    return found + [
        _pod(values, f"storefront-{server}", "web", "invalidator", "warmer") for server in servers
    ]


def room_resources(values: Values, groups: int) -> dict[str, dict[str, int]]:
    """`resources` of the room's release: the chart's, and `PER_GROUP` for each group after the first."""
    found = {}
    for name, more in PER_GROUP.items():
        needs = values["resources"][name]
        scaled = {what: needs[what] + each * (groups - 1) for what, each in more.items()}
        found[name] = {**scaled, "cpuLimit": max(needs["cpuLimit"], 2 * scaled["cpu"])}
    return found


def room_pods(values: Values, groups: int) -> list[Pod]:
    """The pods of the room's own release."""
    scaled = {"resources": room_resources(values, groups)}
    return [_pod(scaled, name, name) for name in PER_GROUP]


def _pod(values: Values, name: str, *kinds: str, selector: Mapping[str, str] | None = None) -> Pod:
    needs = [values["resources"][kind] for kind in kinds]
    cpu, memory = (sum(each[what] for each in needs) for what in ("cpu", "memory"))
    return Pod(name, cpu, memory, selector or {})


def total(pods: Iterable[Pod]) -> tuple[float, float]:
    """Cores and GiB of all these pods together."""
    found = list(pods)
    return sum(pod.cpu for pod in found) / 1000, sum(pod.memory for pod in found) / 1024


def needed(values: Values, groups: int) -> tuple[float, float]:
    """Cores and GiB of the room and all its groups."""
    return total([*room_pods(values, groups), *group_pods(values) * groups])


# -- nodes ------------------------------------------------------------------------------------------------------------


def node_of(cores: int) -> Node:
    """An empty node of so many cores, less what is kept for the system. See `KEPT` and `GIB_PER_CORE`."""
    share = 1 - KEPT
    return Node(f"{cores} cores", int(1000 * cores * share), int(1024 * GIB_PER_CORE * cores * share))


def groups_that_fit(values: Values, groups: int, nodes: Sequence[Node]) -> int:
    """How many of so many groups find room on these nodes, together with the room's own release; 0 if none does.

    A pod goes where the scheduler would put it: onto the emptiest of the nodes that have its labels and room for all of
    it. Cores that are left over on several nodes are no room for a server.
    """
    while groups > 0:
        placed = _placed(values, groups, nodes)
        if placed == groups:
            return groups
        groups = placed  # a smaller room, which is tried again: what the groups share is smaller, too
    return 0


def _placed(values: Values, groups: int, nodes: Sequence[Node]) -> int:
    left = [
        [node.cpu - node.taken_cpu, node.memory - node.taken_memory, node.pods - node.taken_pods]
        for node in nodes
    ]
    group = group_pods(values)
    for number, release in enumerate([room_pods(values, groups), *[group] * groups]):
        for pod in release:
            if not _place(pod, nodes, left):
                return max(0, number - 1)
    return groups


def _place(pod: Pod, nodes: Sequence[Node], left: list[list[int]]) -> bool:
    """Put a pod onto the emptiest node that takes it, as the scheduler does. False if none does."""
    best, most = None, -1.0
    for node, has in zip(nodes, left, strict=True):
        if has[0] < pod.cpu or has[1] < pod.memory or has[2] < 1:
            continue
        if pod.selector and not pod.selector.items() <= node.labels.items():
            continue
        share = has[0] / node.cpu + has[1] / node.memory
        if share > most:
            best, most = has, share
    if best is None:
        return False
    best[0] -= pod.cpu
    best[1] -= pod.memory
    best[2] -= 1
    return True


def nodes_needed(values: Values, groups: int, cores: int) -> int | None:
    """How many nodes of so many cores take the room and all its groups; None if some pod is larger than such a node.

    With one node less they do not fit.
    """
    node = node_of(cores)
    pods = [*room_pods(values, groups), *group_pods(values)]
    if any(pod.cpu > node.cpu or pod.memory > node.memory for pod in pods):
        return None
    too_few, enough = 0, 1
    while _placed(values, groups, [node] * enough) < groups:
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if _placed(values, groups, [node] * middle) < groups:
            too_few = middle
        else:
            enough = middle
    return enough
