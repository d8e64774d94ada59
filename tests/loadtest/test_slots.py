"""The load of events beside a neighbour in the slot: on a real storefront, and a server in cluster mode and not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import SLOTS
from loadtest.incidents.slots import neighbour_of, slot_of
from tests.app.servicekit import ROOT, ServerProcess, Service, eventually, in_cluster_mode

USER, ENTRIES, COUNT = 1001, 3000, 500


def start(web: str, url: str, *more: str) -> subprocess.Popen[str]:
    """Start the load as a process."""
    words = [
        "-m",
        "loadtest.incidents.slots",
        "--storefront",
        web,
        "--first-user",
        str(USER),
        "--rounds",
        "2",
    ]
    return subprocess.Popen(
        [sys.executable, *words, *more],
        cwd=ROOT,
        env={**os.environ, "PROBE_URL": url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def figures(load: subprocess.Popen[str]) -> dict[str, float]:
    """Wait until the load ends well; return its figures."""
    out, err = load.communicate(timeout=60)
    assert (load.returncode, err) == (0, "")
    found: dict[str, float] = json.loads(out.splitlines()[-1])["figures"]
    return found


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


def test_a_neighbours_entries_are_visited_too(cluster: ServerProcess, service: Service) -> None:
    """Alone an event takes one call a search, beside a neighbour as many as the slot has pages; nothing of it stays."""
    alone = figures(start(service.base, cluster.url))
    assert alone["commands_per_event"] == 6  # SCAN and UNLINK for each of three areas
    assert alone["rounds"] == 2
    beside = figures(start(service.base, cluster.url, "--neighbour", str(ENTRIES)))
    assert beside["neighbour_entries"] == ENTRIES
    assert beside["commands_per_event"] >= 3 * ENTRIES / COUNT
    assert beside["execution_per_event_us"] > 2 * alone["execution_per_event_us"]
    assert cluster.client().keys(f"shop:{{{neighbour_of(USER)}}}:*") == []


def test_told_to_end_it_removes_the_neighbours_entries(cluster: ServerProcess, service: Service) -> None:
    """On SIGTERM it ends after the event under way, with its figures."""
    load = start(service.base, cluster.url, "--neighbour", "500", "--rounds", "10000")
    eventually(lambda: len(cluster.client().keys(f"shop:{{{neighbour_of(USER)}}}:*")) == 500)
    load.send_signal(signal.SIGTERM)
    assert figures(load)["rounds"] < 10_000
    assert cluster.client().keys(f"shop:{{{neighbour_of(USER)}}}:*") == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--first-user", "0"], "first-user"),
        (["--neighbour", "-1"], "neighbour"),
        (["--rounds", "x"], "rounds"),
    ],
)
def test_bad_arguments_are_one_line(words: list[str], told: str) -> None:
    """The exit code is 2, and the line names the argument."""
    load = start("http://127.0.0.1:1", "redis://127.0.0.1:1", *words)
    _, err = load.communicate(timeout=30)
    assert load.returncode == 2
    assert len(err.splitlines()) == 1 and told in err, err


def test_a_storefront_that_is_gone_is_one_line(cluster: ServerProcess) -> None:
    """The exit code is 3."""
    load = start("http://127.0.0.1:1", cluster.url, "--neighbour", "10")
    _, err = load.communicate(timeout=30)
    assert load.returncode == 3
    assert err.startswith("slots: ") and len(err.splitlines()) == 1, err
