"""Events that walk the keyspace in small steps, against a real server."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.app.servicekit import eventually
from tests.loadtest.conftest import PATIENCE, calls, ended, refused

KEYS, USERS = 2_000, 100
PATTERNS = ("--match", "shop:user:@:page-*", "--match", "shop:user:@:cart-*")


@pytest.fixture
def run(load: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start `python -m loadtest.incidents.scanners`."""
    return partial(load, "scanners")


@pytest.fixture
def filled(server: Any) -> Any:
    """A server with keys."""
    each = KEYS // USERS
    server.client().mset({f"shop:user:{i // each}:page-{i % each}:r1": "x" for i in range(KEYS)})
    return server


def calls_of_a_walk(server: Any) -> int:
    """The number of SCAN calls of one walk by redis-py with COUNT 10."""
    before = calls(server, "scan")
    assert len(list(server.client().scan_iter(count=10))) == KEYS
    return calls(server, "scan") - before


def test_an_event_walks_the_whole_keyspace_for_each_pattern(filled: Any, run: Any) -> None:
    """An event makes as many calls for each pattern as any client would; the server counts the same; all keys stay."""
    walk = calls_of_a_walk(filled)
    before = calls(filled, "scan")
    (*_, last) = ended(
        run(*PATTERNS, "--users", str(USERS), "--most", "3", "--seconds", "1.5", PROBE_URL=filled.url)
    )
    figures = last["figures"]
    assert walk >= KEYS / 20
    assert figures["finished_per_s"] > 0
    assert figures["calls_per_event"] == 2 * walk
    # How long it took: a busy machine ends it late.
    seconds = figures["in_flight"] / (figures["arrived_per_s"] - figures["finished_per_s"])
    # The server alone counts calls in flight at the end: one for each of six walks.
    assert 0 <= (calls(filled, "scan") - before) - round(figures["calls_per_s"] * seconds) <= 6
    assert filled.client().dbsize() == KEYS


def test_capacity_is_calls_a_second_over_those_of_an_event(filled: Any, run: Any) -> None:
    """With one event at a time all calls count: as many as wanted are under way from the first moment on."""
    (*_, last) = ended(
        run(*PATTERNS, "--users", str(USERS), "--most", "1", "--seconds", "1", PROBE_URL=filled.url)
    )
    figures = last["figures"]
    assert figures["capacity_per_s"] == pytest.approx(
        figures["calls_per_s"] / figures["calls_per_event"], rel=0.1
    )


def test_patterns_name_users_and_the_count_is_as_told(filled: Any, run: Any) -> None:
    """Each SCAN has a MATCH with a user of the range, COUNT and TYPE as asked, and the cursor of the call before it."""
    with socket.create_connection(("127.0.0.1", filled.port), PATIENCE) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        assert monitor.recv(5) == b"+OK\r\n"
        few = ("--users", "3", "--count", "500", "--type", "string", "--rate", "50", "--seconds", "0.5")
        ended(run("--url", filled.url, *PATTERNS, *few))
        filled.client().ping()
        seen = b""
        while b'"PING"' not in seen:
            seen += monitor.recv(65536)
    words = [line.split(b'" "') for line in seen.split(b"\r\n") if b'"SCAN"' in line]
    assert {(word[5], word[6], word[7].strip(b'"')) for word in words} == {(b"500", b"TYPE", b"string")}
    users = {word[3].split(b":")[2] for word in words}
    assert users == {b"1", b"2", b"3"}
    assert {word[3].split(b":")[3] for word in words} == {b"page-*", b"cart-*"}
    assert len({word[1] for word in words}) > 1


def test_a_tool_that_browses_keys_is_named_and_ends_early(filled: Any, run: Any) -> None:
    """With --calls a look ends after so many calls, and with --client CLIENT LIST has the name."""
    words = ("--match", "none:*", "--calls", "5", "--client", "key-browser")
    process = run("--url", filled.url, *words, "--rate", "20")
    eventually(lambda: calls(filled, "scan") >= 10)  # so that the first look is over
    named = {client["name"] for client in filled.client().client_list() if client["cmd"] == "scan"}
    process.send_signal(signal.SIGTERM)
    assert ended(process)[-1]["figures"]["calls_per_event"] == 5
    assert named == {"key-browser"}


def test_a_rate_is_kept_however_many_are_under_way(filled: Any, run: Any) -> None:
    """At a rate that the server cannot serve, events still come due at that rate, and pile up."""
    said = ended(run("--url", filled.url, *PATTERNS, "--rate", "2000", "--seconds", "2.2", "--count", "1"))
    *seconds, last = said
    figures = last["figures"]
    assert figures["arrived_per_s"] == pytest.approx(2000, rel=0.05)
    assert figures["in_flight"] == pytest.approx((2000 - figures["finished_per_s"]) * 2.2, rel=0.1)
    assert figures["in_flight"] > 1000
    assert [set(line) for line in seconds] == [{"t", "arrived", "finished", "calls"}] * len(seconds)
    assert len(seconds) >= 1


def test_as_many_at_once_as_told(filled: Any, run: Any) -> None:
    """With --most the load is a closed loop: never more than that many events are in flight."""
    process = run("--url", filled.url, *PATTERNS, "--most", "4", "--seconds", "1.5")
    (*_, last) = ended(process)
    assert last["figures"]["in_flight"] <= 4
    assert last["figures"]["arrived_per_s"] * 1.5 > 4


def test_told_to_end_it_says_its_figures(filled: Any, run: Any) -> None:
    """Told to end, the load prints its figures; if no event is done, no capacity is said."""
    process = run("--url", filled.url, *PATTERNS, "--rate", "1000", "--count", "1")
    eventually(lambda: calls(filled, "scan") > 0)
    process.send_signal(signal.SIGTERM)
    said = ended(process)
    assert set(said[-1]) == {"figures"}
    assert said[-1]["figures"]["finished_per_s"] == 0
    assert said[-1]["figures"]["calls_per_event"] > 0
    assert "capacity_per_s" not in said[-1]["figures"]


def test_a_server_that_refuses_or_is_gone_is_one_line(filled: Any, run: Any, unused_port: int) -> None:
    """No permission for SCAN, no server, a lost connection: each is one line and exit code 3."""
    filled.client().execute_command("ACL", "SETUSER", "guest", "on", ">pass", "~*", "+@all", "-scan")
    guest = f"redis://guest:pass@127.0.0.1:{filled.port}"
    assert "NOPERM" in refused(run("--url", guest, *PATTERNS))
    assert refused(run("--url", f"redis://127.0.0.1:{unused_port}", *PATTERNS))
    process = run("--url", filled.url, *PATTERNS)
    eventually(lambda: calls(filled, "scan") > 0)
    filled.kill()
    assert refused(process)


def test_what_is_not_a_redis_is_one_line(run: Any) -> None:
    """A server of another protocol is one line and exit code 3."""
    other = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = other.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
    url = f"redis://127.0.0.1:{other.getsockname()[1]}"
    assert "not a Redis" in refused(run("--url", url, *PATTERNS, "--lines", "1"))
    other.close()


def test_a_load_that_is_ended_at_once_has_figures(
    run: Callable[..., subprocess.Popen[str]], filled: Any
) -> None:
    """Told to end before the first event, the load ends with 0 and its line of figures."""
    assert "figures" in ended(run(*PATTERNS, "--until-stdin-ends", PROBE_URL=filled.url))[-1]
