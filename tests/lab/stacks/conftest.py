"""Fixtures: a stand-in for `docker` on PATH, and a control page that records what it is asked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lab.stacks.foreign import KEY_PREFIX
from lab.stacks.native import NativeStack
from lab.stacks.servers import SERVERS
from tests.app.servicekit import free_port
from tests.httpkit import Answer, HttpStandIn, Request
from tests.lab.stacks.running import GUNICORN, SCENARIO, Neighbour, Running

ROOT = Path(__file__).resolve().parents[3]
ROLES = ("web", "invalidator", "warmer", "locust", "probe")


class FakeDocker:
    """Sets what the stand-in for `docker` answers, and reads the calls it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.has([])

    def has(self, containers: list[dict[str, Any]]) -> None:
        """Set the containers that run."""
        (self.folder / "containers.json").write_text(json.dumps(containers))

    def is_engine(self, components: object, **info: Any) -> None:
        """Set what `docker version` says of the engine's parts, and what differs in the answer of `docker info`."""
        (self.folder / "components").write_text(json.dumps(components))
        (self.folder / "info.json").write_text(json.dumps(info))

    def fails(self, words: str, said: str, code: int = 1) -> None:
        """Let commands that begin with these words fail with this text on stderr and this exit code."""
        (self.folder / "fail.json").write_text(json.dumps({"words": words, "said": said, "code": code}))

    def tells(self, event: object) -> None:
        """Add a line for `docker events` to print: an event, or a text as it is."""
        with (self.folder / "events.log").open("a") as log:
            log.write((event if isinstance(event, str) else json.dumps(event)) + "\n")

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call so far."""
        return [json.loads(line) for line in (self.folder / "calls.log").read_text().splitlines()]


def identity(service: str) -> str:
    """Return a container id as long as a real one."""
    return service.encode().hex().ljust(64, "0")[:64]


def container(service: str, ports: dict[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """Describe one container for `FakeDocker.has`."""
    return {"service": service, "id": identity(service), "ports": ports or {}, **more}


def server_of(name: str, **more: Any) -> list[dict[str, Any]]:
    """Describe the containers of one server of the stack."""
    return [container(service, **more) for service in (name, *(f"{role}-{name}" for role in ROLES))]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    """The stand-in is the first `docker` on PATH, for this process and its children."""
    folder, place = tmp_path / "docker", tmp_path / "bin"
    folder.mkdir()
    place.mkdir()
    script = place / "docker"
    source = Path(__file__).with_name("docker_standin.py").read_text()
    script.write_text(f"#!{sys.executable}\n{source}")
    script.chmod(0o755)
    monkeypatch.setenv("FAKE_DOCKER", str(folder))
    monkeypatch.setenv("FAKE_DOCKER_ROOT", str(ROOT))
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return FakeDocker(folder)


class FakeControl(HttpStandIn):
    """Answers POSTs like the control page, and records them as (path, body)."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.status = 200
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Record the request."""
        self.asked.append((request.path, request.body))
        return Answer({"said": "ok", "detail": "no such page"}, self.status)


@pytest.fixture
def control() -> Iterator[FakeControl]:
    """A running stand-in for the control page."""
    with FakeControl() as control:
        yield control


@pytest.fixture
def make() -> Callable[..., dict[str, Any]]:
    """Describe one container."""
    return container


@pytest.fixture
def make_server() -> Callable[..., list[dict[str, Any]]]:
    """Describe the containers of one server."""
    return server_of


@pytest.fixture
def running(docker: Any, control: Any, make: Callable[..., Any], tmp_path: Path) -> Iterator[Running]:
    """Valkey with its whole storefront, a neighbour called redis, and the control page."""
    native = NativeStack(SCENARIO, SERVERS["embedded"], tmp_path / "scene", seed=1)
    (tmp_path / "scene" / "server").mkdir()
    neighbour = Neighbour()
    try:
        native.up(lambda text: None)
        env = {
            "APP_STORE_URL": native.server_url,
            "APP_KEY_PREFIX": KEY_PREFIX,
            "APP_FRAGMENTS_PER_USER": "20",
        }
        again = free_port()  # the port of a storefront that replaces the running one
        run = {
            "env": {"PORT": str(again), "APP_STATE_DIR": str(tmp_path / "scene" / "state"), **env},
            "ports": {8000: again},
        }
        port = {
            "web": {8000: urlsplit(native.web.base_url).port},
            "invalidator": {9102: urlsplit(native.invalidator.base_url).port},
            "locust": {8089: urlsplit(native.locust.base_url).port},
        }
        docker.has(
            [
                make(
                    "valkey",
                    {6379: native.server_port},
                    pid=native.pids()["store"],
                    restart=SERVERS["embedded"].command(
                        native.server_port, str(tmp_path / "scene" / "server")
                    ),
                ),
                *(
                    make(
                        f"{role}-valkey",
                        port.get(role, {}),
                        env=env,
                        command=GUNICORN,
                        run=run,
                        files=[str(ROOT / "compose.yaml")],
                    )
                    for role in ROLES
                ),
                make("redis"),
                make("web-redis", {8000: neighbour.port}),
                make("locust-redis", {8089: neighbour.port}),
                make("control", {8080: control.port}),
                make("tempo"),
            ]
        )
        scene = Running(docker, control, neighbour, native)
        try:
            yield scene
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(scene.server_pid, signal.SIGKILL)
    finally:
        native.down()
        neighbour.close()
