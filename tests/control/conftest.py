"""Fixtures: stand-ins, a real store, a stage on both."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.control.metrics import ControlMetrics
from lab.control.stage import Stage
from tests.app.servicekit import StoreServer
from tests.control.standins import StandIns


@pytest.fixture
def standins() -> Iterator[StandIns]:
    """The processes around the store."""
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
def new_stage(standins: StandIns, store_server: StoreServer) -> Iterator[Callable[..., Stage]]:
    """Makes a stage that people may act on, without a director."""
    made: list[Stage] = []

    def make(**settings: Any) -> Stage:
        config = standins.config(store_server.url, **settings)
        stage = Stage(config.servers[0], config, ControlMetrics(["one"]))
        stage.phase = "running"
        stage.tell_up(True, 1)
        made.append(stage)
        return stage

    yield make
    for stage in made:
        stage.close()
        stage.clients.store.close()
