"""The load of single events: on a real storefront and server, and on a storefront that serves old values."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.scenarios.cures import COMMANDS
from tests.app.servicekit import ServerProcess, Service, eventually
from tests.httpkit import Answer, HttpStandIn, Request
from tests.loadtest.conftest import ended, figures, refused

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def start(load: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start the load with a storefront and a server."""
    words = ("freshness", "--first-user", "1001", "--storefront")
    return lambda web, url, *more: load(*words, web, *more, PROBE_URL=url)


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    """A server of the test's own."""
    server = ServerProcess(ServerProcess.valkey()).start()
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the service."""
    (tmp_path / "service").mkdir()
    return tmp_path / "service"


@pytest.mark.parametrize(
    ("strategy", "commands", "left"),
    [
        ("index", 7.0, 0.0),
        pytest.param("scan", 6.0, 0.0, marks=pytest.mark.whole),
        pytest.param("hash", 1.0, 0.0, marks=pytest.mark.whole),
        pytest.param("generation", 4.0, 20.0, marks=pytest.mark.whole),
    ],
)
def test_figures_are_the_strategys(
    strategy: str, commands: float, left: float, server: ServerProcess, folder: Path, start: Any
) -> None:
    """Per strategy: an event's commands and the keys it leaves, by the server's counters; no old value is served.

    A value computed before an event and put after it is served, except under generation.
    """
    service = Service(folder, server.url, APP_STRATEGY=strategy, APP_SCAN_COUNT="1000000")
    try:
        service.start("web", "invalidator")
        what = (service.base, server.url, "--users", "2", "--rounds", "1", "--commands", COMMANDS[strategy])
        *events, last = ended(start(*what))
        again = figures(start(*what))
    finally:
        service.stop()
    found = last["figures"]
    assert again["left_per_event"] == left, "the first left something behind"
    assert found["commands_per_event"] == commands
    assert found["left_per_event"] == left
    assert found["events"] == 4
    assert found["stale_entries"] == 0
    assert found["execution_per_event_us"] > 0
    assert 0 < found["race_tries"] <= 6
    assert found["raced_values"] == (0 if strategy == "generation" else found["race_tries"])
    assert 0 <= found["stale_for_ms"] <= found["stale_for_worst_ms"]
    assert [line["user"] for line in events] == [1001, 1002]


def test_memory_of_an_entry_is_what_was_added(server: ServerProcess, start: Any) -> None:
    """Memory per entry is the used memory above --base-mb, divided by the entries, before the load adds anything."""
    client = server.client()
    before = figures(start(NOWHERE, server.url, "--users", "0"))
    client.mset({f"key-{i:06}": "v" * 500 for i in range(20_000)})
    base = str(before["memory_mb"])
    after = figures(start(NOWHERE, server.url, "--users", "0", "--entries", "20000", "--base-mb", base))
    assert 500 < after["memory_per_entry_bytes"] < 700


class Stale(HttpStandIn):
    """A storefront whose events delete one fragment of each area and leave the others."""

    def __init__(self) -> None:
        self.cached: set[str] = set()
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Everything is cached by its first read. An event deletes the fragments numbered 0."""
        if request.method == "POST":
            self.cached.difference_update([path for path in self.cached if path.endswith("-0")])
            return Answer({"event": 1})
        if "/events/" in request.path:
            return Answer({"state": "done"})
        hit = request.target in self.cached
        self.cached.add(request.target)
        return Answer({}, headers={"Cache-Status": "shop; hit" if hit else "shop; fwd=miss"})


@pytest.fixture
def stale_front() -> Iterator[str]:
    """The address of a `Stale` storefront."""
    with Stale() as storefront:
        yield storefront.url


def test_old_values_are_counted_and_what_the_moments_do_not_prove_is_no_try(
    stale_front: str, server: ServerProcess, start: Any
) -> None:
    """A fragment that is still served after its area was seen to be gone is an old value: 17 of 20 here.

    The storefront does not compute for as long as it was asked to: no figure of races, rather than one of nothing.
    """
    found = figures(start(stale_front, server.url, "--users", "1", "--rounds", "1"))
    assert found["stale_entries"] == 17
    assert not {"race_tries", "raced_values"} & set(found)


def test_sigterm_ends_it_with_its_figures(stale_front: str, server: ServerProcess, start: Any) -> None:
    """On SIGTERM the load ends with the figures it has."""
    load = start(stale_front, server.url, "--users", "1", "--rounds", "9999")
    assert load.stdout is not None
    first = load.stdout.readline()
    assert "stale_for_ms" in first
    load.send_signal(signal.SIGTERM)
    assert figures(load)["events"] >= 2


def test_it_goes_on_for_as_long_as_asked(server: ServerProcess, start: Any) -> None:
    """With --seconds the load goes on that long, even if it has nothing to do."""
    load = start(NOWHERE, server.url, "--users", "0", "--seconds", "60")
    with pytest.raises(subprocess.TimeoutExpired):
        load.wait(1.5)
    load.send_signal(signal.SIGTERM)
    assert figures(load)["memory_mb"] > 0


def test_a_server_that_refuses_writes_is_one_line_and_exit_3(
    server: ServerProcess, folder: Path, start: Any
) -> None:
    """If nothing can be cached there are no figures, because they would be wrong."""
    service = Service(folder, server.url)
    client = server.client()
    try:
        service.start("web", "invalidator")
        eventually(lambda: service.get("/readyz").status == 200)
        client.config_set("maxmemory", 1)
        assert "does not keep entries" in refused(start(service.base, server.url))
    finally:
        service.stop()


def test_a_server_or_a_storefront_that_is_gone_is_one_line_and_exit_3(
    server: ServerProcess, start: Any
) -> None:
    """If the server or the storefront is not there, the load is one line and exit code 3."""
    assert "storefront" in refused(start(NOWHERE, server.url))
    assert refused(start(NOWHERE, "redis://127.0.0.1:1"))
