"""Programs of single causes on a real server: each does to the server what its cause says."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from lab.blind.causes import CAUSES, expiry_wave, hot_big_key, lua_script
from lab.blind.inbox import Order
from lab.blind.prices import CHUNK
from lab.blind.scene import send_line
from lab.blind.sizing import CHANGER, HEADROOM_MB, HEALTHY_ORDERS, SECOND
from lab.server.processes import Child
from loadtest import resp
from tests.app.servicekit import eventually
from tests.lab.blind.conftest import MEASURED
from tests.loadtest.conftest import Server


class Box:
    """An inbox whose next order comes when the test has seen enough."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    @property
    def news(self) -> bool:
        """True at the end of the test."""
        return self.ended.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end of the test, at most so long."""
        return self.ended.wait(None if seconds is None else max(0.0, seconds))


@contextmanager
def at_work(cause: str, server: Server, **changes: Any) -> Iterator[Order]:
    """Run the program of a cause with its order, in which the test changes something; yield the order."""
    order = {**CAUSES[cause].all_orders(MEASURED)[SECOND], **changes}
    box: Any = Box()
    disturb = CAUSES[cause].disturb
    assert disturb
    thread = threading.Thread(target=disturb, args=(order, box, resp.Server.from_url(server.url)))
    thread.start()
    try:
        yield order
    finally:
        box.ended.set()
        thread.join(10)
        assert not thread.is_alive(), "the program does not hear that it is to end"


def stat(client: Any, name: str) -> int:
    """Return a counter of INFO stats."""
    return int(client.info("stats")[name])


def test_entries_of_a_wave_expire_in_the_same_moment(server: Server) -> None:
    """All entries of a wave have the same moment of expiry, and there is a next wave."""
    client = server.client()
    with at_work("expiry-wave", server, entries=2000, every_s=1.0):
        eventually(lambda: client.dbsize() == 2000)
        pipe = client.pipeline(transaction=False)
        for number in range(0, 2000, 100):
            pipe.pttl(f"latency-lab-prices:offer:{number}")
        left = pipe.execute()
        assert min(left) > 0 and max(left) - min(left) <= 100, left
        eventually(lambda: stat(client, "expired_keys") >= 4000)


def test_a_wave_fits_into_the_memory_that_is_free(server: Server) -> None:
    """The entries of one wave take less than the room in every session, so none are evicted."""
    client = server.client()
    with resp.connect(resp.Server.from_url(server.url)) as line:
        before: int = client.info("memory")["used_memory"]
        for first in range(0, 50_000, CHUNK):
            expiry_wave.write(line, first, 3600.0)
        used = client.info("memory")["used_memory"] - before
    whole = CAUSES["expiry-wave"].all_orders(MEASURED)[SECOND]["entries"]
    assert used * whole / 50_000 < 0.8 * HEADROOM_MB * 1_000_000


@pytest.mark.parametrize("strength", [1.0, 2.0])
def test_the_answers_under_way_fit_into_the_memory_that_is_free(strength: float) -> None:
    """All connections may have a whole answer under way at once, and the room in every session suffices."""
    order = CAUSES["hot-big-key"].all_orders(MEASURED, strength)[SECOND]
    assert order["connections"] * order["bytes"] < HEADROOM_MB * 1_000_000 * 0.7


def test_a_big_value_is_sent_again_and_again(server: Server) -> None:
    """The answers have the value's length, and each connection asks again when it has one."""
    client = server.client()
    with at_work("hot-big-key", server, connections=4, bytes=50_000):
        eventually(lambda: stat(client, "total_net_output_bytes") > 10_000_000)
        assert client.strlen(hot_big_key.CATALOGUE) == 50_000
        pipe = client.pipeline(transaction=True)  # of one moment: meanwhile the program goes on reading
        pipe.info("stats")
        pipe.info("commandstats")
        stats, calls = pipe.execute()
        sent = stats["total_net_output_bytes"]
        assert sent / calls["cmdstat_get"]["calls"] == pytest.approx(50_000, rel=0.2)


def test_a_big_value_that_somebody_deletes_is_put_again(server: Server) -> None:
    """After the value is deleted, the program writes it again within a moment, and all connections go on."""
    client = server.client()
    with at_work("hot-big-key", server, connections=4, bytes=50_000):
        eventually(lambda: stat(client, "total_net_output_bytes") > 10_000_000)
        client.delete(hot_big_key.CATALOGUE)
        eventually(lambda: client.strlen(hot_big_key.CATALOGUE) == 50_000)
        before = stat(client, "total_net_output_bytes")
        eventually(lambda: stat(client, "total_net_output_bytes") > before + 10_000_000)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a choice of cores")
def test_a_limited_neighbour_computes_for_its_share_of_the_time(server: Server) -> None:
    """At a fifth of its time a program on one core uses about a fifth of that core, whatever the number of threads."""
    core = min(os.sched_getaffinity(0))
    shares = []
    for share in (1.0, 0.2):
        with at_work("noisy-neighbour", server, threads=4, core=core, share=share):
            before, began = time.process_time(), time.monotonic()
            time.sleep(1.0)
            shares.append((time.process_time() - before) / (time.monotonic() - began))
    assert shares[1] < 0.7 * shares[0], shares


def test_a_script_takes_about_as_long_as_ordered(server: Server) -> None:
    """The slow log names EVAL, and its calls last about as long as the order says."""
    client = server.client()
    client.config_set("slowlog-log-slower-than", 5000)
    tried = (
        b" %d" % lua_script.TRIED
    )  # the calls that size the order; on a busy machine they may be slow, too

    def ordered() -> list[int]:
        entries = client.slowlog_get()
        assert all("EVAL" in str(entry["command"]) for entry in entries)
        return [entry["duration"] for entry in entries if not entry["command"].endswith(tried)]

    with at_work("lua-script", server, call_s=0.05, every_s=0.1):
        eventually(lambda: len(ordered()) >= 3)
    assert 15_000 < min(ordered()) < 250_000


def test_a_wave_of_connections_comes_and_goes(server: Server) -> None:
    """Each wave opens its connections anew, asks one question on each, and leaves none behind."""
    client = server.client()
    received, gets = stat(client, "total_connections_received"), 0
    with at_work("connection-storm", server, connections=50, every_s=0.1):
        eventually(lambda: stat(client, "total_connections_received") >= received + 150)
        gets = client.info("commandstats")["cmdstat_get"]["calls"]
    assert gets >= 100
    eventually(lambda: client.info("clients")["connected_clients"] <= 2)


ORDERS = {
    "changes": (CHANGER, HEALTHY_ORDERS[CHANGER]),
    "unpipelined-deletes": (CHANGER, CAUSES["unpipelined-deletes"].all_orders(MEASURED)[CHANGER]),
    "keys-command": (SECOND, CAUSES["keys-command"].all_orders(MEASURED)[SECOND]),
    **{
        cause: (SECOND, CAUSES[cause].all_orders(MEASURED)[SECOND])
        for cause in ("scan-storm", "lua-script", "expiry-wave", "hot-big-key")
    },
}
"""Order → the program that gets it, and its words."""


@pytest.mark.parametrize("kind", ORDERS)
def test_a_programs_connections_bear_its_name(kind: str, server: Server, tmp_path: Path) -> None:
    """Every connection of a program bears the program's name and no other, whatever the order."""
    name, order = ORDERS[kind]
    command = [sys.executable, "-m", "lab.blind.tenants", name]
    program = Child(name, command, tmp_path / "log", {"PROBE_URL": server.url}, cwd=ROOT, stdin_open=True)
    client: Any = server.client()
    before = {row["id"] for row in client.client_list()}

    def names() -> list[str]:
        return [row["name"] for row in client.client_list() if row["id"] not in before]

    try:
        send_line(program, order)
        eventually(lambda: set(names()) == {name})  # a connection is without a name until it has sent it
    finally:
        program.stop()
        client.close()
