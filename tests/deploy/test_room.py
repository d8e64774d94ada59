"""What is counted for a room is what Helm makes: the same pods, with the same requests and node selectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lab.stacks import room_cluster, room_plan
from lab.stacks.room_checks import Asked
from lab.stacks.room_plan import Pod
from tests.deploy import helmkit, promises
from tests.deploy.helmkit import Object, containers, environment, mebibytes, millicores, pod, workloads

pytestmark = pytest.mark.usefixtures("helm")
OWN = {
    "as it comes": "",
    "one server": "servers: [redis]",
    "Dragonfly alone": "servers: [dragonfly]",
    "on measured nodes": "{nodeSelector: {pool: measured}}",
    "other requests": "resources: {server: {cpu: 2000, memory: 1280}, web: {cpu: 300, cpuLimit: 1000, memory: 192}}",
}


def made(objects: list[Object]) -> list[Pod]:
    """The pods that a release makes, by name."""
    found = []
    for each in workloads(objects):
        asked = [container["resources"]["requests"] for container in pod(each)["containers"]]
        cpu, memory = sum(millicores(a["cpu"]) for a in asked), sum(mebibytes(a["memory"]) for a in asked)
        one = Pod(each["metadata"]["name"], cpu, memory, pod(each).get("nodeSelector", {}))
        found += [one] * each["spec"].get("replicas", 1)
    return sorted(found, key=lambda one: one.name)


def wanted(tmp_path: Path, text: str, groups: int, host: str = "") -> Asked:
    """A room with these values."""
    file = tmp_path / "own.yaml"
    file.write_text(text)
    return Asked(groups, [file], host)


def rendered(asked: Asked, own: dict[str, object], namespace: str, place: Path) -> list[Object]:
    """The release that the command would install."""
    last = place / "last.yaml"
    last.write_text(json.dumps(own))
    files = [word for file in (*asked.files, last) for word in ("--values", str(file))]
    return helmkit.render(*files, namespace=namespace)


@pytest.mark.parametrize("values", OWN)
def test_a_groups_pods_are_those_that_helm_makes(values: str, tmp_path: Path) -> None:
    """Each pod of a group is counted once, with the requests of its containers."""
    asked = wanted(tmp_path, OWN[values], 3)
    objects = rendered(asked, room_cluster.group_values(asked, "", "team-3"), "team-3", tmp_path)
    counted = room_plan.group_pods(room_plan.chart_values(asked.files))
    assert sorted(counted, key=lambda one: one.name) == made(objects)


@pytest.mark.parametrize("groups", [1, 40, room_plan.GROUPS_MOST])
def test_the_rooms_pods_are_those_that_helm_makes(groups: int, tmp_path: Path) -> None:
    """The room's release has the three pods that all share, with requests for so many groups, and asks every group."""
    asked = wanted(tmp_path, "servers: [redis]", groups)
    objects = rendered(asked, room_cluster.room_values(asked, ""), room_plan.ROOM, tmp_path)
    counted = room_plan.room_pods(room_plan.chart_values(asked.files), groups)
    assert sorted(counted, key=lambda one: one.name) == made(objects)
    config = yaml.safe_load(helmkit.find(objects, "ConfigMap", "prometheus")["data"]["prometheus.yml"])
    [web] = [job for job in config["scrape_configs"] if job["job_name"] == "web"]
    asks = {target for group in web["static_configs"] for target in group["targets"]}
    assert asks == {f"web-redis.{group}.svc:9101" for group in room_plan.names(groups)}


def test_a_room_keeps_the_charts_promises(tmp_path: Path) -> None:
    """With names outside, too, a group's release and the room's break none of the chart's promises."""
    asked = wanted(tmp_path, "", 40, "lab.example")
    group = rendered(asked, room_cluster.group_values(asked, "nginx", "team-7"), "team-7", tmp_path)
    room = rendered(asked, room_cluster.room_values(asked, "nginx"), room_plan.ROOM, tmp_path)
    for name, rule in promises.RULES.items():
        assert rule(group) == [], name
        assert rule(room) == [], name
    told = environment(containers(group)["control"])
    assert "team-7.lab.example" in told["ALLOWED_HOSTS"].split()
    assert told["CONTROL_GRAFANA_URL"] == "http://grafana.lab.example"
    assert told["CONTROL_PROMETHEUS_URL"] == told["CONTROL_LOCUST_URLS"] == ""
    [rule] = helmkit.find(room, "Ingress", "page")["spec"]["rules"]
    assert rule["host"] == "grafana.lab.example"


OPTIONS = {
    "template": ("--values", "--namespace", "--kube-version"),
    "upgrade": ("--values", "--namespace", "--install"),
    "status": ("--namespace", "--output"),
    "uninstall": ("--namespace", "--ignore-not-found"),
}
"""What lab/stacks gives to Helm."""


@pytest.mark.parametrize("verb", OPTIONS)
def test_helm_has_the_options_that_it_is_given(verb: str) -> None:
    """The stand-in of tests/lab/stacks takes any option; Helm itself knows each of these."""
    said = helmkit.run(verb, "--help")
    assert [option for option in OPTIONS[verb] if option not in said] == []
