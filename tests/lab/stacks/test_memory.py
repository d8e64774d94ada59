"""What a run says of the memory it needs, before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import scenarios
from lab.errors import UsageError
from lab.runner import run as experiment
from lab.runner.run import Request
from lab.server.address import Route
from lab.server.servers import SERVERS
from lab.stacks import memory
from lab.stacks.memory import native_bytes, require_scene_memory
from tests.app.servicekit import ServerProcess

MAIN = scenarios.find("key-growth")
FULL = MAIN.paces["full"]


def test_what_is_needed_grows_with_keys_servers_and_loads() -> None:
    """The memory needed grows with the keys at the server's bytes per key, again for a replica, and with the loads."""
    embedded, redis = SERVERS["embedded"], SERVERS["redis"]
    none = native_bytes(MAIN, FULL, embedded, 0)
    assert native_bytes(MAIN, FULL, embedded, 1_000) - none == 1_000 * embedded.key_bytes
    assert native_bytes(MAIN, FULL, redis, 1_000) - none == 1_000 * redis.key_bytes
    with_replica = native_bytes(replace(MAIN, replica=True), FULL, embedded, 1_000)
    assert with_replica - none == 2_000 * embedded.key_bytes
    assert native_bytes(MAIN, replace(FULL, loads_mb=250), embedded, 0) - none == 250e6
    assert native_bytes(MAIN, replace(FULL, most_mb=1), embedded, 50_000_000) - none == 1e6


@pytest.mark.parametrize("enough", [True, False])
def test_it_is_announced_or_refused_before_anything_is_created(
    enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory needed is announced, or the run refused where it does not fit, before any folder is made."""
    request = Request(MAIN, None, "full", 2_000_000, 1, tmp_path / "run")
    needed = native_bytes(MAIN, FULL, SERVERS["embedded"], 2_000_000)
    free = SimpleNamespace(available=needed * (1.01 if enough else 0.99), total=needed)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free)
    said: list[str] = []
    if enough:
        assert f"{needed / 1e9:.1f} GB" in experiment._memory(request, 2_000_000)
    else:
        with pytest.raises(UsageError, match="Choose fewer with --keys"):
            experiment.conduct(request, SimpleNamespace(say=said.append))
        assert not said
    assert not (tmp_path / "run").exists()


def test_the_memory_of_somebody_elses_server_is_told_only_where_it_has_a_limit(server: ServerProcess) -> None:
    """On somebody else's server the memory needed and left is told if the server has a limit, else nothing."""
    request = Request(MAIN, None, "quick", 50_000, 1, None, route=Route(server.url, server.url))
    assert experiment._memory(request, 50_000) == ""
    server.client().config_set("maxmemory", 2_000_000_000)
    try:
        assert "left of maxmemory" in experiment._memory(request, 50_000)
    finally:
        server.client().config_set("maxmemory", 0)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server in the place of the scene's."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.stop()


MB = 1_000_000


@pytest.mark.parametrize("maxmemory", [0, 600 * MB, 400 * MB])
def test_what_a_server_of_the_scene_may_hold_counts(
    server: ServerProcess, maxmemory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in the scene is refused if the server's maxmemory is too low for the keys; without one nothing is said."""
    server.client().config_set("maxmemory", maxmemory)
    monkeypatch.setattr(memory, "scene_url", lambda _: server.url)
    row = SERVERS["valkey"]
    keys = 500 * MB // row.key_bytes
    if maxmemory == 400 * MB:
        with pytest.raises(
            UsageError, match=r"0\.4 GB are allowed .* raise mem_limit and --maxmemory of valkey"
        ):
            require_scene_memory(FULL, row, keys)
    else:
        said = require_scene_memory(FULL, row, keys)
        assert "need about 0.5 GB of memory, 0.6 GB are allowed" in said if maxmemory else said == ""
