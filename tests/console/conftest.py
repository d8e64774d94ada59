"""Fixtures: stand-ins, a real server, a server control on both."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from console.metrics import ControlMetrics
from console.server_control import ServerControl
from tests.app.servicekit import ServerProcess
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
    """Return a function that makes a server control which accepts actions, without an autopilot."""
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
