"""Two groups and a room side by side: ready, guaranteed what they were promised, each with its own figures."""

from __future__ import annotations

import json
import urllib.request

import pytest

from lab import ROOT
from tests.compose.stack import until
from tests.kubernetes.groups import ONE, ROOM, SERVER, TWO
from tests.kubernetes.kube import Kube

WATCHED_BY = {ONE: ONE, TWO: ROOM}
NAMED = {ONE: "redis", TWO: "team-2.valkey"}
"""What a group's server is called in series: in a room its name begins with the group's."""
FIGURES = (
    "probe_latency_seconds_count",  # of a job with Prometheus's own labels
    "cache_invalidation_events_pending",  # of the application, which says `server` itself
    "lab_store_up",  # of the console, which says `server` too
    "redis_up",  # of the exporter
    "server:store_keys:sum",  # of a rule
)


@pytest.mark.parametrize("group", SERVER)
def test_servers_and_probes_are_guaranteed(group: str, releases: Kube) -> None:
    """The cluster itself calls servers and probes Guaranteed, and everything else Burstable."""
    for pod in releases.get("pods", group):
        name = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        measured = name == SERVER[group] or name.startswith("probe-")
        assert pod["status"]["qosClass"] == ("Guaranteed" if measured else "Burstable"), name
        assert (pod["spec"].get("priority", 0) > 0) == name.startswith("probe-"), name


@pytest.mark.parametrize("namespace", [ROOM, ONE, TWO])
def test_no_container_has_a_token(namespace: str, releases: Kube) -> None:
    """No pod has a volume with a token, nor variables of Services."""
    for pod in releases.get("pods", namespace):
        assert "serviceAccountToken" not in json.dumps(pod["spec"]["volumes"])
        assert pod["spec"]["enableServiceLinks"] is False


def test_a_root_cannot_be_written(releases: Kube) -> None:
    """A process can write where it must, and nowhere else."""
    code = (
        "import pathlib\n"
        "for name in ('/state/x', '/tmp/x', '/lab/x', '/x'):\n"
        "    try: pathlib.Path(name).write_text(''); pathlib.Path(name).unlink(); print(name)\n"
        "    except OSError: pass"
    )
    said = releases.inside(ONE, "statefulset/storefront-redis", "web-redis", "python", "-c", code)
    assert said.split() == ["/state/x", "/tmp/x"]


@pytest.mark.parametrize("group", SERVER)
def test_every_target_is_up(group: str, releases: Kube) -> None:
    """Prometheus reaches all that it asks: a group's own, or the room's every group."""

    def all_up() -> bool:
        found = releases.query(WATCHED_BY[group], "up")
        return len(found) >= 9 and set(found.values()) == {1.0}

    until(all_up, f"every target of {WATCHED_BY[group]}: {releases.query(WATCHED_BY[group], 'up == 0')}", 90)


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("group", SERVER)
def test_a_groups_figures_have_its_name(group: str, figure: str, releases: Kube) -> None:
    """Every kind of series names the server in the same way, or dashboards would show half of it."""

    def named() -> bool:
        found = releases.query(WATCHED_BY[group], f"count by (server) ({figure})")
        return {dict(labels).get("server") for labels in found} == {NAMED[group]}

    until(named, f"{figure} of {NAMED[group]}", 60)


@pytest.mark.parametrize("group", SERVER)
def test_a_groups_spans_arrive(group: str, releases: Kube) -> None:
    """Events leave traces in the group's Tempo, or in the room's, under the group's name."""
    server = SERVER[group]
    for user in range(1, 61):  # one trace in ten is kept
        releases.json(group, f"web-{server}", 8000, f"/users/{user}/events", {"type": "order"})
    expression = f'traces_spanmetrics_calls_total{{app_store_server="{NAMED[group]}"}}'
    until(lambda: releases.query(WATCHED_BY[group], expression), expression, 60)


@pytest.mark.parametrize("namespace", [ROOM, ONE])
def test_each_dashboard_is_there_once(namespace: str, releases: Kube) -> None:
    """Grafana has read every dashboard of the projected volume, and none twice through its hidden folders."""
    found = [row["uid"] for row in releases.json(namespace, "grafana", 3000, "/api/search")]
    assert sorted(found) == ["before-after", "dragonfly", "incident", "redis", "the-lab", "where-time-goes"]


CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()
    print("open")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("start", "service", "port", "group", "reached"),
    [
        (ONE, "redis", 6379, ONE, True),
        (TWO, "redis", 6379, ONE, False),
        (TWO, "control", 8080, ONE, False),
        (TWO, "tempo", 4318, ROOM, True),
        (TWO, "grafana", 3000, ROOM, False),
        (ONE, "tempo", 4318, ROOM, False),
        (ONE, "kubernetes", 443, "default", False),  # no policy guards it: here the group's own refuses
    ],
)
def test_policies_let_through_what_they_should(
    start: str, service: str, port: int, group: str, reached: bool, releases: Kube
) -> None:
    """A group reaches its own server, and elsewhere only the room's Tempo, if it uses the room."""
    words = ("python", "-c", CONNECT, f"{service}.{group}", str(port))

    def said() -> str:
        return releases.inside(start, "deployment/control", "control", *words).strip()

    if reached:
        assert said() == "open"
    else:
        assert said() in ("ConnectionRefusedError", "TimeoutError")


def test_a_participant_sees_the_page(releases: Kube) -> None:
    """Who has the rights of deploy/page-role.yaml reaches the group's control page, which knows its server only."""
    role, binding = "latency-lab-page", ("rolebinding", "latency-lab-page")
    releases("--namespace", ONE, "apply", "--filename", str(ROOT / "deploy" / "page-role.yaml"))
    releases("--namespace", ONE, "create", *binding, f"--role={role}", "--user=guest")
    guest = releases.run / "guest.conf"
    with releases.forwarded(ONE, "control", 8080, kubeconfig=guest) as address:
        with urllib.request.urlopen(f"{address}/api/state", timeout=10) as answer:
            state = json.load(answer)
        with urllib.request.urlopen(address, timeout=10) as page:
            assert page.status == 200
    assert [row["name"] for row in state["servers"]] == ["redis"]
    releases("--namespace", ONE, "delete", *binding)
    releases("--namespace", ONE, "delete", "role", role)


def test_groups_do_not_share_a_server(releases: Kube) -> None:
    """What one group switches, the other does not notice."""
    path = "/settings/invalidation"
    before = releases.json(TWO, "web-valkey", 9101, path)["strategy"]
    releases.json(ONE, "web-redis", 9101, path, {"strategy": "index"}, "PUT")
    assert releases.json(ONE, "web-redis", 9101, path)["strategy"] == "index"
    assert releases.json(TWO, "web-valkey", 9101, path)["strategy"] == before == "scan"
    releases.json(ONE, "web-redis", 9101, path, {"strategy": "scan"}, "PUT")
