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
from lab.stacks.address import Way
from lab.stacks.containers import ServerContainers
from lab.stacks.docker import Container, Docker
from lab.stacks.memory import native_bytes, require_compose_memory
from lab.stacks.servers import SERVERS
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
        assert f"{needed / 1e9:.1f} GB" in experiment._memory(request, 2_000_000, None)
    else:
        with pytest.raises(UsageError, match="Choose fewer with --keys"):
            experiment.conduct(request, SimpleNamespace(say=said.append))
        assert not said
    assert not (tmp_path / "run").exists()


def test_the_memory_of_somebody_elses_server_is_told_only_where_it_has_a_limit(server: ServerProcess) -> None:
    """On somebody else's server the memory needed and left is told if the server has a limit, else nothing."""
    request = Request(MAIN, None, "quick", 50_000, 1, None, way=Way(server.url, server.url))
    assert experiment._memory(request, 50_000, None) == ""
    server.client().config_set("maxmemory", 2_000_000_000)
    try:
        assert "left of maxmemory" in experiment._memory(request, 50_000, None)
    finally:
        server.client().config_set("maxmemory", 0)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server in the place of the compose stack's."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.stop()


MB = 1_000_000
LIMITS = {  # container's limit, server's own maxmemory, and the answer for half a gigabyte of keys
    "none": (0, 0, ""),
    "it fits": (
        700 * MB,
        600 * MB,
        "need about 0.5 GB of memory, 0.6 GB are allowed to the container valkey",
    ),
    "the server's own is less": (900 * MB, 400 * MB, "refused"),
    "the container's is less": (400 * MB, 0, "refused"),
}
OWN = {"it fits": "0.7 GB are allowed", "the server's own is less": "0.9 GB are allowed"}


@pytest.mark.parametrize("case", LIMITS)
@pytest.mark.parametrize("own", [False, True], ids=["", "maxmemory is the scenario's"])
def test_what_a_container_may_hold_counts(server: ServerProcess, case: str, own: bool) -> None:
    """On compose a run is refused if the memory limit of the server or of its container is too low for the keys."""
    container, maxmemory, said = LIMITS[case]
    said = OWN.get(case, said) if own else said
    server.client().config_set("maxmemory", maxmemory)
    where = {6379: ("127.0.0.1", server.port)}
    scene = ServerContainers(
        Docker(), "valkey", (Container("1", "valkey", "healthy", 0, published=where, memory=container),)
    )
    scenario, row = replace(MAIN, own_server=own), SERVERS["valkey"]
    keys = 500 * MB // row.key_bytes
    if said == "refused":
        with pytest.raises(
            UsageError, match=r"0.4 GB are allowed .* raise mem_limit and --maxmemory of valkey"
        ):
            require_compose_memory(scenario, FULL, row, keys, scene)
    else:
        answer = require_compose_memory(scenario, FULL, row, keys, scene)
        assert said in answer if said else answer == ""
