"""The crowd on a real server: what it writes and reads, how it stalls with the server, how it ends."""

from __future__ import annotations

import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.incidents.crowd_model import Plan, allow_files
from loadtest.incidents.pages import Layout, Pages, fill
from loadtest.info import ask_info, read_info
from loadtest.process import Stop
from loadtest.resp import LoadFailed, ask, connect
from loadtest.resp import Server as Address
from tests.loadtest.conftest import Server, ended, refused

SMALL = ("--clients", "20", "--entries", "10", "--interval-seconds", "0.05", "--write-every", "4")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Server]:
    """A server that evicts at 16 MB."""
    server = Server(tmp_path, "--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def start(load: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start a crowd on a server."""
    return lambda server, *arguments: load("crowd", "--url", server.url, *arguments)


def lines_of(crowd: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Wait until a crowd ends; return its samples and its figures."""
    *samples, last = ended(crowd)
    return samples, last["figures"]


def test_a_page_is_written_and_read_whole(server: Server) -> None:
    """Every entry has its own key and its time to live; a read returns all entries of the pages asked for."""
    pages = Pages(Layout("crowd", 5, 2, 40, 7), ttl_s=100.0)
    with connect(Address.from_url(server.url)) as line:
        assert ask(line, pages.write(3), pages.write(12_345_678), each=5) == [b"OK"] * 10
        (found,) = ask(line, pages.read([3, 12_345_678]))
        (half,) = ask(line, pages.read([3, 4]))
    assert found == [b"v" * 7] * 10
    assert half == [b"v" * 7] * 5 + [None] * 5
    keys = server.client().keys("*")
    assert len(keys) == 10
    assert {len(key) for key in keys} == {40}
    assert all(90 < server.client().ttl(key) <= 100 for key in keys)


def test_entries_of_some_age_live_shorter(server: Server) -> None:
    """Entries written at half their age live half as long."""
    pages = Pages(Layout("crowd", 3, 2, 40, 7), ttl_s=1000.0)
    with connect(Address.from_url(server.url)) as line:
        ask(line, pages.write(1, age=0.5), each=3)
    assert all(490 < server.client().ttl(key) <= 500 for key in server.client().keys("*"))


def test_filling_stops_at_the_share_of_the_limit(cache: Server) -> None:
    """Filling stops at the share of the limit or a few pages above it, and returns the next page's number."""
    pages = Pages(Layout("crowd", 50, 2, 48, 16), ttl_s=1000.0)
    with connect(Address.from_url(cache.url)) as line:
        following, seen = fill(line, pages, 5, 0.6, False, Stop())
    assert 0.6 <= seen.used / seen.limit < 0.7
    assert seen.keys == (following - 5) * 50


def test_what_is_counted_adds_up(cache: Server, start: Any) -> None:
    """The inserted entries are the server's keys, and the samples' counts agree with the figures."""
    samples, figures = lines_of(start(cache, "--rate", "400", "--seconds", "1.5", *SMALL))
    assert sum(sample["inserted"] for sample in samples) == figures["inserted"]
    assert sum(sample["answered"] for sample in samples) == pytest.approx(
        figures["answered_per_s"] * 1.5, rel=0.3
    )
    assert figures["answered_per_s"] == pytest.approx(400, rel=0.2)
    assert (figures["next_page"] - 1) * 10 == cache.client().dbsize()
    assert figures["evicted"] == figures["expired"] == 0
    assert all(sample["limit_mb"] == pytest.approx(16.777216) for sample in samples)


def test_a_full_cache_evicts_what_is_inserted(cache: Server, start: Any) -> None:
    """At the limit there are evictions, and the server's memory stays at it."""
    samples, figures = lines_of(  # a tenth of these writes would do: a busy machine may do no more
        start(cache, "--rate", "2000", "--seconds", "1", "--fill", "0.99", *SMALL, "--write-every", "1")
    )
    assert figures["evicted"] > 0
    assert max(sample["used_mb"] for sample in samples) < 1.05 * samples[0]["limit_mb"]


def test_a_limit_can_be_set_first(server: Server, start: Any) -> None:
    """--limit-mb is the server's maxmemory from then on."""
    lines_of(start(server, "--rate", "100", "--seconds", "0.6", "--limit-mb", "20", *SMALL))
    assert server.client().config_get("maxmemory") == {"maxmemory": "20000000"}


def test_clients_that_wait_ask_nothing(cache: Server, start: Any) -> None:
    """While the server stalls each client has at most one request in flight, and clients that wait ask nothing."""
    crowd = start(cache, "--rate", "400", "--seconds", "3", "--patience-seconds", "0.2", *SMALL)
    time.sleep(1.0)
    stall = threading.Thread(target=cache.client().execute_command, args=("DEBUG", "SLEEP", "1"))
    stall.start()
    samples, figures = lines_of(crowd)
    stall.join()
    assert max(sample["in_flight"] for sample in samples) <= figures["most_in_flight"] <= 20
    assert sum(sample["stalled"] for sample in samples) > 100
    assert max(sample["away"] for sample in samples) > 10
    assert max(sample["p99_ms"] or 0.0 for sample in samples) > 300


def test_few_connections_are_shared(cache: Server, start: Any) -> None:
    """Requests without a free connection wait in the crowd, not at the server."""
    _, figures = lines_of(start(cache, "--rate", "400", "--seconds", "1", *SMALL, "--connections", "2"))
    assert figures["answered_per_s"] == pytest.approx(400, rel=0.3)


def test_a_rate_is_found(cache: Server, start: Any) -> None:
    """The crowd finds the rate for a given utilisation of the main thread, by a request's cost at the last step."""
    _, figures = lines_of(
        start(cache, "--find-utilisation", "0.2", "--seconds", "3", *SMALL, "--entries", "150")
    )
    assert figures["rate"] == pytest.approx(0.2e6 / figures["busy_us"])
    assert 0.02 < figures["busy"] < 0.6
    assert figures["fitting_ttl_s"] > 0


def test_a_rate_above_what_the_server_can_do_is_found_below_it(cache: Server, start: Any) -> None:
    """A rate that needs more than the main thread is computed from a request's cost, and is never sent."""
    samples, figures = lines_of(
        start(cache, "--find-utilisation", "5", "--seconds", "3", *SMALL, "--entries", "150")
    )
    assert figures["rate"] == pytest.approx(5e6 / figures["busy_us"])
    # A sixth of the rate if a request costs the same at every step; on a busy machine it may cost twice as much.
    assert max(sample["offered_per_s"] for sample in samples) < 0.8 * figures["rate"]


@pytest.mark.parametrize(("every", "clients"), [(None, 20), (0.02, 8), (10, 20)])
def test_fewer_clients_where_the_rate_is_low(every: float | None, clients: int) -> None:
    """With --asks-every there are as many clients as the rate needs, and never more than --clients."""
    plan = Plan(server=Address("127.0.0.1", 1), rate=400, seconds=1, clients=20, asks_every=every)
    assert plan.size == clients


def test_a_server_that_refuses(tmp_path: Path, start: Any) -> None:
    """A server that is out of memory and does not evict is one line and exit code 3."""
    server = Server(tmp_path, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
    server.start()
    try:
        crowd = start(server, "--rate", "400", "--seconds", "30", "--write-every", "1", "--fill", "0.95")
        assert refused(crowd).startswith("crowd: the server refuses: OOM")
    finally:
        server.kill()


def test_a_server_that_goes_away(cache: Server, start: Any) -> None:
    """A server that goes away is one line and exit code 3."""
    crowd = start(cache, "--rate", "100", "--seconds", "600", *SMALL)
    assert crowd.stdout
    crowd.stdout.readline()
    cache.kill()
    assert refused(crowd)


def test_a_look_reads_what_all_servers_say(server: Server) -> None:
    """A sample has the levels and counters of a real INFO; if INFO lacks one, LoadFailed says so."""
    with connect(Address.from_url(server.url)) as line:
        seen = ask_info(line)
    assert seen.keys == 0
    assert seen.used > 0
    assert seen.busy_s > 0
    with pytest.raises(LoadFailed, match="lacks"):
        read_info(b"used_memory:1\r\n")


def test_a_limit_of_open_files_is_raised_and_never_lowered() -> None:
    """A load that needs few files leaves a higher limit alone: the same process may need more for something else."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allow_files(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
        allow_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
