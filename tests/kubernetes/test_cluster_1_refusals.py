"""The API server takes every kind of release; what cannot work is refused in one line, before anything was changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.stack import until
from tests.deploy import helmkit
from tests.deploy.matrix import MATRIX
from tests.kubernetes import configs
from tests.kubernetes.kube import VALUES, Kube, one_line


@pytest.fixture(scope="module")
def checked(kube: Kube) -> str:
    """A namespace for releases that are only looked at."""
    kube.namespace("team-7")
    return "team-7"


@pytest.mark.parametrize("values", MATRIX)
def test_the_api_server_takes_every_object(values: str, kube: Kube, checked: str) -> None:
    """Each object has known fields only, and each pod keeps to Pod Security's level `restricted`."""
    text = yaml.safe_dump_all(helmkit.render(*MATRIX[values], namespace=checked))
    words = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--namespace", checked]
    done = kube.command("kubectl", *words, "--filename", "-", given=text)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Warning" not in done.stderr, done.stderr[-3000:]


def test_no_cluster(kube: Kube, checked: str, tmp_path: Path) -> None:
    """Without a cluster Helm says so in a line."""
    nowhere = tmp_path / "nowhere.conf"
    nowhere.write_text(configs.kubeconfig(configs.ADMIN, "https://127.0.0.1:1"))
    nowhere.chmod(0o600)  # Helm warns of others who might read it
    assert "unreachable" in one_line(kube.try_helm("install", checked, kubeconfig=nowhere))


def test_no_right(kube: Kube, checked: str) -> None:
    """Who has no right in the namespace is told which one is missing."""
    said = one_line(kube.try_helm("install", checked, kubeconfig=kube.run / "guest.conf"))
    assert "forbidden" in said
    assert kube.objects(checked) == set()


def test_an_unknown_value(kube: Kube, checked: str) -> None:
    """A value that the chart does not know is named."""
    done = kube.try_helm("install", checked, "--set", "servrs={redis}")
    assert done.returncode and "servrs" in done.stderr.strip().splitlines()[-1]
    assert kube.objects(checked) == set()


@contextmanager
def quota(kube: Kube, namespace: str, **spec: Any) -> Iterator[None]:
    """A quota of the cluster's owner, for as long as this lasts."""
    made = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": spec}
    kube("apply", "--namespace", namespace, "--filename", "-", given=json.dumps(made))
    try:
        yield
    finally:
        kube("delete", "resourcequota", "small", "--namespace", namespace)


@pytest.mark.parametrize(
    ("named", "most"),
    [
        ("pods", "3"),
        ("requests.cpu", "500m"),
        ("limits.memory", "1Gi"),
        ("services", "5"),
        ("count/persistentvolumeclaims", "1"),
        ("requests.storage", "1Gi"),
    ],
)
def test_a_quota_that_is_too_small(named: str, most: str, kube: Kube, checked: str) -> None:
    """A quota of the cluster's owner that has no room for the release is named, with what it allows."""
    with quota(kube, checked, hard={named: most}):
        said = one_line(kube.try_helm("install", checked))
        assert "the quota small" in said and f"{named}: {most}" in said
        assert kube.objects(checked) == {"resourcequota/small"}


def test_a_quota_that_is_just_enough(kube: Kube, checked: str) -> None:
    """What others use of a quota counts; a quota for some pods only does not, and one of terabytes is large."""
    render = helmkit.render("--values", str(VALUES), namespace=checked)
    services = sum(each["kind"] == "Service" for each in render)
    looks = ("install", checked, "--dry-run=server")
    with quota(kube, checked, hard={"services": str(services), "limits.memory": "1T"}):
        assert kube.try_helm(*looks).returncode == 0
        kube("create", "service", "clusterip", "mine", "--tcp=80", "--namespace", checked)
        try:
            until(
                lambda: (
                    kube.get("resourcequotas", checked)[0]["status"].get("used", {}).get("services") == "1"
                ),
                "the quota counts the Service",
                30,
            )
            assert f"services: {services}, of which 1 is used" in one_line(kube.try_helm(*looks))
        finally:
            kube("delete", "service", "mine", "--namespace", checked)
    with quota(kube, checked, hard={"pods": "1"}, scopes=["BestEffort"]):
        assert kube.try_helm(*looks).returncode == 0


def test_a_release_that_is_there(kube: Kube, releases: Kube) -> None:
    """A release of the same name, or another one in the same namespace, is refused, and the first goes on."""
    before = kube.objects("team-1")
    assert "still in use" in one_line(kube.try_helm("install", "team-1"))
    assert "exists" in one_line(kube.try_helm("install", "team-1", release="other"))
    assert kube.objects("team-1") == before
