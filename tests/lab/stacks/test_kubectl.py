"""How the lab reads kubectl's answers, passes on its errors, and keeps its port-forwards and programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lab.errors import StackError, UsageError
from lab.stacks import kubectl as module
from lab.stacks.kubectl import NO_KUBECTL, Forward, Inside, Kubectl, KubectlChild
from tests.app.servicekit import eventually
from tests.lab.stacks.kubekit import SPACE, FakeKubectl, container, pod

LOGGED = (
    'E1126 10:00:00.000000    4711 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group '
    'list: Get \\"https://10.0.0.1:6443/api?timeout=32s\\": dial tcp 10.0.0.1:6443: connect: connection refused"\n'
)
"""What kubectl says several times before the line that is for people."""
COMPLAINTS = {
    LOGGED * 3
    + "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?": (
        "no cluster answers kubectl: The connection to the server 10.0.0.1:6443 was refused"
    ),
    "Unable to connect to the server: dial tcp: lookup nowhere.example: no such host": (
        "no cluster answers kubectl: Unable to connect to the server: dial tcp: lookup nowhere.example"
    ),
    "error: You must be logged in to the server (Unauthorized)": "no cluster answers kubectl: You must be logged in",
    'error: context "old" does not exist': 'no cluster answers kubectl: context "old" does not exist',
    'Error from server (Forbidden): pods is forbidden: User "guest" cannot list resource "pods" in API group "" in the '
    'namespace "team-7"': (
        'no right to do this in the namespace team-7: pods is forbidden: User "guest" cannot list resource "pods"'
    ),
    'Warning: something is old\nError from server (NotFound): pods "redis-0" not found': (
        'kubectl get pods: Error from server (NotFound): pods "redis-0" not found'
    ),
    "": "kubectl get pods: failed without a message",
}


@pytest.mark.parametrize("said", COMPLAINTS)
def test_complaints_of_kubectl_become_one_line(kubectl: FakeKubectl, said: str) -> None:
    """Whatever kubectl says on stderr becomes one line: no cluster, no right, or kubectl's own last words."""
    kubectl.fails("get pods", said)
    with pytest.raises(StackError) as caught:
        Kubectl(SPACE).json("get", "pods")
    assert str(caught.value).startswith(COMPLAINTS[said])
    assert "\n" not in str(caught.value)


def test_no_kubectl_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a kubectl on PATH the lab says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError) as caught:
        Kubectl(SPACE).ask("version")
    assert str(caught.value) == NO_KUBECTL


def test_kubectl_that_hangs_is_given_up(kubectl: FakeKubectl) -> None:
    """A cluster that does not answer in time is an error, not an endless wait."""
    kubectl.has([pod("redis", container("redis"))])
    with pytest.raises(StackError, match=r"the cluster does not answer kubectl port-forward within 0\.5 s"):
        Kubectl(SPACE).ask("port-forward", "pod/redis-0", seconds=0.5)


def test_an_answer_that_is_no_json_is_one_line(kubectl: FakeKubectl) -> None:
    """An answer that cannot be read is told apart from a cluster that is away."""
    kubectl.fails("get pods", "", code=0)
    with pytest.raises(StackError, match="kubectl get says something unexpected"):
        Kubectl(SPACE).json("get", "pods")


@pytest.mark.parametrize(
    "name", ["", "Team", "team_7", "-x", "--kubeconfig=x", "a" * 64, "team 7", "team-7\n"]
)
def test_only_names_of_namespaces_are_taken(name: str) -> None:
    """What is no name of a namespace never reaches kubectl's command line."""
    with pytest.raises(UsageError, match="--namespace takes a name such as team-7"):
        Kubectl(name)


def test_rights_are_asked_one_by_one(kubectl: FakeKubectl) -> None:
    """A no is an answer, although kubectl's exit code is that of a failure; no cluster is an error."""
    kubectl.denies("create pods/exec")
    here = Kubectl(SPACE)
    assert here.may("delete", "pods")
    assert here.may("create", "pods", "portforward")
    assert not here.may("create", "pods", "exec")
    assert kubectl.calls[-1] == ["auth", "can-i", "create", "pods", "--subresource=exec"]
    kubectl.fails("auth", "Unable to connect to the server: EOF")
    with pytest.raises(StackError, match="no cluster answers kubectl"):
        here.may("delete", "pods")


@pytest.fixture
def forward(kubectl: FakeKubectl, tmp_path: Path) -> Any:
    """Return a function that starts a forward to a pod of two containers."""
    kubectl.has([pod("storefront", container("web", {8000: 18000}), container("invalidator", {9102: 19102}))])
    made: list[Forward] = []

    def start(pod: str = "storefront-0") -> Forward:
        made.append(Forward(Kubectl(SPACE), pod, [8000, 9102], tmp_path / "forward.log"))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_forward_tells_its_ports(kubectl: FakeKubectl, forward: Any) -> None:
    """kubectl chooses the ports; nobody but this machine reaches them."""
    found = forward()
    assert (found.port(8000), found.port(9102)) == (18000, 19102)
    assert found.url(8000) == "http://127.0.0.1:18000"
    found.check()
    words = kubectl.calls[-1]
    assert words[words.index("--address") + 1] == "127.0.0.1"
    assert words[-2:] == [":8000", ":9102"]


def test_a_forward_that_dies_is_noticed(kubectl: FakeKubectl, forward: Any) -> None:
    """A forward whose connection to the pod is lost is an error, with kubectl's own words."""
    found = forward()
    found.port(8000)
    kubectl.does("lost-storefront-0")

    def broken() -> str:
        try:
            found.check()
        except StackError as error:
            return str(error)
        return ""

    assert (
        "port-forward to storefront-0 ended unexpectedly (exit code 1): error: lost connection"
        in eventually(broken)
    )


def test_a_forward_to_no_pod_is_one_line(forward: Any) -> None:
    """A pod that is not there is named."""
    with pytest.raises(StackError, match=r'kubectl port-forward: .*pods "gone-0" not found'):
        forward("gone-0").port(8000)


def test_a_forward_that_never_listens_is_given_up(
    kubectl: FakeKubectl, forward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward that does not say where it listens is not waited for without end."""
    monkeypatch.setattr(module, "FORWARD_S", 0.5)
    kubectl.does("slow")
    with pytest.raises(StackError, match=r"port-forward to storefront-0 does not listen within 0\.5 s"):
        forward().port(8000)


ECHO = "import sys\nfor n in sys.stdin: print('asked'); print('END ' + n.strip(), flush=True)"
LATE = (
    "import sys, time\nfor n in sys.stdin:\n    time.sleep(1.0 if n == '1\\n' else 0)\n"
    "    print('to', n.strip()); print('END ' + n.strip(), flush=True)"
)


@pytest.fixture
def inside(kubectl: FakeKubectl, tmp_path: Path) -> Any:
    """Return a function that starts a program in a container."""
    kubectl.has([pod("probe", container("probe"))])
    made: list[Inside] = []

    def start(program: str, service: str = "probe") -> Inside:
        words = (sys.executable, "-c", program)
        made.append(Inside(Kubectl(SPACE), "probe-0", service, words, tmp_path / "inside.log"))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_program_answers_each_line(kubectl: FakeKubectl, inside: Any) -> None:
    """One program answers as often as it is asked, and ends with its stdin."""
    program = inside(ECHO)
    for _ in range(3):
        program.ask()
        assert program.answer() == ["asked"]
    assert program.alive()
    assert kubectl.calls[-1][:5] == ["exec", "--stdin", "probe-0", "--container", "probe"]
    program.close()
    assert not program.alive()
    assert len(kubectl.calls) == 1


def test_a_late_answer_is_not_taken_for_the_next_one(inside: Any) -> None:
    """After an answer that came too late the next question gets its own."""
    program = inside(LATE)
    program.ask()
    with pytest.raises(StackError, match=r"gets no answer within 0\.2 s"):
        program.answer(0.2)
    program.ask()
    assert program.answer() == ["to 2"]


def test_a_program_that_ended_is_one_line(inside: Any) -> None:
    """A program that has ended, or a container that is not there, is an error with kubectl's own words."""
    program = inside("raise SystemExit('no file to read')")
    program.ask()
    for _ in range(2):
        with pytest.raises(StackError, match="kubectl exec: no file to read"):
            program.answer()
    missing = inside(ECHO, "sidecar")
    missing.ask()
    with pytest.raises(StackError, match=r'container not found \("sidecar"\)'):
        missing.answer()


REPEATED = "command terminated with exit code 3"
LOGS = {
    "the server refuses: OOM\n" + REPEATED + "\n": "the server refuses: OOM",
    REPEATED + "\n": REPEATED,
    "error: lost connection to pod\n\n": "error: lost connection to pod",
    "": "",
}


@pytest.mark.parametrize("log", LOGS)
def test_last_words_are_those_of_the_program(tmp_path: Path, log: str) -> None:
    """kubectl repeats a program's exit code behind the program's own last line, which is the one to show."""
    file = tmp_path / "load.log"
    child = KubectlChild("load", [sys.executable, "-c", ""], file)
    child.exit_code()
    file.write_text(log)
    assert child.last_words() == LOGS[log]
