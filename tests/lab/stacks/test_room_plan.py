"""The arithmetic of a room: requests from the values, pods that are packed whole, and the nodes that this takes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.pages import fromroom
from lab import ROOT
from lab.errors import UsageError
from lab.stacks import room_plan
from lab.stacks.room_plan import Node, Pod

VALUES = room_plan.chart_values()


def own(**more: Any) -> dict[str, Any]:
    """The chart's values with some of them changed."""
    return room_plan.merged(VALUES, more)


def test_values_are_merged_as_helm_does_it() -> None:
    """Maps are merged, lists and figures are replaced, null takes a key away; the values themselves stay."""
    found = room_plan.merged(
        {"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 3}, {"a": {"b": 9}, "d": [], "e": None}
    )
    assert found == {"a": {"b": 9, "c": 2}, "d": []}
    assert VALUES["servers"] == ["dragonfly", "redis"] and own(servers=["redis"])["servers"] == ["redis"]


def test_a_group_is_the_sum_of_its_containers() -> None:
    """Requests come from `resources`: each container of each server, the control page, the exporter."""
    needs = VALUES["resources"]
    each = ("server", "probe", "web", "invalidator", "warmer", "locust")
    for what, unit in (("cpu", 1000), ("memory", 1024)):
        sums = (
            2 * sum(needs[kind][what] for kind in each)
            + needs["control"][what]
            + needs["redisExporter"][what]
        )
        assert room_plan.total(room_plan.group_pods(VALUES))[what == "memory"] == sums / unit


@pytest.mark.parametrize(
    ("more", "changes"),
    [
        ({"resources": {"server": {"cpu": 2000}}}, 2 * 0.5),
        ({"resources": {"warmer": {"cpu": 150}}}, 2 * 0.1),
        ({"resources": {"control": {"cpu": 0}}}, -0.1),
        ({"servers": ["dragonfly"]}, -(1.5 + 0.5 + 0.45 + 0.1 + 0.05)),
        ({"resources": {"grafana": {"cpu": 5000}}}, 0.0),
    ],
)
def test_a_doctored_value_changes_the_figure(more: dict[str, Any], changes: float) -> None:
    """A group's cores follow the values; what the room has is no group's."""
    before, after = (room_plan.total(room_plan.group_pods(values))[0] for values in (VALUES, own(**more)))
    assert after - before == pytest.approx(changes)


def test_the_room_grows_with_its_groups() -> None:
    """One group has what the chart gives a lonely release; each more adds a share; limits are no less than requests."""
    assert room_plan.total(room_plan.room_pods(VALUES, 1)) == (
        sum(VALUES["resources"][name]["cpu"] for name in room_plan.PER_GROUP) / 1000,
        sum(VALUES["resources"][name]["memory"] for name in room_plan.PER_GROUP) / 1024,
    )
    few, many = (room_plan.room_resources(VALUES, groups) for groups in (2, 40))
    for name, more in room_plan.PER_GROUP.items():
        assert many[name]["memory"] - few[name]["memory"] == 38 * more["memory"]
        assert many[name]["cpu"] < many[name]["cpuLimit"]


def test_a_groups_series_find_room_in_prometheus() -> None:
    """What Prometheus gets for a group is 16 KiB for each series that a recorded scene of two servers has."""
    shared = {"prometheus", "tempo", "grafana"}
    with gzip.open(ROOT / "workshop" / "cold-case" / "metrics.gz", "rt", encoding="utf-8") as lines:
        jobs = [json.loads(line)["labels"].get("job") for line in lines if line.startswith('{"labels"')]
    series = sum(job not in shared for job in jobs)
    assert 4_000 < series < 5_000
    assert series * 16 / 1024 <= room_plan.PER_GROUP["prometheus"]["memory"]


def test_pods_are_packed_and_not_divided() -> None:
    """Cores that are left over on several nodes take no server: many small nodes hold fewer groups than one large."""
    cores = room_plan.total(room_plan.group_pods(VALUES))[0]
    large = Node("large", 120_000, 480_000, pods=300)
    small = [Node(f"small {i}", 1600, 6400) for i in range(75)]
    assert sum(node.cpu for node in small) == large.cpu
    assert room_plan.groups_that_fit(VALUES, 20, [large]) == 20 < 120 / cores
    assert 0 < room_plan.groups_that_fit(VALUES, 20, small) < 20
    tiny = [Node(f"tiny {i}", 1400, 6400) for i in range(1000)]
    assert room_plan.groups_that_fit(VALUES, 1, tiny) == 0  # a server finds no place on any of them


@pytest.mark.parametrize("cores", room_plan.NODE_SIZES)
@pytest.mark.parametrize("groups", [1, 10, 40])
def test_so_many_nodes_are_enough_and_one_less_is_not(groups: int, cores: int) -> None:
    """The announced number of nodes takes all groups, without one of them it does not; it is no less than the sum."""
    node, count = room_plan.node_of(cores), room_plan.nodes_needed(VALUES, groups, cores)
    assert count
    assert room_plan.groups_that_fit(VALUES, groups, [node] * count) == groups
    assert room_plan.groups_that_fit(VALUES, groups, [node] * (count - 1)) < groups
    assert count * node.cpu >= 1000 * room_plan.needed(VALUES, groups)[0]


def test_a_pod_that_is_larger_than_a_node_is_told() -> None:
    """Where a pod fits on no node of a size, no number of them is enough."""
    assert room_plan.nodes_needed(own(resources={"server": {"cpu": 4000}}), 1, 4) is None


def test_memory_and_the_number_of_pods_are_room_too() -> None:
    """A node without memory, or with as many pods as it takes, is full."""
    node = Node("node", 100_000, 400_000)
    assert room_plan.groups_that_fit(VALUES, 2, [node]) == 2
    assert room_plan.groups_that_fit(VALUES, 2, [replace(node, memory=8_000)]) == 1
    assert room_plan.groups_that_fit(VALUES, 2, [replace(node, pods=14)]) == 1
    assert room_plan.groups_that_fit(VALUES, 2, [replace(node, taken_pods=105)]) == 0
    assert room_plan.groups_that_fit(VALUES, 2, [replace(node, taken_cpu=99_000)]) == 0


def test_measured_pods_go_to_measured_nodes() -> None:
    """With a node selector servers and probes need nodes with its labels; the rest goes anywhere."""
    values = own(nodeSelector={"pool": "measured"})
    plain, measured = Node("plain", 50_000, 200_000), Node("m", 7_000, 28_000, labels={"pool": "measured"})
    assert room_plan.groups_that_fit(values, 2, [plain]) == 0
    assert room_plan.groups_that_fit(values, 2, [plain, measured]) == 1
    assert room_plan.groups_that_fit(values, 2, [plain, replace(measured, cpu=20_000, memory=80_000)]) == 2


def test_the_emptiest_node_is_taken_first() -> None:
    """Pods are spread as the scheduler spreads them."""
    nodes = [Node("a", 4000, 4000), Node("b", 4000, 4000)]
    left = [[4000, 4000, 9], [4000, 4000, 9]]
    for _ in range(2):
        assert room_plan._place(Pod("one", 1000, 1000), nodes, left)
    assert left == [[3000, 3000, 8], [3000, 3000, 8]]


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "is no YAML"), ("- redis", "is no file of values"), (None, "cannot be read: No such file")],
)
def test_a_file_that_is_no_file_of_values_is_one_line(text: str | None, said: str, tmp_path: Path) -> None:
    """What cannot be read is named in one line."""
    file = tmp_path / "own.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        room_plan.chart_values([file])
    assert "\n" not in str(refused.value)


def test_the_tables_of_the_page_follow_the_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A dearer server changes each of the page's tables; their core-hours are nodes, cores and hours multiplied."""
    before = {name: make(tmp_path) for name, make in fromroom.LISTS.items()}
    doctored = own(resources={"server": {"cpu": 3000}})
    monkeypatch.setattr(room_plan, "chart_values", lambda: doctored)
    fromroom.needed_nodes.cache_clear()
    after = {name: make(tmp_path) for name, make in fromroom.LISTS.items()}
    fromroom.needed_nodes.cache_clear()
    assert all(before[name] != after[name] for name in before)
    count = room_plan.nodes_needed(VALUES, 40, 32)
    assert count
    assert f" {count * 32 * room_plan.HOURS:,} |" in before["room cost"]
