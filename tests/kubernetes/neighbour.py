"""A neighbour in a namespace of its own, which would take both cores of the node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kubernetes.kube import Kube

NEIGHBOUR = "neighbours"
HOG = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "hog"},
    "spec": {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": name,
                "image": "redis-latency-lab:1",
                "imagePullPolicy": "Never",
                "args": ["python", "-c", "while True: pass"],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
            for name in ("one", "two")
        ],
    },
}
"""Two cores' worth of work with no request and no limit: the kernel gives it what is left."""


@contextmanager
def neighbour(kube: Kube) -> Iterator[None]:
    """The neighbour runs until the context ends. Kubernetes calls it BestEffort."""
    kube.namespace(NEIGHBOUR)
    kube("apply", "--namespace", NEIGHBOUR, "--filename", "-", given=json.dumps(HOG))
    try:
        kube("wait", "pod", "hog", "--namespace", NEIGHBOUR, "--for=condition=Ready", "--timeout=60s")
        [hog] = kube.get("pods", NEIGHBOUR)
        assert hog["status"]["qosClass"] == "BestEffort"
        yield
    finally:
        kube("delete", "namespace", NEIGHBOUR)
