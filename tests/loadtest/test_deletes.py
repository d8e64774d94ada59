"""The load that deletes, and the relay that delays, against a real server."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from loadtest.incidents.delay import Delay, relay
from loadtest.resp import Server as Address
from tests.app.servicekit import eventually
from tests.loadtest.conftest import PATIENCE, calls, end_stdin, ended, refused

WAYS = ("one_by_one", "pipelined", "transaction", "variadic")


@pytest.fixture
def run(load: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start `python -m loadtest.incidents.deletes`."""
    return partial(load, "deletes")


@pytest.mark.parametrize(
    ("way", "chunk", "expected"),
    [
        ("one_by_one", 0, {"del": 250, "unlink": 0, "exec": 0}),
        ("pipelined", 0, {"del": 250, "unlink": 0, "exec": 0}),
        ("pipelined", 100, {"del": 250, "unlink": 0, "exec": 0}),
        ("transaction", 100, {"del": 250, "unlink": 0, "exec": 3}),
        ("variadic", 100, {"del": 0, "unlink": 3, "exec": 0}),
        ("variadic", 0, {"del": 0, "unlink": 1, "exec": 0}),
    ],
)
def test_each_way_deletes_all_in_the_commands_it_promises(
    server: Any, run: Any, way: str, chunk: int, expected: dict[str, int]
) -> None:
    """Each way deletes every key with the number of commands it promises; other keys stay."""
    server.client().set("deletes-not:1", "stays")
    said = ended(run("--url", server.url, "--ways", way, "--keys", "250", "--one-by-one-keys", "250",
                     "--chunk", str(chunk), "--rounds", "1"))  # fmt: skip
    assert [line["deleted"] for line in said[:-1]] == [250]
    assert {name: calls(server, name) for name in expected} == expected
    assert server.client().keys("*") == ["deletes-not:1"]


def test_figures_hold_every_way_and_what_it_gains(server: Any, run: Any) -> None:
    """Figures hold each way's best measurement and the gain between ways; one by one deletes fewer keys."""
    words = ("--ways", ",".join(WAYS), "--keys", "400", "--one-by-one-keys", "40", "--rounds", "3")
    *measured, last = ended(run(*words, PROBE_URL=server.url))
    assert len(measured) == 3 * len(WAYS)
    figures = last["figures"]
    for way in WAYS:
        mine = [line for line in measured if line["way"] == way]
        assert {line["deleted"] for line in mine} == {40 if way == "one_by_one" else 400}
        assert figures[f"{way}_keys_per_s"] == max(line["keys_per_s"] for line in mine)
    ratio = figures["pipelined_keys_per_s"] / figures["one_by_one_keys_per_s"]
    assert figures["pipelined_gain_x"] == pytest.approx(ratio)
    assert figures["rounds"] == 3
    assert "keys_per_s" not in figures


def test_an_added_round_trip_is_waited_for_once_a_reply(server: Any, run: Any) -> None:
    """20 replies take 20 round trips or longer one by one, and one pipeline of 20 takes less than half of that."""
    said = ended(run("--url", server.url, "--ways", "one_by_one,pipelined", "--keys", "20",
                     "--one-by-one-keys", "20", "--rtt-ms", "20", "--rounds", "1"))  # fmt: skip
    figures = said[-1]["figures"]
    assert figures["round_trip_ms"] >= 20
    assert figures["one_by_one_s"] >= 20 * 0.020
    assert 0.020 <= figures["pipelined_s"] < figures["one_by_one_s"] / 2


def test_a_relay_delays_and_keeps_order_and_amount(server: Any) -> None:
    """A few megabytes come back whole and in order, not before the added round trip; the stream's end is passed on."""
    echo = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = echo.accept()
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.close()

    threading.Thread(target=answer, daemon=True).start()
    port = relay(Address("127.0.0.1", echo.getsockname()[1]), Delay(0.03))
    sent = bytes(range(251)) * 12_000
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as line:
        began = time.monotonic()

        def send() -> None:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        got = line.recv(65536)
        assert time.monotonic() - began >= 0.06
        while data := line.recv(65536):
            got += data
    assert got == sent


def test_a_relay_to_nowhere_closes_the_connection(unused_port: int) -> None:
    """A client of a relay without a server gets the end of the stream, and so does the next client."""
    port = relay(Address("127.0.0.1", unused_port), Delay(0.0))
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as line:
            assert line.recv(1) == b""


def test_a_relay_listens_only_at_an_address_of_this_machine(load: Any) -> None:
    """`--listen` with an address that is not this machine's is one line and exit code 2."""
    process = load("delay", "--url", "redis://127.0.0.1:1", "--listen", "203.0.113.7")
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, complaints
    assert complaints.startswith("delay: cannot listen at 203.0.113.7: ")
    assert len(complaints.splitlines()) == 1


def test_told_to_end_it_says_its_figures_and_leaves_no_keys(server: Any, run: Any) -> None:
    """Told to end in the middle of a slow deletion, the load prints its figures and leaves no keys."""
    process = run("--url", server.url, "--ways", "one_by_one", "--one-by-one-keys", "100000", "--rtt-ms", "5",
                  "--until-stdin-ends")  # fmt: skip
    eventually(lambda: calls(server, "del") > 0)
    end_stdin(process)
    said = ended(process)
    assert set(said[-1]) == {"figures"}
    assert said[-1]["figures"]["rounds"] == 1
    assert server.client().dbsize() == 0


def test_a_server_that_refuses_or_is_gone_is_one_line(server: Any, run: Any, unused_port: int) -> None:
    """Out of memory, a replica that takes no writes, no server, a lost connection: each is one line and exit code 3."""
    client = server.client()
    client.config_set("maxmemory", "1")
    assert "OOM" in refused(run("--url", server.url, "--keys", "10"))
    client.config_set("maxmemory", "0")
    client.execute_command("REPLICAOF", "127.0.0.1", str(unused_port))
    assert "READONLY" in refused(run("--url", server.url, "--keys", "10"))
    client.execute_command("REPLICAOF", "NO", "ONE")
    assert refused(run("--url", f"redis://127.0.0.1:{unused_port}"))
    process = run("--url", server.url, "--ways", "one_by_one", "--one-by-one-keys", "20000", "--rtt-ms", "5")
    eventually(lambda: calls(server, "del") > 0)
    server.kill()
    assert refused(process)
