"""A run on a server of the scene: the control page and docker are stand-ins, the server and its supervisor are real."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.errors import StackError
from lab.scenarios import catalogue
from lab.server import inside
from lab.server.http import Http
from lab.server.processes import port_taken
from lab.server.servers import SERVERS
from lab.stacks import scene
from lab.stacks.scene import Lease, SceneStack
from tests.app.servicekit import ServerProcess, eventually, free_port
from tests.httpkit import Answer, HttpStandIn, Request
from tests.lab.labkit import tree, typed

SCENARIO = replace(catalogue()["key-growth"], scan_count=100_000)


class Control(HttpStandIn):
    """Answers POSTs as the control page does, and records them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.status = 200
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Record the request."""
        self.asked.append((request.path, request.body))
        return Answer({"said": "ok", "detail": "no such page"}, self.status)


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    """A control page; this process is inside its scene."""
    with Control() as control:
        monkeypatch.setenv(inside.CONTROL, f"http://127.0.0.1:{control.port}")
        yield control


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A Valkey that is started again whenever it ends, as `restart: unless-stopped` does."""
    server, over = ServerProcess(ServerProcess.valkey()).start(), threading.Event()

    def supervise() -> None:
        while not over.is_set():
            assert server._process is not None
            server._process.wait()
            if not over.is_set():
                server.start()

    watch = threading.Thread(target=supervise)
    watch.start()
    yield server
    over.set()
    server.stop()
    watch.join()


@pytest.fixture
def make(
    control: Control, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., SceneStack]]:
    """A function that makes the stack of a scenario, in a scene that has this server."""
    monkeypatch.setattr(scene, "scene_url", lambda _: server.url)
    monkeypatch.setattr(scene, "PORTS", {name: free_port() for name in scene.PORTS})
    monkeypatch.setattr(scene, "REST_S", 0.2)
    made: list[SceneStack] = []

    def stack(scenario: Any = SCENARIO) -> SceneStack:
        made.append(SceneStack(scenario, SERVERS["valkey"], tmp_path / "run", seed=3))
        return made[-1]

    yield stack
    for each in made:
        each.down()


def test_a_run_has_an_empty_server_and_gives_it_back(
    control: Control, server: ServerProcess, make: Callable[..., SceneStack]
) -> None:
    """The control page is asked for the scene first and told of the end last; between, each restart empties."""
    server.client().set("a customer's", "page")
    stack = make()
    stack.up(lambda _: None)
    assert control.asked == [("/api/pause", {"seconds": 60.0, "server": "valkey"})]
    assert stack.server.keys_everywhere() == 0
    assert stack.server.slowlog_settings()[0] == SCENARIO.slowlog_threshold_us
    stack.web.warm(1000, restart=False, seconds=30, check=stack.check)
    assert stack.server.keys_everywhere() > 1000
    before = stack.server.snapshot().run_id
    stack.web.fill(0)
    stack.empty()
    assert stack.server.snapshot().run_id != before
    assert stack.server.keys_everywhere() < 10
    assert stack.server.slowlog_settings()[0] == SCENARIO.slowlog_threshold_us
    parts, machine = stack.meter().sample()
    assert {"store", "web", "invalidator", "locust", "scene"} <= set(parts) and "others" in machine
    assert stack.memory_mb()["store"] > 0
    stack.down()
    assert control.asked[-1] == ("/api/resume", {})
    assert not port_taken(scene.PORTS["web"])


def test_a_scenario_has_its_settings(make: Callable[..., SceneStack]) -> None:
    """The server gets the scenario's settings, after each restart again."""
    scenario = catalogue()["eviction-cycle"]
    stack = make(scenario)
    stack.up(lambda _: None)
    stack.empty()
    assert stack.server.settings(scenario.server_settings) == scenario.server_settings


def test_a_lost_lease_ends_the_run(control: Control) -> None:
    """A lease is renewed in time; once that fails, `check` says so, because the scene's load may come back."""
    with contextlib.closing(Http("control", f"http://127.0.0.1:{control.port}")) as page:
        lease = Lease(page, "redis", lease_s=0.3)
        eventually(lambda: len(control.asked) > 3)
        lease.check()
        control.status = 404

        def lost() -> bool:
            try:
                lease.check()
            except StackError as error:
                return "control refuses POST /api/pause" in str(error)
            return False

        eventually(lost)


def test_a_server_that_is_not_there_is_one_line(control: Control, tmp_path: Path) -> None:
    """Inside, a run without a scene says how to bring it up, or how to do without; no folder is made."""
    answer = typed("run", "key-growth", "--server", "dragonfly-current", cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "docker compose --profile current up -d. With --stack native" in answer.err
    assert tree(tmp_path) == []


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "key-growth", "--stack", "compose", "--pace", "quick"],
        ["run", "all", "--stack", "compose", "--out", "runs/mine"],
        ["blind", "start", "--stack", "compose"],
        ["blind", "open", "slow-network", "--stack", "compose"],
        ["probe", "redis", "--seconds", "2"],
    ],
)
def test_a_command_for_the_scene_is_carried_out_in_it(words: list[str], docker: Any) -> None:
    """From this machine the command becomes `docker compose run`, word by word, and its exit code is docker's."""
    done = subprocess.run([sys.executable, "-m", "lab", *words], check=False, stdin=subprocess.DEVNULL)
    [call] = docker.calls
    assert call[: call.index("lab")][:4] == ["compose", "run", "--rm", "--use-aliases"]
    assert call[call.index("lab") + 1 :] == words
    assert done.returncode == 0
    docker.fails("no such service: lab")
    assert subprocess.run([sys.executable, "-m", "lab", *words], check=False).returncode == 1


def test_a_folder_that_the_container_could_not_write_is_refused(docker: Any, tmp_path: Path) -> None:
    """In the scene a run writes below runs/, which this machine shares with it."""
    answer = typed("run", "key-growth", "--stack", "compose", "--out", str(tmp_path / "mine"), cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "--out runs/mine" in answer.err


def test_without_docker_it_is_one_line(tmp_path: Path) -> None:
    """Where there is no docker, one line says so."""
    answer = typed("probe", "redis", cwd=tmp_path, PATH=str(tmp_path))
    assert answer.is_one_line(3), answer
    assert "docker cannot be started" in answer.err


def test_sockets_of_two_containers_are_in_the_folder_that_both_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LAB_SOCKETS names the folder of a session's socket, whoever it belongs to."""
    from lab.blind import session_socket

    monkeypatch.setenv("LAB_SOCKETS", str(tmp_path))
    asked = session_socket.SessionSocket(tmp_path / "home", lambda words: json.dumps(words))
    try:
        assert (tmp_path / "session.sock").is_socket()
        assert session_socket.ask({"verb": "look"}, tmp_path / "home") == '{"verb": "look"}'
    finally:
        asked.close()
