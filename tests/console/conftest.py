"""Fixtures: stand-ins, a real server, a server control on both, and a control page in a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from console.metrics import ControlMetrics
from console.server_control import ServerControl
from tests.app.servicekit import ROOT, ServerProcess, end, eventually, free_port, http
from tests.console.standins import StandIns


@pytest.fixture
def standins() -> Iterator[StandIns]:
    """Stand-ins for the processes around the server."""
    made = StandIns()
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ServerProcess]:
    """One real server, for tests that neither stop it nor need it empty."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.stop()


@pytest.fixture
def own_server() -> Iterator[ServerProcess]:
    """A real server that a test may stop."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.stop()


@pytest.fixture
def new_control(standins: StandIns, shared_server: ServerProcess) -> Iterator[Callable[..., ServerControl]]:
    """Return a function that makes a server control which accepts actions, without a story."""
    made: list[ServerControl] = []

    def make(**settings: Any) -> ServerControl:
        config = standins.config(shared_server.url, **settings)
        control = ServerControl(config.servers[0], config, ControlMetrics(["one"]))
        control.phase = "running"
        control.record_up(True, 1)
        made.append(control)
        return control

    yield make
    for control in made:
        control.close()
        control.clients.server.close()


class Page(NamedTuple):
    """Where a control page is."""

    port: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def target(tmp_path: Path, standins: StandIns, own_server: ServerProcess) -> Iterator[Page]:
    """A control page in a process of its own, on stand-ins, with a server that is ready for actions."""
    port, log = free_port(), tmp_path / "control.log"
    addresses = [
        own_server.url,
        *(f"{standins.url}/{role}" for role in ("web", "invalidator", "locust", "probe")),
    ]
    environment = {
        "CONTROL_SERVERS": f"one={'|'.join(addresses)}",
        "CONTROL_PORT": str(port),
        "CONTROL_STORY": "off",
    }
    with log.open("w") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "console"],
            cwd=ROOT,
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    found = Page(port)

    def ready() -> bool:
        try:
            servers = http("GET", f"{found.url}/api/state").json["servers"]
        except OSError:
            return False
        return [server["free"] and server["up"] for server in servers] == [True]

    try:
        eventually(ready)
        yield found
    finally:
        end(process)
