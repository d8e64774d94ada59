"""The load of events beside a neighbour in the slot: on a real storefront, and a server in cluster mode and not."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import SLOTS
from loadtest.incidents.slots import neighbour_of, slot_of
from tests.app.servicekit import ServerProcess, Service, eventually, in_cluster_mode
from tests.loadtest.conftest import figures, refused

USER, ENTRIES, COUNT = 1001, 3000, 500


@pytest.fixture
def start(load: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start the load with a storefront and a server."""
    words = ("slots", "--first-user", str(USER), "--rounds", "2", "--storefront")
    return lambda web, url, *more: load(*words, web, *more, PROBE_URL=url)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server in cluster mode."""
    server = in_cluster_mode(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def service(cluster: ServerProcess, tmp_path: Path) -> Iterator[Service]:
    """A storefront on the server, under the strategy `slot`."""
    folder = tmp_path / "service"
    folder.mkdir()
    service = Service(folder, cluster.url, APP_STRATEGY="slot", APP_SCAN_COUNT=str(COUNT))
    yield service.start("web", "invalidator")
    service.stop()


def test_a_slot_is_the_servers(cluster: ServerProcess) -> None:
    """The slot of a user is the one that the server computes, and a neighbour is another user in it."""
    raw = cluster.client()
    for user in (1, 77, 1001, 10**9 - 1):
        assert (
            slot_of(user) == raw.execute_command("CLUSTER", "KEYSLOT", f"shop:{{{user}}}:r1:page-0") < SLOTS
        )
    assert neighbour_of(USER) > USER
    assert slot_of(neighbour_of(USER)) == slot_of(USER)


def test_a_neighbours_entries_are_visited_too(cluster: ServerProcess, service: Service, start: Any) -> None:
    """Alone an event takes one call a search, beside a neighbour as many as the slot has pages; nothing of it stays."""
    alone = figures(start(service.base, cluster.url))
    assert alone["commands_per_event"] == 6  # SCAN and UNLINK for each of three areas
    assert alone["rounds"] == 2
    beside = figures(start(service.base, cluster.url, "--neighbour", str(ENTRIES)))
    assert beside["neighbour_entries"] == ENTRIES
    assert beside["commands_per_event"] >= 3 * ENTRIES / COUNT
    assert beside["execution_per_event_us"] > 2 * alone["execution_per_event_us"]
    assert cluster.client().keys(f"shop:{{{neighbour_of(USER)}}}:*") == []


def test_told_to_end_it_removes_the_neighbours_entries(
    cluster: ServerProcess, service: Service, start: Any
) -> None:
    """On SIGTERM it ends after the event under way, with its figures."""
    load = start(service.base, cluster.url, "--neighbour", "500", "--rounds", "10000")
    eventually(lambda: len(cluster.client().keys(f"shop:{{{neighbour_of(USER)}}}:*")) == 500)
    load.send_signal(signal.SIGTERM)
    assert figures(load)["rounds"] < 10_000
    assert cluster.client().keys(f"shop:{{{neighbour_of(USER)}}}:*") == []


def test_a_storefront_that_is_gone_is_one_line(cluster: ServerProcess, start: Any) -> None:
    """The exit code is 3."""
    assert refused(start("http://127.0.0.1:1", cluster.url, "--neighbour", "10")).startswith("slots: ")
