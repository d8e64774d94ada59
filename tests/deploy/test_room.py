"""`deploy/room.sh` on a cluster that is a folder: what it gives to Helm, whose namespaces it leaves alone, its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lab import ROOT
from tests.deploy import helmkit, promises
from tests.deploy.helmkit import CHART, Object, containers, environment, find, pod, workloads

KUBECTL = """#!/bin/sh
case "$1 $2" in
"get namespaces") cd $CLUSTER/ours && echo * ;;
"get namespace") test -e $CLUSTER/ours/$3 || test -e $CLUSTER/theirs/$3 ;;
"create namespace" | "label namespace") touch $CLUSTER/ours/$3 ;;
"delete namespace") rm $CLUSTER/ours/$3 ;;
"wait pod") ;;
*) exit 9 ;;
esac
"""
HELM = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["CLUSTER"] + "/helm", "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
"""


class Cluster:
    """Namespaces, and what Helm was told so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ours", "theirs", "bin"):
            (folder / name).mkdir()
        for name, text in {"kubectl": KUBECTL, "helm": HELM}.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def type(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `deploy/room.sh`."""
        path = f"{self.folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return subprocess.run(
            ["sh", ROOT / "deploy" / "room.sh", *words],
            env={"PATH": path, "CLUSTER": str(self.folder), **variables},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    @property
    def helm(self) -> list[list[str]]:
        """The words of each call of Helm."""
        log = self.folder / "helm"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def namespaces(self) -> set[str]:
        """The namespaces with the lab's label."""
        return {path.name for path in (self.folder / "ours").iterdir()}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A cluster without namespaces."""
    return Cluster(tmp_path)


def rendered(call: list[str]) -> list[Object]:
    """What `helm upgrade --install RELEASE CHART --namespace NAME OPTIONS` would send to the cluster."""
    assert [*call[:2], call[3:5]] == ["upgrade", "--install", [str(CHART), "--namespace"]]
    return helmkit.render(*call[6:], namespace=call[5])


@pytest.mark.usefixtures("helm")
def test_a_room_is_installed(cluster: Cluster) -> None:
    """The room asks every group; both kinds of release keep the chart's promises; addresses are printed."""
    said = cluster.type(
        "up", "3", "--set", "probePriority.create=false", DOMAIN="lab.example", SERVERS="redis valkey"
    )
    assert said.returncode == 0, said.stderr
    names = ["latency-lab-room", "team-1", "team-2", "team-3"]
    assert cluster.namespaces == set(names) and [call[5] for call in cluster.helm] == names
    room, group = rendered(cluster.helm[0]), rendered(cluster.helm[2])
    for name, rule in promises.RULES.items():
        assert rule(room) == rule(group) == [], name
    jobs = yaml.safe_load(find(room, "ConfigMap", "prometheus")["data"]["prometheus.yml"])["scrape_configs"]
    [web] = [job["static_configs"] for job in jobs if job["job_name"] == "web"]
    asked = {target for each in web for target in each["targets"]}
    assert asked == {f"web-{server}.{name}.svc:9101" for server in ("redis", "valkey") for name in names[1:]}
    assert find(room, "Ingress", "page")["spec"]["rules"][0]["host"] == "grafana.lab.example"
    told = environment(containers(group)["control"])
    assert "team-2.lab.example" in told["ALLOWED_HOSTS"].split()
    assert told["CONTROL_GRAFANA_URL"] == "http://grafana.lab.example"
    assert told["CONTROL_PROMETHEUS_URL"] == told["CONTROL_LOCUST_URLS"] == ""
    assert "team-3  http://team-3.lab.example" in said.stdout
    assert cluster.type("up", "4").returncode == 0, "it can be typed again"
    assert "kubectl --namespace team-4 port-forward service/control" in cluster.type("up", "4").stdout


@pytest.mark.usefixtures("helm")
def test_the_room_of_one_group_gets_what_the_chart_gives(cluster: Cluster) -> None:
    """The script's figures for one group are those of values.yaml."""
    assert cluster.type("up", "1").returncode == 0

    def asked(objects: list[Object]) -> dict[str, object]:
        return {
            each["metadata"]["name"]: (pod(each)["containers"][0]["resources"], pod(each)["volumes"])
            for each in workloads(objects)
            if each["metadata"]["name"] in ("prometheus", "tempo", "grafana")
        }

    assert asked(rendered(cluster.helm[0])) == asked(helmkit.render())


def test_only_what_it_made_is_removed(cluster: Cluster) -> None:
    """`down` removes the releases and the namespaces with the label; others stay."""
    assert cluster.type("up", "2").returncode == 0
    (cluster.folder / "theirs" / "team-3").touch()
    before = len(cluster.helm)
    assert cluster.type("down").returncode == 0
    assert cluster.namespaces == set()
    ended = [(call[0], call[1], call[3]) for call in cluster.helm[before:]]
    assert ended == [
        ("uninstall", "room", "latency-lab-room"),
        ("uninstall", "scene", "team-1"),
        ("uninstall", "scene", "team-2"),
    ]


@pytest.mark.parametrize("words", ["", "up", "up 0", "up -3", "up 4x", "up --values x", "down 3", "around"])
def test_bad_words_are_one_line(cluster: Cluster, words: str) -> None:
    """What cannot be meant ends with one line and exit code 2."""
    said = cluster.type(*words.split())
    assert said.returncode == 2 and said.stderr.count("\n") == 1, said
    assert cluster.helm == []


def test_a_namespace_of_somebody_else_stops_it(cluster: Cluster) -> None:
    """One line names it, before anything is made."""
    (cluster.folder / "theirs" / "team-2").touch()
    said = cluster.type("up", "2")
    assert said.returncode == 3
    assert said.stderr == "room: the namespace team-2 was there before: nothing was changed.\n"
    assert cluster.namespaces == set() and cluster.helm == []
