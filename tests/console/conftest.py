"""Fixtures: stand-ins, a real store, a server control on both."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from console.metrics import ControlMetrics
from console.server_control import ServerControl
from tests.app.servicekit import StoreServer
from tests.console.standins import StandIns


@pytest.fixture
def standins() -> Iterator[StandIns]:
    """Stand-ins for the processes around the store."""
    made = StandIns()
    yield made
    made.close()


@pytest.fixture(scope="session")
def store_server() -> Iterator[StoreServer]:
    """One real server, for tests that neither stop it nor need it empty."""
    server = StoreServer(StoreServer.valkey()).start()
    yield server
    server.stop()


@pytest.fixture
def own_store() -> Iterator[StoreServer]:
    """A real server that a test may stop."""
    server = StoreServer(StoreServer.valkey()).start()
    yield server
    server.stop()


@pytest.fixture
def new_control(standins: StandIns, store_server: StoreServer) -> Iterator[Callable[..., ServerControl]]:
    """Return a function that makes a server control which accepts actions, without an autopilot."""
    made: list[ServerControl] = []

    def make(**settings: Any) -> ServerControl:
        config = standins.config(store_server.url, **settings)
        control = ServerControl(config.servers[0], config, ControlMetrics(["one"]))
        control.phase = "running"
        control.record_up(True, 1)
        made.append(control)
        return control

    yield make
    for control in made:
        control.close()
        control.clients.store.close()
