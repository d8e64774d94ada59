"""The Kubernetes stack on real processes: only `kubectl`, the control page and the neighbour are stand-ins."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.errors import StackError
from lab.scenarios.model import ProbeSpec
from lab.stacks import kubernetes
from lab.stacks.asking import Finding
from lab.stacks.kubectl import Kubectl
from lab.stacks.kubernetes import KubernetesStack, examine
from lab.stacks.podcheck import rehearse_release
from tests.app.servicekit import eventually
from tests.lab.labkit import lab, tree, typed
from tests.lab.stacks.kubekit import SPACE, FakeKubectl, of_node, old_groups
from tests.lab.stacks.kubescene import Scene
from tests.lab.stacks.running import SCENARIO


@pytest.fixture
def stack(scene: Scene, tmp_path: Path) -> Iterator[KubernetesStack]:
    """The stack on the running scene, taken down at the end."""
    stack = KubernetesStack(SCENARIO, examine("valkey", Kubectl(SPACE)), tmp_path / "run", seed=3)
    yield stack
    stack.down()


def commands(scene: Scene, verb: str) -> list[list[str]]:
    """The calls of kubectl that begin with this word."""
    return [words for words in scene.kubectl.calls if words[0] == verb]


def test_run_has_the_scene_to_itself_and_puts_everything_back(scene: Scene, stack: KubernetesStack) -> None:
    """During a run the story is paused and the neighbour stands still; afterwards all is as it was found."""
    web, neighbour, server = scene.native.web, scene.neighbour, scene.native.server
    web.use("keys", 77)
    web.warm(400, restart=False, seconds=30, check=scene.native.check)
    scene.native.locust.load(3.0, 0.0, 50)
    server.configure_slowlog(4321, 33)
    pid = scene.server_pid

    stack.up(lambda text: None)
    assert scene.control.asked == [("/api/pause", {"seconds": 60.0})]
    assert neighbour.state["/load"]["events_per_second"] == neighbour.state["/load"]["reads_per_second"] == 0
    assert scene.server_pid != pid, "the server's pod was replaced"
    assert commands(scene, "delete") == [["delete", "pod", "valkey-0", "--wait=false"]]
    assert stack.server.keys_everywhere() == 0
    assert stack.server.slowlog_settings() == (SCENARIO.slowlog_threshold_us, 512)
    assert stack.server.shown == "valkey in team-7"
    stack.web.use("index", 5)

    stack.down()
    assert scene.control.asked[-1] == ("/api/resume", {})
    assert neighbour.state["/load"]["events_per_second"] == 12.5
    found = web.ask("GET", "/settings/invalidation")
    assert (found["strategy"], found["scan_count"]) == ("keys", 77)
    assert web.ask("GET", "/settings/warming")["target_keys"] == 400
    assert scene.native.locust.tallies()["reads_per_second"] == 3.0
    server.wait(5)
    assert server.slowlog_settings() == (4321, 33)


def test_probes_run_in_their_pod_and_end_when_let_go(scene: Scene, stack: KubernetesStack) -> None:
    """A probe's lines come back through `kubectl exec`; it asks the address inside, and ends with its stdin."""
    stack.up(lambda text: None)
    probe = stack.start_probe(ProbeSpec("pool", connections=4, reconnect_seconds=0.5), 100)
    line = json.loads(next(probe.lines()))
    assert (line["name"], line["errors"]) == ("pool", 0)
    [words] = [call for call in commands(scene, "exec") if "loadtest.probe" in call]
    assert words[1:5] == ["--stdin", "probe-valkey-0", "--container", "probe-valkey"]
    assert f"PROBE_URL={scene.native.server_url}" in words
    assert words[-1] == "--until-stdin-ends"
    stack.check()
    stack.forget(probe)
    assert probe.process.returncode == 0, "it ended by itself, not by a signal"


def test_round_trips_are_measured_in_the_cluster(scene: Scene, stack: KubernetesStack) -> None:
    """The network floor is a probe's, beside the server, and not that of the port-forward."""
    stack.up(lambda text: None)
    waited = stack.server.ping_us()
    assert len(waited) >= 150
    assert all(0 < each < 1e6 for each in waited)
    assert [call for call in commands(scene, "exec") if call[-1] == "ping" or "--command" in call]


def test_moments_of_probes_are_told_by_this_clock(scene: Scene, tmp_path: Path) -> None:
    """Where the probe's node is ahead, its lines are shifted."""
    examined = replace(examine("valkey", Kubectl(SPACE)), offset_s=100.0)
    stack = KubernetesStack(SCENARIO, examined, tmp_path / "run", seed=3)
    try:
        probe = stack.start_probe(ProbeSpec("main"), 50)
        assert json.loads(next(probe.lines()))["t"] == pytest.approx(time.time() - 100, abs=10)
    finally:
        stack.down()


def test_emptied_server_is_another_pod(scene: Scene, stack: KubernetesStack) -> None:
    """A new pod has no keys and the scenario's settings; ways and readings lead to it, and that is no failure."""
    stack.up(lambda text: None)
    stack.web.warm(1000, restart=False, seconds=30, check=stack.check)
    assert stack.server.keys_everywhere() > 1000
    before, forwards = stack.server.snapshot().run_id, len(commands(scene, "port-forward"))
    stack.web.fill(0)
    stack.empty()
    assert stack.server.snapshot().run_id != before
    assert stack.server.keys_everywhere() < 10
    assert stack.server.slowlog_settings()[0] == SCENARIO.slowlog_threshold_us
    assert len(commands(scene, "port-forward")) == forwards + 1
    time.sleep(0.5)
    stack.check()
    assert set(stack.meter().sample()[0]) >= {"store", "web", "locust", "probe-containers", "lab"}
    assert stack.memory_mb()["store"] == 60.0


def broken(stack: KubernetesStack) -> str:
    """What `check` complains about; empty while it does not."""
    try:
        stack.check()
    except StackError as error:
        return str(error)
    return ""


def test_a_container_that_ends_is_noticed(scene: Scene, stack: KubernetesStack) -> None:
    """A container that ends takes the lab's shell along; the line says what became of it, and where to look."""
    stack.up(lambda text: None)
    assert not broken(stack)
    found = scene.pods()
    next(each for each in found if each["pod"] == "locust-valkey-0")["containers"][0]["restarts"] = 1
    scene.kubectl.has(found)
    scene.kubectl.does("ended-locust-valkey")
    said = eventually(lambda: broken(stack))
    assert said == (
        "locust-valkey is gone in the middle of the run, it ended, and Kubernetes starts it again: "
        "kubectl --namespace team-7 describe pod locust-valkey-0"
    )


def test_a_forward_that_dies_is_noticed(scene: Scene, stack: KubernetesStack) -> None:
    """A lost port-forward ends the run with kubectl's own words."""
    stack.up(lambda text: None)
    scene.kubectl.does("lost-storefront-valkey-0")
    assert "port-forward to storefront-valkey-0 ended unexpectedly" in eventually(lambda: broken(stack))


def test_slow_commands_are_told_by_this_machines_clock(
    stack: KubernetesStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the server's clock is ahead, the moments of its slow log are shifted, into their phases."""
    stack.up(lambda text: None)
    ahead = 30.0
    monkeypatch.setattr(stack.server._client, "time", lambda: (int(time.time() + ahead), 500_000))
    stack.server.configure_slowlog(0)
    moments = [at for _, at, _, _ in stack.server.slowlog()]
    assert moments and max(moments) == pytest.approx(time.time() - ahead, abs=5)


def test_what_a_lost_forward_led_to_is_put_back(scene: Scene, stack: KubernetesStack) -> None:
    """A forward that was lost is made once more at the same address at the end, for what is to be put back."""
    scene.native.web.use("keys", 77)
    stack.up(lambda text: None)
    stack.web.use("index", 5)
    scene.kubectl.does("lost-storefront-valkey-0")
    eventually(lambda: broken(stack))
    (scene.kubectl.folder / "lost-storefront-valkey-0").unlink()
    first, before = commands(scene, "port-forward"), stack.web.base_url
    stack.down()
    [again] = commands(scene, "port-forward")[len(first) :]
    assert "pod/storefront-valkey-0" in again
    assert before.removeprefix("http://127.0.0.1:") in {word.partition(":")[0] for word in again}
    assert scene.native.web.ask("GET", "/settings/invalidation")["strategy"] == "keys"


def test_a_pod_that_does_not_come_back_is_one_line(
    scene: Scene, stack: KubernetesStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no node takes the new pod, the line says why, and what was changed is put back."""
    monkeypatch.setattr(kubernetes, "REPLACED_S", 0.5)
    stack.up(lambda text: None)
    found = scene.pods()
    again = next(each for each in found if each["pod"] == "valkey-0")
    again["containers"][0] |= {"running": False, "why": "Unschedulable"}
    scene.kubectl.has(found)
    with pytest.raises(StackError, match=r"valkey-0 does not run again after 0\.5 s: Unschedulable"):
        stack.empty()
    stack.down()
    assert scene.control.asked[-1] == ("/api/resume", {})


def test_a_server_with_less_than_a_core_counts_its_share(scene: Scene, tmp_path: Path) -> None:
    """A limit below a core is the server's whole, and is said before the run: near the knee it holds the server."""
    scene.kubectl.reads([*old_groups(limit=25_000), *of_node()])
    said: list[str] = []
    stack = KubernetesStack(SCENARIO, examine("valkey", Kubectl(SPACE)), tmp_path / "run", seed=3)
    try:
        stack.up(said.append)
        assert stack.share == 0.25
        assert said[0].startswith("valkey may use 0.25 of a core: near the knee its limit holds it")
        whole = scene.native.server
        whole.wait(5)
        mine, plain = stack.server.snapshot().main_thread_s, whole.snapshot().main_thread_s
        assert mine is not None and plain is not None
        assert mine == pytest.approx(4 * plain, rel=0.5)
    finally:
        stack.down()


def test_more_keys_than_the_pod_may_hold_are_refused(scene: Scene, tmp_path: Path) -> None:
    """Too many keys are refused before anything is changed: one line with both figures, exit code 2, no folder."""
    found = scene.pods()
    next(each for each in found if each["pod"] == "valkey-0")["containers"][0]["memory"] = "300M"
    scene.kubectl.has(found)
    place = tmp_path / "place"
    place.mkdir()
    words = ("--stack", "kubernetes", "--namespace", SPACE, "--server", "valkey", "--keys", "1000000")
    answer = typed("run", "key-growth", *words, cwd=place)
    assert answer.is_one_line(2), answer
    assert "1,000,000 keys on valkey need about 0.4 GB of memory, and 0.3 GB are allowed" in answer.err
    assert tree(place) == []
    assert scene.control.asked == []
    assert not commands(scene, "delete")


def findings(folder: Path) -> dict[str, Finding]:
    """Examine the release; return the findings by name."""
    said: list[Finding] = []
    rehearse_release(SPACE, folder, said.append)
    return {finding.what: finding for finding in said}


def test_the_doctor_says_what_is_ready(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cluster, rights, containers and what validity is judged by are findings; then the pages are looked at."""
    monkeypatch.setattr("lab.stacks.rehearsal.FILLING_S", 10.0)
    found = findings(tmp_path)
    assert found["cluster"].detail == "kubernetes v1.34.2, kubelet v1.34.2, runtime containerd://1.6.20"
    assert found["rights"].ok
    assert found["release"].detail == "lab, with redis, valkey"
    assert found["containers"].ok
    assert "control groups of version 2 show CPU time, throttling" in found["validity, valkey"].detail
    assert "waiting for a core; the server has a limit of 1.5 cores" in found["validity, valkey"].detail
    assert found["validity, redis"].detail == "invalidator-redis is not there"
    assert found["Locust, Valkey"].ok
    assert "dashboards" in found


def test_the_doctor_says_what_is_missing(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing rights are named, and what needs them is left out."""
    monkeypatch.setattr("lab.stacks.rehearsal.FILLING_S", 0.2)
    scene.kubectl.denies("create pods/exec", "create pods/portforward")
    found = findings(tmp_path)
    assert found["rights"].detail.startswith(
        "missing: create pods/exec, create pods/portforward; deploy/README.md"
    )
    assert not [what for what in found if what.startswith(("validity", "Locust", "control page"))]


DOCTOR = {
    "--namespace goes with --scene": (("doctor", "--namespace", SPACE), 2),
    "the namespace team-7 has no release of the lab": (("doctor", "--scene", "--namespace", SPACE), 3),
    "--namespace takes a name": (("doctor", "--scene", "--namespace", "-x"), 2),
}


@pytest.mark.parametrize("said", DOCTOR)
def test_the_doctor_refuses_in_one_line(kubectl: FakeKubectl, tmp_path: Path, said: str) -> None:
    """A namespace without a release, and a name that is none, are one line."""
    words, code = DOCTOR[said]
    answer = typed(*words, cwd=tmp_path)
    assert answer.is_one_line(code), answer
    assert said in answer.err


def test_a_diagnosis_goes_through_a_forward(scene: Scene, tmp_path: Path) -> None:
    """`bin/lab diagnose --namespace` looks at the release's server, and says by which way."""
    answer = typed("diagnose", "--namespace", SPACE, "--server", "valkey", "--seconds", "2", cwd=tmp_path)
    assert answer.code == 0, answer
    assert "Through a port-forward, which adds to every wait." in answer.err
    assert "redis://valkey.team-7" in answer.err


@pytest.mark.whole
def test_whole_run_on_the_kubernetes_stack(scene: Scene, tmp_path: Path) -> None:
    """`lab run key-growth --stack kubernetes` walks all phases and judges every claim; the pause ends with it."""
    out = tmp_path / "whole"
    answer = lab(
        "run", "key-growth", "--stack", "kubernetes", "--namespace", SPACE, "--server", "valkey", "--pace", "quick",
        "--keys", "40000", "--out", str(out), "--json", cwd=tmp_path, seconds=400,
    )  # fmt: skip
    assert answer.code in (0, 1, 4), (
        answer
    )  # how the claims come out on this machine is another test's matter
    result = json.loads(answer.out)
    facts = json.loads((out / "run.json").read_text())
    assert (facts["stack"], facts["server"], facts["interrupted"]) == ("kubernetes", "valkey", False)
    assert facts["host"]["kubernetes"] == facts["host"]["kubelet"] == "v1.34.2"
    assert f"--stack kubernetes --namespace {SPACE} --server valkey" in facts["command"]
    assert [phase["id"] for phase in result["phases"]] == [phase.id for phase in SCENARIO.phases]
    assert not [claim for claim in result["claims"] if claim["measured"].startswith("not measured")]
    assert {"no container was held by its limit", "no container waited for a core"} <= {
        each["check"] for each in result["validity"]
    }
    assert scene.control.asked[-1] == ("/api/resume", {})
    assert scene.neighbour.state["/load"]["events_per_second"] == 12.5
