"""Fixtures: a store server per session, settings and a service per test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.app.servicekit import Service, StoreServer


@pytest.fixture(scope="session")
def shared_store() -> Iterator[StoreServer]:
    """One embedded server for all tests that only need it empty. Sets never use the compact encoding, so that
    SSCAN returns even a small set in several pages.
    """
    server = StoreServer(StoreServer.valkey(), "--set-max-listpack-entries", "0").start()
    yield server
    server.stop()


@pytest.fixture
def store(shared_store: StoreServer) -> StoreServer:
    """The shared server, emptied."""
    shared_store.client().flushall()
    return shared_store


@pytest.fixture
def own_store() -> Iterator[StoreServer]:
    """A server that a test may stop, freeze and restart."""
    server = StoreServer(StoreServer.valkey()).start()
    yield server
    server.pause(False)
    server.stop()


@pytest.fixture
def settings(store: StoreServer, tmp_path: Path) -> Settings:
    """Settings on the emptied shared server."""
    return Settings(store_url=store.url, state_dir=tmp_path / "state")


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Return a function that makes a service on a store. All its processes end with the test."""
    made: list[Service] = []

    def make(server: StoreServer, **environment: Any) -> Service:
        folder = tmp_path / f"service{len(made)}"
        folder.mkdir()
        made.append(Service(folder, server.url, **environment))
        return made[-1]

    yield make
    for service in made:
        service.stop()
