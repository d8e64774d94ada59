"""What the lab finds in a namespace, what it refuses there before anything is changed, and how it reads a container."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.errors import StackError
from lab.stacks import kubernetes
from lab.stacks.kubectl import Kubectl
from lab.stacks.kubernetes import clock_offset, examine, shifted
from lab.stacks.pods import RIGHTS, find_pods, in_bytes, node_facts, server_in
from lab.stacks.podusage import FILES, SCRIPT, Placed, PodMeter, Reading, parse, require_metrics
from tests.lab.labkit import tree, typed
from tests.lab.stacks.kubekit import (
    GROUP,
    SPACE,
    FakeKubectl,
    container,
    new_groups,
    of_node,
    old_groups,
    pod,
    release,
)

HERE = ("--stack", "kubernetes", "--namespace", SPACE)


def test_a_release_is_found_with_all_it_tells(kubectl: FakeKubectl) -> None:
    """Pods, environment, memory and nodes come from one question, without pods that are about to end."""
    kubectl.has(
        [
            *release("redis"),
            pod("redis", container("redis"), uid="old", ending=True),
            pod("control", container("control")),
            pod("storefront-valkey", container("web-valkey"), node="node-2"),
            pod("locust-valkey", container("locust-valkey")),
        ]
    )
    scene = find_pods("redis", Kubectl(SPACE))
    assert (scene.release, scene.server, scene.others()) == ("lab", "redis", ["valkey"])
    server = scene.of("server")
    assert (server.pod, server.uid, server.memory) == ("redis-0", "uid-of-redis-0", 1280 * 2**20)
    assert scene.has("control") and not scene.has("grafana")
    assert scene.env("web-redis") == {"APP_STORE_URL": "redis://redis:6379/0"}
    assert scene.parts()["probe-containers"].service == "probe-redis"
    assert set(scene.parts()) == {"store", "web", "invalidator", "warmer", "locust", "probe-containers"}
    assert kubectl.calls == [
        ["get", "pods", "--selector", "app.kubernetes.io/name=redis-latency-lab", "--output", "json"]
    ]


QUANTITIES = {
    "640Mi": 640 * 2**20,
    "1Gi": 2**30,
    "128974848": 128_974_848,
    "129e6": 129_000_000,
    "1G": 10**9,
    "": 0,
    "x": 0,
}


@pytest.mark.parametrize("text", QUANTITIES)
def test_quantities_are_read(text: str) -> None:
    """Memory is read in the forms that Kubernetes allows; what is none counts as no limit."""
    assert in_bytes(text) == QUANTITIES[text]


Change = Callable[[FakeKubectl], None]


def _without(kubectl: FakeKubectl, *components: str) -> None:
    kubectl.has([each for each in release("redis") if each["component"] not in components])


def _with(kubectl: FakeKubectl, service: str, **keys: Any) -> None:
    found = release("redis")
    for each in (one for made in found for one in made["containers"]):
        if each["service"] == service:
            each.update(keys)
    kubectl.has(found)


def _has(kubectl: FakeKubectl, denied: tuple[str, ...] = (), reads: list[str] | None = None) -> None:
    kubectl.has(release("redis"))
    kubectl.denies(*denied)
    if reads:
        kubectl.reads(reads)


UNSEEN = "this cluster does not show what a run's validity is judged by: a container here cannot read"
REFUSALS: dict[str, tuple[Change, tuple[str, ...], int]] = {
    "the namespace team-7 has no release of the lab": (lambda k: k.has([]), (), 3),
    "the namespace team-7 has 2 releases of the lab, lab and other": (
        lambda k: k.has([*release("redis"), pod("control", container("control"), instance="other")]),
        (),
        3,
    ),
    "the release lab in team-7 has no valkey; it has redis: --server redis": (
        lambda k: k.has(release("redis")),
        ("--server", "valkey"),
        3,
    ),
    "the chart has no keydb server; it knows valkey, redis, dragonfly": (
        lambda k: k.has(release("redis")),
        ("--server", "keydb"),
        2,
    ),
    "the release lab in team-7 has no probe-redis": (lambda k: _without(k, "probe-redis"), (), 3),
    "web-redis does not run (CrashLoopBackOff): kubectl --namespace team-7 describe pod storefront-redis-0": (
        lambda k: _with(k, "web-redis", running=False, why="CrashLoopBackOff"),
        (),
        3,
    ),
    "redis is not ready: kubectl --namespace team-7 describe pod redis-0": (
        lambda k: _with(k, "redis", ready=False),
        (),
        3,
    ),
    "no right in the namespace team-7 to delete pods, create pods/exec: deploy/README.md has the Role": (
        lambda k: _has(k, denied=("delete pods", "create pods/exec")),
        (),
        3,
    ),
    "no right to do this in the namespace team-7: pods is forbidden": (
        lambda k: k.fails("get pods", "Error from server (Forbidden): pods is forbidden: User cannot list"),
        (),
        3,
    ),
    "no cluster answers kubectl: The connection to the server localhost:8080 was refused": (
        lambda k: k.fails("get pods", "The connection to the server localhost:8080 was refused - did you"),
        (),
        3,
    ),
    f"{UNSEEN} {GROUP}/cpu/cpu.stat": (
        lambda k: _has(k, reads=of_node()),
        (),
        3,
    ),
    "--port is for the native stack: leave --stack kubernetes out": (
        lambda k: k.has(release("redis")),
        ("--port", "6390"),
        2,
    ),
    "--url is for the native stack: leave --stack kubernetes out": (
        lambda k: k.has(release("redis")),
        ("--url", "redis://127.0.0.1:1/0"),
        2,
    ),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    kubectl: FakeKubectl, tmp_path: Path, said: str
) -> None:
    """Each refusal is one line with its exit code. No folder is made, and no command that changes anything is given."""
    change, options, code = REFUSALS[said]
    change(kubectl)
    place = tmp_path / "place"
    place.mkdir()
    answer = typed("run", "key-growth", *HERE, *options, cwd=place)
    assert answer.is_one_line(code), answer
    assert said in answer.err
    assert tree(place) == []
    assert not [
        words for words in kubectl.calls if words[0] in ("delete", "apply", "create", "patch", "scale")
    ]


USAGE = {
    "--stack kubernetes needs the namespace of a release: --namespace NAME": ("--stack", "kubernetes"),
    "--namespace is for --stack kubernetes": ("--namespace", SPACE),
    "--namespace takes a name such as team-7, not 'Team 7'": (
        "--stack",
        "kubernetes",
        "--namespace",
        "Team 7",
    ),
}


@pytest.mark.parametrize("said", USAGE)
def test_a_namespace_belongs_to_the_stack(tmp_path: Path, said: str) -> None:
    """A namespace that is missing, is no name, or belongs to no cluster is bad usage: one line, no kubectl is asked."""
    answer = typed("run", "key-growth", *USAGE[said], cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert said in answer.err


def test_a_scenario_that_chooses_at_the_start_of_a_server_is_refused(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    """A cluster's nodes are started so; the chart's servers are not."""
    kubectl.has(release("redis"))
    answer = typed("run", "one-slot", *HERE, cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "the kubernetes stack starts its servers without" in answer.err


LOOKS = {
    "the release lab in team-7 has no valkey; it has redis: --server redis": (
        ("--namespace", SPACE, "--server", "valkey"),
        3,
    ),
    "there is no server 'control'": (("--namespace", SPACE, "--server", "control"), 2),
    "name a server by its URL": (("redis://127.0.0.1:1/0", "--namespace", SPACE), 2),
    "--server is for --namespace": (("redis://127.0.0.1:1/0", "--server", "redis"), 2),
    "are for a URL": (("--namespace", SPACE, "--insecure"), 2),
}


@pytest.mark.parametrize("said", LOOKS)
def test_a_diagnosis_names_one_server(kubectl: FakeKubectl, tmp_path: Path, said: str) -> None:
    """A server is named by its URL or by its release, and not by both."""
    kubectl.has(release("redis"))
    words, code = LOOKS[said]
    answer = typed("diagnose", *words, cwd=tmp_path)
    assert answer.is_one_line(code), answer
    assert said in answer.err


def test_the_server_of_a_release_has_an_address_here(kubectl: FakeKubectl) -> None:
    """Within the block the server is behind a port-forward, whatever becomes of the other parts."""
    kubectl.has(release("redis", {"redis": {6379: 16379}})[:2])
    with server_in(SPACE, "redis") as url:
        assert url == "redis://127.0.0.1:16379/0"


def test_rights_are_all_asked(kubectl: FakeKubectl) -> None:
    """Every right that a run needs is asked for before it begins."""
    kubectl.has(release("redis"))
    examine("redis", Kubectl(SPACE))
    asked = {tuple(words[2:]) for words in kubectl.calls if words[:2] == ["auth", "can-i"]}
    assert asked == {
        (verb, kind, *([f"--subresource={part}"] if part else [])) for verb, kind, part in RIGHTS
    }


def test_clocks_that_differ_are_refused(kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks on one machine agree; one that is two seconds off is refused, with how far it is."""
    kubectl.has(release("redis"))
    scene = find_pods("redis", Kubectl(SPACE))
    assert clock_offset(scene) == 0.0
    ahead = kubernetes.CLOCK.replace("time.time()", "time.time() + 0.5")
    monkeypatch.setattr(kubernetes, "CLOCK", ahead)
    assert clock_offset(scene) == pytest.approx(0.5, abs=0.2)
    monkeypatch.setattr(kubernetes, "CLOCK", ahead.replace("+ 0.5", "- 2.5"))
    with pytest.raises(
        StackError, match=r"the clocks of this machine and of the node of probe-redis differ by 2\.\d s"
    ):
        clock_offset(scene)


def test_moments_of_another_clock_are_shifted() -> None:
    """A line's moment is told by this machine's clock; all else in it, and what is no line of JSON, stays."""
    assert json.loads(shifted(b'{"t": 100.25, "sent": 3}\n', 0.25)) == {"t": 100.0, "sent": 3}
    for line in (b'{"sent": 3}\n', b"[1, 2]\n", b'{"t": "x"}\n', b'{"t": 1'):
        assert shifted(line, 0.25) == line


def test_facts_are_those_of_the_node(kubectl: FakeKubectl) -> None:
    """Kernel, cores and memory are read in the server's container; versions are those that the user may see."""
    kubectl.has(release("redis"))
    scene = find_pods("redis", Kubectl(SPACE))
    facts = node_facts(scene)
    assert str(facts["system"]).startswith("Linux ")
    assert (facts["nodes"], facts["kubernetes"], facts["kubelet"]) == (1, "v1.34.2", "v1.34.2")
    assert int(facts["cores"]) >= 1 and float(facts["memory_gb"]) > 0
    kubectl.fails("get node", 'Error from server (Forbidden): nodes "node-1" is forbidden')
    assert "kubelet" not in node_facts(scene)


# -- readings ----------------------------------------------------------------------------------------------------------


def test_a_reading_of_new_control_groups() -> None:
    """Version 2 tells CPU time, throttling, waiting, the limit and memory; the node's counters come along."""
    found = parse([*new_groups(cpu_s=12.5, held_s=0.25, waited_s=1.5), *of_node()])
    assert (found.version, found.cpu_s, found.held_s, found.waited_s, found.quota) == (
        2,
        12.5,
        0.25,
        1.5,
        1.5,
    )
    assert found.memory_mb == 60.0
    assert (found.node.at, found.node.idle_s, found.node.stolen_s) == (1000.0, 902.0, (1.0, 0.2))
    assert found.node.pressure_s == 7.0
    assert parse([*new_groups(limit="max"), *of_node()]).quota is None


def test_a_reading_of_old_control_groups() -> None:
    """Version 1 tells the same but for the waiting, which it does not count."""
    found = parse([*old_groups(cpu_s=12.5, held_s=0.25, limit=25_000), *of_node()])
    assert (found.version, found.cpu_s, found.held_s, found.waited_s, found.quota) == (
        1,
        12.5,
        0.25,
        None,
        0.25,
    )
    assert found.memory_mb == 60.0
    assert found.node.pressure_s is None
    assert parse([*old_groups(limit=-1), *of_node()]).quota is None


@pytest.mark.parametrize("lines", [new_groups(), old_groups()], ids=["version 2", "version 1"])
@pytest.mark.parametrize("file", ["cpu.stat", "memory.current", "cpu.max", "/proc/stat", "/proc/uptime"])
def test_what_is_missing_is_named(lines: list[str], file: str) -> None:
    """A file without which a run cannot be judged is named; one of the other version is not missed."""
    kept = [line for line in [*lines, *of_node()] if not line.partition(":")[0].endswith(file)]
    if len(kept) == len([*lines, *of_node()]):
        parse(kept)
    else:
        with pytest.raises(StackError, match="a container here cannot read"):
            parse(kept)


def test_a_cluster_without_pressure_is_no_error() -> None:
    """Where the kernel does not count pressure, the rest is read."""
    lines = [line for line in [*new_groups(), *of_node()] if "pressure" not in line]
    found = parse(lines)
    assert (found.waited_s, found.node.pressure_s) == (None, None)


def test_the_script_reads_this_machine(tmp_path: Path) -> None:
    """The shell's script works here, where the same files are, and leaves out the lines of many kilobytes."""
    import subprocess

    done = subprocess.run(
        ["sh", "-c", SCRIPT], input="7\n8\n", capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("END ")] == ["END 7", "END 8"]
    if Path("/proc/stat").exists():
        assert any(line.startswith("/proc/stat:cpu0 ") for line in lines)
        assert not [line for line in lines if line.startswith(("/proc/stat:intr", "/proc/stat:softirq"))]
        assert {line.partition(":")[0] for line in lines if not line.startswith("END ")} <= set(FILES)


def placed(reading: Reading, uid: str = "a", where: str = "node-1") -> Placed:
    """A reading of a pod on a node."""
    return Placed(uid, where, reading)


def test_shares_are_measured_by_the_nodes_clock() -> None:
    """CPU time, throttling and waiting are shares of the two seconds that the node counted, not this machine."""
    before = parse([*new_groups(cpu_s=10, held_s=1, waited_s=5), *of_node(1000, (50_000, 40_000), (100, 20))])
    after = parse(
        [*new_groups(cpu_s=11, held_s=1.1, waited_s=5.4), *of_node(1002, (50_060, 40_100), (110, 22))]
    )
    answers = iter([{"store": placed(before), "probe-containers": placed(before)}])
    later = iter([{"store": placed(after), "probe-containers": placed(before)}])
    meter = PodMeter(lambda: next(answers, None) or next(later))
    shares, machine = meter.sample()
    assert (shares["store"], machine["busy"], machine["steal"]) == (0, 0, 0)
    shares, machine = meter.sample()
    assert shares["store"] == pytest.approx(0.5)
    assert shares["probe-containers"] == 0
    assert "lab" in shares
    assert machine["throttled_store"] == pytest.approx(0.05)
    assert machine["waited_store"] == pytest.approx(0.2)
    assert machine["waited_probe"] == 0
    assert machine["steal"] == pytest.approx(0.05), "of the core that lost most"
    assert machine["busy"] == pytest.approx(2 - (1.6 + 0.12) / 2)
    assert machine["others"] == pytest.approx(machine["busy"] - 0.5)
    assert machine["pressure"] == 0


def test_cores_that_no_run_needs_may_be_used_by_others() -> None:
    """On a node of four cores, two may be busy with anything."""
    lines = [line for line in of_node() if not line.startswith("/proc/stat:cpu")]

    def node(at: float, idle: int) -> Reading:
        cores = [f"/proc/stat:cpu{n} 0 0 0 {idle} 0 0 0 0 0 0" for n in range(4)]
        return parse([*old_groups(), *cores, f"/proc/uptime:{at} 1", *lines[1:]])

    answers = iter([{"store": placed(node(10, 0))}, {"store": placed(node(20, 350))}])
    meter = PodMeter(lambda: next(answers))
    meter.sample()
    _, machine = meter.sample()
    assert machine["busy"] == pytest.approx(2.6)
    assert machine["others"] == pytest.approx(0.6)


def test_the_worst_node_counts() -> None:
    """Parts may be on several nodes: the machine's figures are the worst of them, and `busy` is the server's node's."""
    calm = [of_node(10, (0, 0), (0, 0)), of_node(20, (900, 900), (0, 0))]
    robbed = [of_node(50, (0, 0), (0, 0)), of_node(60, (300, 900), (200, 0))]
    answers = iter(
        {
            "store": placed(parse([*old_groups(), *calm[step]])),
            "web": placed(parse([*old_groups(), *robbed[step]]), where="node-2"),
        }
        for step in (0, 1)
    )
    meter = PodMeter(lambda: next(answers))
    meter.sample()
    _, machine = meter.sample()
    assert machine["busy"] == pytest.approx(0.2)
    assert machine["steal"] == pytest.approx(0.2)
    assert machine["others"] == pytest.approx(0.6)


def test_a_pod_that_was_replaced_counts_from_then_on() -> None:
    """The counters of a new pod begin anew: a share over two pods would be nonsense, so there is none."""
    first, second = parse([*old_groups(cpu_s=50), *of_node(10)]), parse([*old_groups(cpu_s=1), *of_node(20)])
    answers = iter([{"store": placed(first)}, {"store": placed(second, uid="b")}])
    meter = PodMeter(lambda: next(answers))
    meter.sample()
    shares, machine = meter.sample()
    assert shares["store"] == 0
    assert "throttled_store" not in machine


def test_metrics_are_tried_before_a_run(kubectl: FakeKubectl) -> None:
    """Each part that is judged is read once; one that cannot be read is one line."""
    kubectl.has(release("redis"))
    scene = find_pods("redis", Kubectl(SPACE))
    assert set(require_metrics(scene)) == {"store", "web", "invalidator", "locust", "probe-containers"}
    kubectl.reads(of_node(), "probe-redis")
    with pytest.raises(
        StackError, match="this cluster does not show what a run's validity is judged by: a container"
    ):
        require_metrics(scene)
