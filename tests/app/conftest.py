"""Fixtures: a cache server per session, settings and a service per test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.settings import Settings
from tests.app.servicekit import ServerProcess, Service


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ServerProcess]:
    """An embedded server for all tests that only need it empty. Sets never use the compact encoding, so that
    SSCAN returns even a small set in several pages.
    """
    server = ServerProcess(ServerProcess.valkey(), "--set-max-listpack-entries", "0").start()
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The shared server, emptied."""
    shared_server.client().flushall()
    return shared_server


@pytest.fixture
def own_server() -> Iterator[ServerProcess]:
    """A server that a test may stop, freeze and restart."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.pause(False)
    server.stop()


@pytest.fixture
def settings(server: ServerProcess, tmp_path: Path) -> Settings:
    """Settings on the emptied shared server."""
    return Settings(store_url=server.url, state_dir=tmp_path / "state")


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Return a function that makes a service on a server. All its processes end with the test."""
    made: list[Service] = []

    def make(server: ServerProcess, **environment: Any) -> Service:
        folder = tmp_path / f"service{len(made)}"
        folder.mkdir()
        made.append(Service(folder, server.url, **environment))
        return made[-1]

    yield make
    for service in made:
        service.stop()
