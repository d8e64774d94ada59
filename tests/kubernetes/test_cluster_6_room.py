"""Forty groups on the nodes that deploy/room.md announces, and on one less: a real API server and a real scheduler.

The nodes exist on paper: KWOK tells the API server that they are ready and that their pods run. Nothing is started on
them. The tests' own node is cordoned meanwhile, so the file is the last one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.stacks import room_plan
from lab.stacks.room_plan import ROOM, names
from tests.compose.stack import until
from tests.kubernetes import configs
from tests.kubernetes.kube import Kube

GROUPS, CORES = 40, 32
VALUES = room_plan.merged(room_plan.chart_values(), {"storage": {"className": "tests"}})
PAPER = room_plan.node_of(CORES)
COUNT = room_plan.nodes_needed(VALUES, GROUPS, CORES) or 0
CHART = "app.kubernetes.io/name=redis-latency-lab"
STRANGER = "somebody-elses"
REPLACED_S = 240
"""The controller that collects the pods of a missing node looks every 20 s, and waits 40 s to be sure."""


def paper_node(number: int) -> dict[str, Any]:
    """A node of KWOK's, as large as a node of the page after what is kept for the system."""
    name = f"paper-{number}"
    has = {"cpu": f"{PAPER.cpu}m", "memory": f"{PAPER.memory}Mi", "pods": str(PAPER.pods)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": {"allocatable": has, "capacity": has},
    }


def volume(group: str, server: str) -> dict[str, Any]:
    """The volume of a storefront, on paper like its node."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"paper-{group}-{server}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "tests",
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": group, "name": f"state-{server}"},
        },
    }


def create(kube: Kube, items: list[dict[str, Any]]) -> None:
    """Create objects."""
    kube("create", "--filename", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.fixture(scope="module")
def paper(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """The announced nodes and nothing else for pods to go to; a namespace that is somebody else's."""
    earlier = (ROOM, "team-1", "team-2", "team-7")
    kube("delete", "namespace", *earlier, "--ignore-not-found", "--timeout=300s", seconds=330)
    kube("create", "namespace", STRANGER)
    kube("cordon", configs.NODE_NAME)
    folder = tmp_path_factory.mktemp("kwok")
    words = ["kwok", f"--kubeconfig={os.environ['KUBECONFIG']}"]
    words += [
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
    ]
    with (folder / "kwok.log").open("wb") as log:
        environ = {**os.environ, "KWOK_WORKDIR": str(folder)}
        process = subprocess.Popen(words, env=environ, stdout=log, stderr=log)
    try:
        create(kube, [paper_node(number) for number in range(1, COUNT + 1)])
        create(kube, [volume(group, server) for group in names(GROUPS) for server in VALUES["servers"]])
        ready = ["--for=condition=Ready", "--timeout=60s"]
        kube("wait", "node", *(f"paper-{number}" for number in range(1, COUNT + 1)), *ready)
        yield kube
    finally:
        process.terminate()
        process.wait(20)
        kube("delete", "node", *(f"paper-{number}" for number in range(1, COUNT + 1)), "--ignore-not-found")
        kube("uncordon", configs.NODE_NAME)


def room_cluster(kube: Kube, *words: str) -> subprocess.CompletedProcess[str]:
    """Type the command."""
    return kube.command(sys.executable, "-m", "lab.stacks.room_cluster", *words, seconds=2400)


def up(kube: Kube, folder: Path) -> subprocess.CompletedProcess[str]:
    """Bring up the room, or go on with it."""
    file = folder / "values.yaml"
    file.write_text("storage: {className: tests}\n")
    words = ["--groups", str(GROUPS), "--values", str(file), "--out", str(folder / "room.html")]
    return room_cluster(kube, "up", *words)


def pods(kube: Kube) -> list[dict[str, Any]]:
    """All pods of the room."""
    found = json.loads(kube("get", "pods", "--all-namespaces", "--selector", CHART, "--output", "json"))
    return list(found["items"])


def test_one_node_less_cannot_be_enough() -> None:
    """What the tests below show does not hang on where the scheduler happens to put a pod.

    On the announced nodes a pod could be left over only if each of them had less room than the largest pod; with one
    node less there are fewer cores than all pods ask for.
    """
    everything = [*room_plan.room_pods(VALUES, GROUPS), *room_plan.group_pods(VALUES) * GROUPS]
    cpu, largest = sum(pod.cpu for pod in everything), max(pod.cpu for pod in everything)
    assert (COUNT - 1) * PAPER.cpu < cpu <= COUNT * (PAPER.cpu - largest)


def test_forty_groups_are_scheduled_on_the_announced_nodes(paper: Kube, tmp_path: Path) -> None:
    """`up` installs all releases and waits; every pod has a place on one of the nodes, and the page has every group."""
    done = up(paper, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}\n{paper.evidence()[-4000:]}"
    assert f"{GROUPS + 1} of {GROUPS + 1} releases" in done.stdout
    group = len(room_plan.group_pods(VALUES))
    places = [pod["spec"].get("nodeName", "") for pod in pods(paper)]
    assert len(places) == GROUPS * group + len(room_plan.PER_GROUP)
    assert {place.rpartition("-")[0] for place in places} == {"paper"}
    page = (tmp_path / "room.html").read_text()
    assert all(f">{name}<" in page for name in names(GROUPS))


def test_with_a_node_less_it_says_how_many_groups_fit(paper: Kube, tmp_path: Path) -> None:
    """Pods of a node that is gone find no place; typed again, the command says how many groups fit."""
    paper("delete", "node", "paper-1")

    def left_over() -> bool:
        return any(not pod["spec"].get("nodeName") for pod in pods(paper))

    until(left_over, "pods without a node", REPLACED_S, every=5)
    before = len(pods(paper))
    done = up(paper, tmp_path)
    assert done.returncode == 3, done.stdout
    found = re.search(r"MISS room: (\d+) of 40 groups fit", done.stdout)
    assert found, done.stdout
    assert int(found[1]) == room_plan.groups_that_fit(VALUES, GROUPS, [PAPER] * (COUNT - 1)) < GROUPS
    assert done.stderr.splitlines() == ["lab: nothing was changed: see room above."]
    assert len(pods(paper)) == before


def test_the_room_ends_and_leaves_what_is_not_its_own(paper: Kube) -> None:
    """`down` removes the room's namespaces and classes; a second one finds nothing; other namespaces stay."""
    done = room_cluster(paper, "down")
    assert done.returncode == 0, done.stderr
    there = paper("get", "namespaces", "--output", "name").split()
    assert not {f"namespace/{name}" for name in (ROOM, *names(GROUPS))} & set(there)
    assert f"namespace/{STRANGER}" in there
    assert "team-" not in paper("get", "priorityclasses", "--output", "name")
    assert "nothing to remove" in room_cluster(paper, "down").stdout
