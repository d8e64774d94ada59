"""Blind sessions on the Kubernetes stack: only `kubectl`, the control page and the neighbour are stand-ins."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from bench.blind_trial import Trial
from lab.blind import kubernetes
from lab.blind.causes import CAUSES
from lab.blind.commands import LARGEST_SEED, chosen, random_seed, without
from lab.blind.kubernetes import SERVE, KubernetesBlindStack
from lab.blind.scene import tell
from lab.blind.ways import pings_ms
from lab.stacks.kubectl import Kubectl
from lab.stacks.kubernetes import examine
from tests.app.servicekit import free_port
from tests.deploy import helmkit
from tests.lab.blind.seal import leaks
from tests.lab.labkit import typed
from tests.lab.stacks.kubekit import SPACE, FakeKubectl, release
from tests.lab.stacks.kubescene import Scene

HERE = ("--stack", "kubernetes", "--namespace", SPACE)
PORTS = ("LINK_PORT", "WEB_PORT", "OPERATIONS_PORT", "LOCUST_PORT")


SESSIONS = {
    "--stack kubernetes needs the namespace": (("blind", "start", "--stack", "kubernetes"), 2),
    "--namespace is for --stack kubernetes": (("blind", "start", "--namespace", SPACE), 2),
    "noisy-neighbour cannot be played on Kubernetes": (("blind", "open", "noisy-neighbour", *HERE), 2),
    "has no probe-redis": (("blind", "start", *HERE), 3),
}


@pytest.mark.parametrize("said", SESSIONS)
def test_a_session_that_cannot_be_is_refused(kubectl: FakeKubectl, tmp_path: Path, said: str) -> None:
    """One line, before anything is changed in the cluster."""
    kubectl.has([each for each in release("redis") if each["component"] != "probe-redis"])
    words, code = SESSIONS[said]
    answer = typed(*words, cwd=tmp_path)
    assert answer.is_one_line(code), answer
    assert said in answer.err
    assert not [call for call in kubectl.calls if call[0] not in ("get", "auth")]


@pytest.fixture
def session_ports(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The scene, whose storefront and Locust have room for a session's programs beside them."""
    free = {name: free_port() for name in PORTS}
    for name, port in free.items():
        monkeypatch.setattr(kubernetes, name, port)
    found = scene.pods()
    state = str(tmp_path / "scene" / "state")
    for each in (one for made in found for one in made["containers"]):
        if each["service"] in ("invalidator-valkey", "locust-valkey"):
            each["ports"] |= {str(port): port for port in free.values()}
            each["late"] = [str(port) for port in free.values()]
            each["env"] = {**each.get("env", {}), "APP_STATE_DIR": state, "APP_FRAGMENTS_PER_USER": "20"}
    scene.kubectl.has(found)
    return scene


@pytest.mark.whole
def test_blind_session_on_the_kubernetes_stack(session_ports: Scene, tmp_path: Path) -> None:
    """A cause in the programs beside the storefront shows its evidence, is named nowhere, and leaves no trace."""
    scene = session_ports
    trial = Trial(
        CAUSES["unpipelined-deletes"],
        tmp_path / "blind",
        looks=0,
        make=lambda folder: KubernetesBlindStack(folder, SPACE),
    )
    trial.run()
    found = {cause.id for cause in CAUSES.values() if cause.evidence(trial.outcome()).found}
    assert found == {"unpipelined-deletes"}, trial.outcome()
    calls = "\n".join(" ".join(call) for call in scene.kubectl.calls)
    assert calls.count("lab.blind.launcher") == 7, "link, storefront, customers, four programs"
    assert leaks({"calls of kubectl": calls, "printed": "\n".join(trial.said)}) == []
    deleted = [call for call in scene.kubectl.calls if call[0] == "delete"]
    assert len(deleted) == 1, "the server was emptied once, and not replaced at the end"
    assert scene.control.asked[-1] == ("/api/resume", {})
    assert scene.native.web.ask("GET", "/settings/invalidation")["strategy"] == "scan"
    client = redis.Redis.from_url(scene.native.server_url, decode_responses=True)
    assert client.config_get("maxmemory*")["maxmemory-policy"] == "noeviction"
    assert client.exists("latency-lab-prices-index", "latency-lab-prices:1", "latency-lab-changes") == 0


def test_the_storefront_goes_through_the_link(session_ports: Scene, tmp_path: Path) -> None:
    """An order to the link makes its round trips long; CPU time and waiting are read; at the end all programs end."""
    stack = KubernetesBlindStack(tmp_path / "blind", SPACE)
    release_of = session_ports.native.web.base_url
    try:
        stack.up(lambda text: None)
        assert stack.web.base_url != release_of
        before = stack.neighbours_s()
        stack.order("link", {"delay_s": 0.2})
        time.sleep(0.2)
        assert min(pings_ms(stack.link_url())) >= 200 > min(pings_ms(stack.server.url))
        assert stack.neighbours_s() >= before > 0
        stack.check()
        children = list(stack._child_of.values())
    finally:
        stack.down()
    assert not [child.name for child in children if child.alive()]
    assert stack.web.base_url == release_of


def test_a_killed_session_replaces_the_server(kubectl: FakeKubectl, tmp_path: Path) -> None:
    """The restorer outlives it, and deletes the pod whose settings were changed. After an orderly end it does not."""
    kubectl.has(release("valkey"))
    for killed in (True, False):
        began = len(kubectl.calls)
        stack = KubernetesBlindStack.__new__(KubernetesBlindStack)
        stack._logs, stack._kubectl = tmp_path, Kubectl(SPACE)
        stack._container = examine("valkey", stack._kubectl).scene.of("server")
        stack._start_restorer()
        assert stack._restorer is not None
        if not killed:
            tell(stack._restorer, {"in order": True})
        stack._restorer.finish()
        assert stack._restorer.exit_code() == 0
        deleted = [call for call in kubectl.calls[began:] if call[0] == "delete"]
        assert deleted == ([["delete", "pod", "valkey-0", "--wait=false"]] if killed else [])


@pytest.mark.parametrize("several", [False, True])
def test_no_seed_is_drawn_of_a_cause_that_cannot_be_played(several: bool, tmp_path: Path) -> None:
    """Where nothing is named the lab draws again; the other stacks have all causes."""
    assert without("native") == without("compose") == ()
    for _ in range(60):
        seed = random_seed(tmp_path, several, without("kubernetes"))
        assert 0 <= seed < LARGEST_SEED
        assert "noisy-neighbour" not in {cause.id for cause in chosen(seed, several)}


def test_the_storefront_is_served_as_the_chart_serves_it() -> None:
    """The words behind gunicorn are the chart's, and the invalidator's container has the storefront's environment."""
    [made] = [
        each
        for each in helmkit.render("--set", "servers={redis}")
        if (each["kind"], each["metadata"]["name"]) == ("StatefulSet", "storefront-redis")
    ]
    by_name = {each["name"]: each for each in made["spec"]["template"]["spec"]["containers"]}
    assert by_name["web-redis"]["args"] == ["gunicorn", *SERVE]
    assert by_name["web-redis"]["env"] == by_name["invalidator-redis"]["env"]
    mounts = ("volumeMounts",)
    assert all(by_name["web-redis"][name] == by_name["invalidator-redis"][name] for name in mounts)
