"""`make room-cluster` and its end, on a cluster that is a file: checks, releases, addresses, what is removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from lab.stacks import room_checks, room_cluster, room_kube, room_plan

STANDIN = Path(__file__).with_name("kube_standin.py")
START = """#!/bin/sh
# Rights are asked for often: the shell answers by itself.
if [ "$1 $2" = "auth can-i" ]; then ! grep -qx "$3 $4" "$FAKE_KUBE/denied"; exit; fi
exec {python} -SE {file} {name} "$@"
"""
Say = pytest.CaptureFixture[str]
READY = [{"type": "Ready", "status": "True"}]
DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


def node(name: str, cpu: str = "64", **spec: Any) -> dict[str, Any]:
    """A node that is ready."""
    has = {"cpu": cpu, "memory": "262144Mi", "pods": "110"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": has, "conditions": READY}}


def namespace(name: str, ours: bool = False, phase: str = "Active") -> dict[str, Any]:
    """A namespace, of this lab or of somebody else."""
    labels = {room_kube.MADE_BY: room_kube.ROOM_CLUSTER} if ours else {"team": "somebody's"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}


def priority(group: str, release: str) -> dict[str, Any]:
    """The class of a probe's priority that Helm made for a release in the namespace of a group."""
    notes = {"meta.helm.sh/release-namespace": group, "meta.helm.sh/release-name": release}
    return {"metadata": {"name": f"{group}-probe", "annotations": notes}}


class Kube:
    """The cluster's file, and the calls that it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "given").mkdir()
        self.denies("nothing")
        self.has(
            namespaces=[namespace("default"), namespace("kube-system")],
            nodes=[node("one")],
            pods=[],
            storageclasses=[{"metadata": {"name": "fast", **DEFAULT}}],
            ingressclasses=[],
            priorityclasses=[],
            releases={},
            pods_of={"room": 3, "scene": 10},
            not_ready=[],
            version="v1.34.2",
        )

    @property
    def now(self) -> dict[str, Any]:
        """What is on the cluster."""
        path = self.folder / "cluster.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def has(self, **what: Any) -> None:
        """Change what is on the cluster."""
        (self.folder / "cluster.json").write_text(json.dumps({**self.now, **what}))

    def denies(self, *rights: str) -> None:
        """Deny rights: "create namespaces"."""
        (self.folder / "denied").write_text("".join(f"{right}\n" for right in rights))

    def fails(self, words: str, said: str) -> None:
        """Let calls fail that begin with these words."""
        (self.folder / "fail.json").write_text(json.dumps({"words": words, "said": said}))

    def calls(self, words: str) -> list[list[str]]:
        """The calls so far that begin with these words."""
        log = self.folder / "calls.log"
        found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [call for call in found if " ".join(call).startswith(words)]

    def changes(self) -> list[str]:
        """The calls so far that change something."""
        verbs = ("kubectl create", "kubectl delete", "helm upgrade", "helm uninstall")
        return [" ".join(call[:3]) for verb in verbs for call in self.calls(verb)]

    @property
    def names(self) -> set[str]:
        """The namespaces that there are."""
        return {each["metadata"]["name"] for each in self.now["namespaces"]}

    def values(self, name: str) -> dict[str, Any]:
        """The last values file that a namespace's release was installed with."""
        last = sorted((self.folder / "given").glob(f"{name}-[0-9]"))[-1]
        return dict(json.loads(last.read_text()))


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kube:
    """The stand-ins on PATH, before anything of the machine's, and a cluster with one large node."""
    folder, tools = tmp_path / "kube", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    for name in ("kubectl", "helm"):
        (tools / name).write_text(START.format(python=sys.executable, file=STANDIN, name=name))
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("FAKE_KUBE", str(folder))
    monkeypatch.setattr(room_cluster, "LOOK_S", 0.05)
    return Kube(folder)


def up(*words: str, page: Path, groups: str = "2") -> int:
    """Type `up`."""
    return room_cluster.main(["up", "--groups", groups, "--out", str(page), "--wait", "5", *words])


def refused(code: int, capsys: Say, said: str, expected: int = 3) -> None:
    """Assert that a command ended with this exit code and one line that says so."""
    out, err = capsys.readouterr()
    assert code == expected, out + err
    assert err.startswith("lab: ") and err.count("\n") == 1, err
    assert said in out + err


# -- it comes up ------------------------------------------------------------------------------------------------------


def test_each_group_has_a_namespace_and_a_release(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """Namespaces have their labels; the room is told of all groups; the page has an address for each."""
    kube.has(nodes=[node("one"), node("two")])
    assert up(page=tmp_path / "room.html", groups="12") == 0
    groups = room_plan.names(12)
    assert kube.names == {"default", "kube-system", room_plan.ROOM, *groups}
    for made in kube.now["namespaces"][2:]:
        assert made["metadata"]["labels"] == {
            "redis-latency-lab/made-by": "room-cluster",
            "pod-security.kubernetes.io/enforce": "restricted",
        }
    assert kube.now["releases"] == dict.fromkeys([room_plan.ROOM, *groups], "deployed")
    first = kube.calls("helm upgrade")[0]
    assert first[3:7] == ["room", str(room_plan.CHART), "--namespace", room_plan.ROOM]
    room = kube.values(room_plan.ROOM)
    assert room["observability"]["releases"] == {each: ["dragonfly", "redis"] for each in groups}
    assert room["resources"] == room_plan.room_resources(room_plan.chart_values(), 12)
    assert kube.values("team-7")["observability"] == {"shared": True, "namespace": room_plan.ROOM}
    assert kube.values("team-7")["ingress"]["enabled"] is False
    links = kube.values("team-7")["links"]
    assert links["grafana"] == "http://127.0.0.1:3000" and links["tempo"] == "" == links["locust"]["redis"]
    out, page = capsys.readouterr().out, (tmp_path / "room.html").read_text()
    for group in groups:
        assert f"kubectl --namespace {group} port-forward service/control 8080:8080" in out
        assert f"kubectl --namespace {group} port-forward service/control 8080:8080" in page
    assert "13 of 13 releases, 123 of 123 workloads" in out


def test_with_a_domain_each_group_has_a_link(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """With HOST a group's page has a name of its own, through the only class of ingress; nobody needs kubectl."""
    kube.has(
        ingressclasses=[{"metadata": {"name": "nginx"}}],
        namespaces=[*kube.now["namespaces"], namespace("ingress-nginx")],
    )
    assert up("--host", "lab.example", page=tmp_path / "room.html") == 0
    way = {"enabled": True, "className": "nginx", "namespace": "ingress-nginx"}
    assert kube.values("team-2")["ingress"] == {**way, "host": "team-2.lab.example"}
    assert kube.values(room_plan.ROOM)["ingress"] == {**way, "host": "grafana.lab.example"}
    links = kube.values("team-2")["links"]
    assert (
        links["grafana"] == "http://grafana.lab.example" and links["tempo"] == "" == links["locust"]["redis"]
    )
    page = (tmp_path / "room.html").read_text()
    assert '<a href="http://team-2.lab.example">' in page and "kubectl" not in page
    assert "http://team-2.lab.example" in capsys.readouterr().out


def test_own_values_go_to_every_release(kube: Kube, tmp_path: Path) -> None:
    """A file of values is given to the room and to each group, before what the command sets itself."""
    file = tmp_path / "own.yaml"
    file.write_text("servers: [redis]\nimages: {lab: registry.example/lab:1}\n")
    kube.has(pods_of={"room": 3, "scene": 6})
    assert up("--values", str(file), page=tmp_path / "room.html") == 0
    for call in kube.calls("helm upgrade"):
        assert call[call.index("--values") + 1] == str(file)
    assert kube.values(room_plan.ROOM)["observability"]["releases"]["team-1"] == ["redis"]


def test_it_goes_on_after_an_interruption(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """What is there is kept, what is missing is made, and a release that Helm left half made is made anew."""
    kube.fails("helm upgrade --install scene", "Error: context deadline exceeded")
    refused(up(page=tmp_path / "room.html"), capsys, "context deadline exceeded")
    assert kube.names >= {"team-1", "team-2"} and set(kube.now["releases"]) == {room_plan.ROOM}
    (kube.folder / "fail.json").unlink()
    kube.has(releases={**kube.now["releases"], "team-2": "pending-install"})
    assert up(page=tmp_path / "room.html") == 0
    assert len(kube.calls("kubectl create")) == 1, "namespaces are made once"
    assert [call[4] for call in kube.calls("helm uninstall")] == ["team-2"]
    assert set(kube.now["releases"].values()) == {"deployed"}
    assert up(page=tmp_path / "room.html") == 0, "and once more"


def test_the_rooms_own_pods_are_no_strangers(kube: Kube, tmp_path: Path) -> None:
    """On a cluster that the room fills, a second run finds the same room: its own pods are packed anew."""
    cores = room_plan.needed(room_plan.chart_values(), 2)[0]
    kube.has(nodes=[node("one", f"{1000 * cores + 100:.0f}m")])
    assert up(page=tmp_path / "room.html") == 0
    needs = {"cpu": "1000m", "memory": "1Gi"}
    pods = kube.now["pods"]
    for pod in pods:
        pod["spec"] = {"nodeName": "one", "containers": [{"resources": {"requests": needs}}]}
    kube.has(pods=pods)
    assert up(page=tmp_path / "room.html") == 0


def test_names_on_the_page_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a group is called, the page shows it as text."""
    monkeypatch.setattr(room_plan, "names", lambda groups: ["<script>alert(1)</script>"] * groups)
    room_cluster.write(tmp_path / "room.html", room_checks.Asked(1))
    page = (tmp_path / "room.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_a_page_that_cannot_be_written_is_one_line(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """The room is up, and the line says so."""
    (tmp_path / "file").write_text("")
    refused(up(page=tmp_path / "file" / "room.html"), capsys, "The room is up; choose another --out.")


# -- it is refused, and nothing is changed ----------------------------------------------------------------------------


@pytest.mark.parametrize("groups", ["", "0", "-3", "201", "many", "4.5", "9999999999", "4 0"])
def test_a_number_of_groups_that_is_none(groups: str, kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """Anything but 1 to 200 is one line, and nothing is asked of the cluster."""
    code = room_cluster.main(["up", f"--groups={groups}", "--out", str(tmp_path / "room.html")])
    refused(code, capsys, "the number of groups must be 1 to 200", 2)
    assert kube.calls("") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "http://lab.example"], "is no domain"),
        (["--host", "Lab.example"], "is no domain"),
        (["--host", "lab"], "is no domain"),
        (["--host=-.example"], "is no domain"),
        (["--ingress-namespace", "The Controller"], "is no name of a namespace"),
        (["--values", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    ],
)
def test_bad_words_are_one_line(words: list[str], said: str, kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """A domain, a namespace and a file that cannot be are named before anything is asked of the cluster."""
    refused(up(*words, page=tmp_path / "room.html"), capsys, said, 2)
    assert kube.calls("") == []


@pytest.mark.parametrize(
    "words", [[], ["sideways"], ["up"], ["up", "--groups", "2", "--wait", "long"], ["down", "x"]]
)
def test_unknown_words_are_one_line(words: list[str], capsys: Say) -> None:
    """A wrong verb, a missing and a wrong option are one line each."""
    with pytest.raises(SystemExit) as ended:
        room_cluster.main(words)
    refused(int(str(ended.value.code)), capsys, "", 2)


def _nodes(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": list(nodes)}


OTHERS = [{"metadata": {"namespace": "shop", "name": "x"}, "spec": {"nodeName": "one", "containers": [
    {"resources": {"requests": {"cpu": "63", "memory": "1Gi"}}}]}, "status": {"phase": "Running"}}]  # fmt: skip
TAINT = {"key": "gpu", "effect": "NoSchedule"}
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "too old": ({"version": "v1.29.9"}, "1.30 is needed"),
    "a stranger's namespace": ({"namespaces": [namespace("team-2")]}, "team-2 is there already"),
    "an ending namespace": ({"namespaces": [namespace("team-1", True, "Terminating")]}, "still being deleted"),
    "a larger room": ({"namespaces": [namespace(f"team-{i}", True) for i in (1, 2, 3, 4)]}, "of a larger room"),
    "a class left over": ({"priorityclasses": [priority("team-2", "lab")]}, "team-2-probe is another release's"),
    "no storage": ({"storageclasses": []}, "no default class"),
    "no node": ({"nodes": []}, "0 of 2 groups fit"),
    "small nodes": (_nodes(*(node(f"small-{i}", "1400m") for i in range(20))), "0 of 2 groups fit"),
    "one group's room": (_nodes(node("one", "8")), "1 of 2 groups fit: 1 node with 8.0 cores and"),
    "a cordoned node": (_nodes(node("one", unschedulable=True)), "0 of 2 groups fit"),
    "a node for others": (_nodes(node("one", taints=[TAINT])), "0 of 2 groups fit"),
    "a full node": ({"pods": OTHERS}, "0 of 2 groups fit: 1 node with 1.0 cores and"),
    "a strange quantity": (_nodes(node("one", "lots")), "cannot be read: 'lots'"),
}  # fmt: skip


def test_the_rooms_own_classes_are_no_strangers(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """Classes of the room itself, and those that come with a cluster, are not in the way."""
    critical = {"metadata": {"name": "system-node-critical"}}
    kube.has(priorityclasses=[priority("team-1", "scene"), critical])
    assert up(page=tmp_path / "room.html") == 0
    assert "priorities: each probe may have its class" in capsys.readouterr().out


@pytest.mark.parametrize("case", CHANGES)
def test_a_cluster_that_will_not_do_is_left_alone(case: str, kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """What is missing is said in a line of its own, and nothing is changed."""
    change, said = CHANGES[case]
    kube.has(**change)
    refused(up(page=tmp_path / "room.html"), capsys, said)
    assert kube.changes() == []
    assert not (tmp_path / "room.html").exists()


@pytest.mark.parametrize(
    ("words", "said", "expected"),
    [
        (
            "kubectl version",
            "Unable to connect to the server: no such host",
            "classroom does not answer: Unable",
        ),
        ("kubectl config", "error: current-context is not set", "kubectl has none chosen"),
        ("kubectl get nodes", "Error from server (Forbidden): no", "kubectl get nodes: Error from server"),
        (
            "helm template",
            "level=INFO msg='symbolic link'\nError: at '/servers': no\n\nUse --debug",
            "at '/servers'",
        ),
    ],
)
def test_what_fails_is_told_by_its_last_line(
    words: str, said: str, expected: str, kube: Kube, tmp_path: Path, capsys: Say
) -> None:
    """A cluster without an answer, a question that is refused and values that the chart refuses: one line each."""
    kube.fails(words, said)
    refused(up(page=tmp_path / "room.html"), capsys, expected)
    assert kube.changes() == []


def test_without_kubectl_or_helm_it_says_where_they_are(
    kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Say
) -> None:
    """Both programs are looked for before anything else."""
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(up(page=tmp_path / "room.html"), capsys, "MISS kubectl: not on PATH")
    refused(room_cluster.main(["down"]), capsys, "kubectl: not on PATH")


@pytest.mark.parametrize(
    ("classes", "more", "said"),
    [
        ([], [], "the cluster has no ingress class"),
        (["a", "b"], [], "none of the classes is the default: INGRESS_CLASS=a or b"),
        (["a"], ["--ingress-class", "b"], "there is no class b: INGRESS_CLASS=a"),
        (["a"], ["--ingress-namespace", "elsewhere"], "there is no elsewhere"),
    ],
)
def test_a_domain_needs_a_controller(
    classes: list[str], more: list[str], said: str, kube: Kube, tmp_path: Path, capsys: Say
) -> None:
    """HOST needs a class of ingress and the namespace of its controller."""
    kube.has(
        ingressclasses=[{"metadata": {"name": name}} for name in classes],
        namespaces=[*kube.now["namespaces"], namespace("ingress-nginx")],
    )
    refused(up("--host", "lab.example", *more, page=tmp_path / "room.html"), capsys, said)
    assert kube.changes() == []


def test_pods_that_wait_for_a_node_are_told(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """After the time to wait it says which groups are not ready, and what the scheduler says."""
    kube.has(not_ready=["team-2"])
    refused(up("--wait", "0.2", page=tmp_path / "room.html"), capsys, "team-2 is not ready, 10 pods complain")
    assert up("--wait", "0", page=tmp_path / "room.html") == 0, "without waiting nobody looks"
    told = {room_kube.complaint(pod) for pod in kube.now["pods"]}
    assert told == {"", "no node for it: 0/1 nodes available"}


@pytest.mark.parametrize(("typed", "counts"), [(["HOST=lab.example"], True), ([], False)])
def test_only_a_typed_host_counts(typed: list[str], counts: bool) -> None:
    """HOST in the environment is a shell's name for this machine: only on make's command line it is a domain."""
    done = subprocess.run(
        ["make", "--dry-run", "room-cluster", "N=4", *typed],
        cwd=ROOT,
        env={**os.environ, "HOST": "lab.example"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert '--groups "4"' in done.stdout
    assert ("--host" in done.stdout) == counts


# -- it ends ----------------------------------------------------------------------------------------------------------


def test_only_what_it_made_is_removed(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """`down` removes the namespaces with the lab's label, and no other, whatever they are called."""
    assert up(page=tmp_path / "room.html") == 0
    kube.has(
        namespaces=[*kube.now["namespaces"], namespace("team-3")],
        releases={**kube.now["releases"], "team-3": "deployed"},
    )
    capsys.readouterr()
    assert room_cluster.main(["down"]) == 0
    assert kube.names == {"default", "kube-system", "team-3"}
    assert kube.now["releases"] == {"team-3": "deployed"}
    assert "removed 3 namespaces" in capsys.readouterr().out
    assert room_cluster.main(["down"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_a_release_that_stays_keeps_its_namespace(kube: Kube, tmp_path: Path, capsys: Say) -> None:
    """If Helm cannot take a release away, its namespace stays too: an object of the release belongs to no namespace."""
    assert up(page=tmp_path / "room.html") == 0
    capsys.readouterr()
    kube.fails("helm uninstall", "Error: forbidden")
    refused(room_cluster.main(["down"]), capsys, "forbidden")
    assert kube.calls("kubectl delete") == []


def test_ctrl_c_is_one_line(kube: Kube, tmp_path: Path) -> None:
    """Ctrl-C while releases are installed ends with one line, what to type, and exit code 130; nothing new begins."""
    (kube.folder / "slow").write_text("1.5")
    command = [sys.executable, "-m", "lab.stacks.room_cluster", "up", "--groups", "9"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "room.html")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 60
    while not (kube.folder / "installing").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: kubectl and Helm get it, too
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == f"lab: interrupted; {room_cluster.CONTINUES}.\n"
    assert "make room-cluster-down" in err
    assert len(kube.now["releases"]) < 8
