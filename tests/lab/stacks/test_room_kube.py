"""What a cluster says of quantities and pods is read as the scheduler reads it."""

from __future__ import annotations

from typing import Any

import pytest

from lab.errors import StackError
from lab.stacks import room_kube


@pytest.mark.parametrize(
    ("text", "cores"),
    [("250m", 0.25), ("2", 2), ("1.5", 1.5), ("1e3", 1000), ("100n", 1e-7), ("1k", 1000), ("2Ki", 2048)],
)
def test_a_quantity_is_read(text: str, cores: float) -> None:
    """Every way in which Kubernetes writes a quantity is understood."""
    assert float(room_kube.quantity(text)) == pytest.approx(cores)


@pytest.mark.parametrize("text", ["", "lots", "1.2.3", "-1", "5 apples"])
def test_no_quantity_is_one_line(text: str) -> None:
    """Anything else is an error in one line."""
    with pytest.raises(StackError, match="cannot be read"):
        room_kube.quantity(text)


def asks(cpu: str = "0", memory: str = "0", **more: str) -> dict[str, Any]:
    """A container."""
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{}]}, (0, 0)),
        ({"containers": [asks("100m", "64Mi"), asks("1", "1Gi")]}, (1100, 1088)),
        ({"containers": [asks("100m")], "initContainers": [asks("300m", "10Mi"), asks("200m")]}, (300, 10)),
        ({"containers": [asks("100m")], "initContainers": [asks("300m", restartPolicy="Always")]}, (400, 0)),
        ({"containers": [asks("100m")], "overhead": {"cpu": "50m", "memory": "1"}}, (150, 1)),
    ],
)
def test_what_a_pod_asks_for(spec: dict[str, Any], expected: tuple[int, int]) -> None:
    """Containers ask together, init containers one after the other; what is asked is rounded up."""
    assert room_kube.requests({"spec": spec}) == expected


@pytest.mark.parametrize(
    ("status", "done"),
    [
        ({"observedGeneration": 2, "updatedReplicas": 3, "readyReplicas": 3}, True),
        ({"observedGeneration": 1, "updatedReplicas": 3, "readyReplicas": 3}, False),
        ({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 3}, False),
        ({"observedGeneration": 2, "updatedReplicas": 3, "readyReplicas": 2}, False),
        ({}, False),
    ],
)
def test_pods_of_before_an_upgrade_do_not_count(status: dict[str, int], done: bool) -> None:
    """A workload is done when its controller has seen the newest version, and all pods are of it and ready."""
    assert (
        room_kube.is_done({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status}) is done
    )
