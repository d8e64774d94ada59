"""A room on a cluster: what its pods ask for, the nodes that they need, and the cost, from the chart's values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from docs.pages.fromruns import table
from lab.stacks import room_plan

GROUPS = (10, 20, 40)
SERVERS: tuple[tuple[str, ...], ...] = (("dragonfly", "redis"), ("redis",))
"""The servers of a group for which nodes are counted: as the chart comes, and half of it."""


def pod_list(_: Path) -> str:
    """Each pod of a group and of a room of the most groups, with what it asks for, and the sums."""
    values, most = room_plan.chart_values(), GROUPS[-1]
    group, room = room_plan.group_pods(values), room_plan.room_pods(values, most)
    rows = [["a group", *_asks(pod)] for pod in sorted(group, key=lambda pod: (-pod.cpu, pod.name))]
    rows.append(["**a group**", "all its pods", *_sum(group)])
    rows += [[f"the room, for {most} groups", *_asks(pod)] for pod in room]
    rows.append([f"**the room, for {most} groups**", "all its pods", *_sum(room)])
    return table(["whose", "pod", "cores", "memory, GiB"], rows, [2, 3])


def _asks(pod: room_plan.Pod) -> list[str]:
    return [f"`{pod.name}`", f"{pod.cpu / 1000:.2f}", f"{pod.memory / 1024:.2f}"]


def _sum(pods: list[room_plan.Pod]) -> list[str]:
    cores, gib = room_plan.total(pods)
    return [f"{cores:.2f}", f"{gib:.2f}"]


@cache
def needed_nodes(servers: tuple[str, ...], groups: int, cores: int) -> int | None:
    """See `room_plan.nodes_needed`; counted once for both tables."""
    return room_plan.nodes_needed(_values(servers), groups, cores)


def _values(servers: tuple[str, ...]) -> dict[str, Any]:
    return room_plan.merged(room_plan.chart_values(), {"servers": list(servers)})


def _rows(cell: Callable[[int, int], str]) -> list[list[str]]:
    """A row for each kind of group and number of groups; `cell` makes a cell of nodes and cores of a node."""
    rows = []
    for servers in SERVERS:
        for groups in GROUPS:
            needs = [f"{each:.0f}" for each in room_plan.needed(_values(servers), groups)]
            counts = [(needed_nodes(servers, groups, cores), cores) for cores in room_plan.NODE_SIZES]
            cells = [cell(count, cores) if count else "too small" for count, cores in counts]
            rows.append([str(groups), ", ".join(servers), *needs, *cells])
    return rows


def _heads(what: str) -> list[str]:
    sizes = [f"{what} of {cores} cores" for cores in room_plan.NODE_SIZES]
    return ["groups", "servers of each", "cores", "memory, GiB", *sizes]


FIGURES = range(2, 4 + len(room_plan.NODE_SIZES))


def node_list(_: Path) -> str:
    """How many nodes of each size a room needs."""
    kept = (
        f"A node of the table has {room_plan.GIB_PER_CORE} GiB for each core, takes {room_plan.PODS_PER_NODE} pods, "
        f"and keeps {room_plan.KEPT:.0%} of its cores and memory for the system."
    )
    return f"{table(_heads('nodes'), _rows(lambda count, _: str(count)), list(FIGURES))}\n\n{kept}"


def cost_list(_: Path) -> str:
    """What these nodes cost for a workshop, in core-hours."""
    heads = _heads(f"{room_plan.HOURS} h on nodes")
    rows = _rows(lambda count, cores: f"{count * cores * room_plan.HOURS:,}")
    return table(heads, rows, list(FIGURES))


LISTS: dict[str, Callable[[Path], str]] = {
    "room pods": pod_list,
    "room nodes": node_list,
    "room cost": cost_list,
}
