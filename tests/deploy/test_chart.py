"""The chart keeps its promises under every kind of values; each promise's check fails on a release that breaks it."""

from __future__ import annotations

import copy
from functools import cache

import kubernetes_validate
import pytest
import yaml

from tests.deploy import helmkit, promises, same
from tests.deploy.doctored import DOCTORED
from tests.deploy.helmkit import CHART, Object, Refused, containers, environment, find, pod
from tests.deploy.matrix import COMPARED, DEFAULT, MATRIX

SCHEMAS = helmkit.KUBERNETES.rpartition(".")[0]

pytestmark = pytest.mark.usefixtures("helm")


@cache
def rendered(values: str) -> list[Object]:
    """The release that `helm template` makes of a row of the matrix; not to be changed."""
    return helmkit.render(*MATRIX[values])


@pytest.mark.parametrize("values", MATRIX)
def test_lint(values: str) -> None:
    """`helm lint --strict` finds nothing."""
    version = ("--kube-version", helmkit.KUBERNETES)
    helmkit.run("lint", "--strict", "--quiet", *version, str(CHART), *MATRIX[values])


@pytest.mark.parametrize("values", MATRIX)
def test_it_is_what_kubernetes_knows(values: str) -> None:
    """Every object has the fields that Kubernetes's own schema of its kind has, and no others."""
    for each in rendered(values):
        kubernetes_validate.validate(each, SCHEMAS, strict=True)


def test_an_unknown_field_is_noticed() -> None:
    """A misspelt field is an error."""
    doctored = copy.deepcopy(find(rendered(DEFAULT), "Service", "redis"))
    doctored["spec"]["publishNotReadyAdresses"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="publishNotReadyAdresses"):
        kubernetes_validate.validate(doctored, SCHEMAS, strict=True)


@pytest.mark.parametrize("rule", promises.RULES)
@pytest.mark.parametrize("values", MATRIX)
def test_promise_is_kept(values: str, rule: str) -> None:
    """The release breaks none of the chart's promises."""
    assert promises.RULES[rule](rendered(values)) == []


def test_an_admin_of_the_namespace_can_install_it() -> None:
    """With these values nothing is made that belongs to the cluster, or that a namespace's admin may only look at."""
    kinds = {found["kind"] for found in rendered("an admin of the namespace")}
    assert not {"PriorityClass", "ResourceQuota", "LimitRange"} & kinds


@pytest.mark.parametrize("rule", same.RULES)
@pytest.mark.parametrize("values", COMPARED)
def test_it_is_what_compose_starts(values: str, rule: str) -> None:
    """The release is compose.yaml's stack, but for differences that are named with their reasons."""
    assert same.RULES[rule](rendered(values)) == []


def test_a_group_has_no_watchers_of_its_own() -> None:
    """In a room a group's spans go there, its series carry its name, and its pages answer to the room's Prometheus."""
    objects = rendered("a group of a room")
    assert not {"prometheus", "tempo", "grafana"} & set(containers(objects))
    told = environment(containers(objects)["web-redis"])
    assert told["APP_SERVER_NAME"] == "team-7.redis"
    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://tempo.latency-lab-room.svc:4318"
    assert environment(containers(objects)["control"])["CONTROL_SERIES_PREFIX"] == "team-7."
    hosts = {"control.team-7.svc", "web-redis.team-7.svc", "locust-redis.team-7.svc"}
    assert hosts <= set(told["ALLOWED_HOSTS"].split())


def test_the_room_asks_every_group() -> None:
    """The room's Prometheus asks each server of each group, under the name that the group's own metrics carry."""
    objects = rendered("the room")
    assert set(containers(objects)) == {"prometheus", "tempo", "grafana"}
    config = yaml.safe_load(find(objects, "ConfigMap", "prometheus")["data"]["prometheus.yml"])
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    asked = {group["targets"][0]: group["labels"] for group in jobs["web"]["static_configs"]}
    assert asked["web-redis.team-2.svc:9101"] == {"server": "team-2.redis", "release": "team-2"}
    assert len(asked) == 4
    assert jobs["redis"]["relabel_configs"][-1]["replacement"] == "redis-exporter.$1.svc:9121"
    scraped = {int(target.rpartition(":")[2]) for job in jobs.values() for group in job["static_configs"]
               for target in group["targets"] if ".svc:" in target}  # fmt: skip
    let_out = find(objects, "NetworkPolicy", "to-the-groups")["spec"]["egress"]
    assert {row["port"] for rule in let_out for row in rule["ports"]} == scraped | {9121}
    [rename] = jobs["control"]["metric_relabel_configs"]
    assert (rename["source_labels"], rename["replacement"]) == (["release", "server"], "$1.$2")


def test_values_reach_their_place() -> None:
    """A node selector, a priority class, a storage class and a pull secret are where they belong."""
    objects = rendered("somebody's cluster")
    assert pod(find(objects, "StatefulSet", "redis"))["nodeSelector"] == {"pool": "measured"}
    assert pod(find(objects, "Deployment", "probe-redis"))["priorityClassName"] == "measured"
    assert not [o for o in objects if o["kind"] == "PriorityClass"]
    assert find(objects, "PersistentVolumeClaim", "state-redis")["spec"]["storageClassName"] == "fast"
    assert pod(find(objects, "Deployment", "control"))["imagePullSecrets"] == [{"name": "registry"}]


def test_a_name_outside_reaches_its_place() -> None:
    """A group's control page has the name, and the room's Grafana; both let in the controller's namespace only."""
    group, room = rendered("a group with a name outside"), rendered("the room with a name outside")
    made = find(group, "Ingress", "page")["spec"]
    assert (made["ingressClassName"], made["rules"][0]["host"]) == ("nginx", "team-7.lab.example")
    assert "team-7.lab.example" in environment(containers(group)["control"])["ALLOWED_HOSTS"].split()
    [rule] = find(room, "Ingress", "page")["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == "grafana"
    [way] = find(room, "NetworkPolicy", "from-the-ingress-controller")["spec"]["ingress"]
    [named] = way["from"][0]["namespaceSelector"]["matchExpressions"]
    assert named["values"] == ["ingress-nginx"]


def test_a_larger_tempo_may_use_its_memory() -> None:
    """Tempo's own bound on its memory is the same share of its limit, whatever the limit is."""
    told = {
        memory: environment(containers(helmkit.render("--set", f"resources.tempo.memory={memory}"))["tempo"])
        for memory in (768, 1536)
    }
    assert [each["GOMEMLIMIT"] for each in told.values()] == ["600MiB", "1200MiB"]


BAD = {
    "servrs={redis}": "servrs",
    "servers={mysql}": "servers",
    "servers=null": "servers",
    "servers={redis,redis}": "servers",
    "images.redis=": "images",
    "imagePullPolicy=Sometimes": "imagePullPolicy",
    "story.growSeconds=0": "growSeconds",
    "dragonfly.threads=9": "threads",
    "observability.namespace=The_Room": "namespace",
    "observability.releases.team-1={mysql}": "releases",
    "links.grafana=grafana": "grafana",
    "allowedHosts={a b}": "allowedHosts",
    "nodeSelector=measured": "nodeSelector",
    "storage.gibibytes=0": "gibibytes",
    "storage.className=null": "className",
    "images.lab=null": "lab",
    "resources.prometheus.disk=1": "disk",
    "resources.server.cpu=1.5": "cpu",
    "resources.server.cpuLimit=3000": "cpuLimit",
    "resources.web.memory=192Mi": "memory",
    "observability.shared=true,observability.releases.team-1={redis}": "observability.releases",
    "probePriority.className=measured": "probePriority",
    "observability.shared=true,observability.namespace=team-7": "observability.namespace",
    "ingress.enabled=true": "ingress.host",
    "ingress.host=http://lab.example": "host",
    "ingress.namespace=The_Controller": "namespace",
    "ingress.open=true": "open",
}


@pytest.mark.parametrize("given", BAD)
def test_a_bad_value_is_one_line(given: str) -> None:
    """A value that is unknown, out of range or at odds with another is named in the last line that is about it."""
    with pytest.raises(Refused) as refused:
        helmkit.render("--set", given)
    lines = [line for line in str(refused.value).splitlines() if "--debug" not in line]
    assert BAD[given] in lines[-1]
    assert len(lines) == 1 or (len(lines) == 3 and "schema" in lines[0]), lines


@pytest.mark.parametrize("case", DOCTORED)
def test_broken_promise_is_noticed(case: str) -> None:
    """A release doctored to break one promise is caught by that promise's rule."""
    rule, change = DOCTORED[case]
    doctored = copy.deepcopy(rendered(DEFAULT))
    change(doctored)
    assert {**promises.RULES, **same.RULES}[rule](doctored), f"{rule} does not see: {case}"


def test_every_promise_can_be_broken() -> None:
    """Each rule has a doctored release that it must catch."""
    assert {rule for rule, _ in DOCTORED.values()} == {*promises.RULES, *same.RULES}
