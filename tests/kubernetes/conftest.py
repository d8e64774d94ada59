"""The cluster for these tests; `make test-kubernetes` provides it, `make test` leaves out the tests that need it.

They are in an order: files by their numbers, tests as they stand. The same releases serve all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kubernetes.groups import ONE, ROOM, SERVER, TWO, VALUES
from tests.kubernetes.kube import Kube

collect_ignore_glob = [] if os.environ.get("LAB_KUBERNETES") else ["test_cluster_*.py"]

STORAGE = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: tests}
provisioner: kubernetes.io/no-provisioner
"""


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """The cluster, with a class of storage."""
    made = Kube()
    made("apply", "--filename", "-", given=STORAGE)
    yield made


@pytest.fixture(scope="session")
def releases(kube: Kube) -> Kube:
    """A room and two groups, installed and ready; their stories are off."""
    for name in (ROOM, ONE, TWO):
        kube.namespace(name)
        if name in SERVER:
            kube.volume(name, SERVER[name])
        kube.helm("install", name, *VALUES[name])
    for name in (ROOM, ONE, TWO):
        kube.wait_ready(name)
    return kube
