"""The clients that iterate and the load beside them, against a real server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.app.servicekit import eventually
from tests.loadtest.conftest import PATIENCE, calls, end_stdin, ended, figures, refused

Start = Callable[..., subprocess.Popen[str]]


def next_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the next line of a load. The first one says that it is under way."""
    assert process.stdout
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def fill(server: Any, keys: int) -> None:
    """Write `keys` keys."""
    server.client().mset({f"key:{number}": "x" for number in range(keys)})


@pytest.mark.parametrize(("count", "concurrent"), [(10, 1), (100, 3), (5_000, 2)])
def test_every_iteration_brings_every_key_once(server: Any, load: Start, count: int, concurrent: int) -> None:
    """The keys visited are all keys times the iterations, and a call brings about COUNT keys."""
    fill(server, 3_000)
    clients = load("iterations", "--url", server.url, "--count", str(count), "--concurrent", str(concurrent))
    lines = [next_line(clients)]
    while lines[-1]["iterations"] < 2 * concurrent:
        lines.append(next_line(clients))
    clients.terminate()
    lines += ended(clients)
    found, last = lines[-1]["figures"], lines[-2]
    assert (found["count"], found["concurrent"]) == (count, concurrent)
    # Iterations under way have seen some of the keys.
    assert 3_000 * last["iterations"] <= last["visited"] < 3_000 * (last["iterations"] + concurrent)
    assert min(count, 3_000) <= found["keys_per_call"] <= 2 * count
    assert found["iteration_s"] > 0
    assert 0 < found["mean_call_ms"] <= found["longest_call_ms"]
    assert found["longest_in_iteration_ms"] <= found["longest_call_ms"]
    assert calls(server, "scan") >= last["calls"]


def test_an_iteration_that_is_not_finished_is_told_from_what_was_visited(server: Any, load: Start) -> None:
    """With COUNT 1 no iteration ends: its time is computed for all keys at the pace so far."""
    fill(server, 300_000)
    clients = load("iterations", "--url", server.url, "--count", "1", "--concurrent", "2", "--seconds", "0.5")
    found = figures(clients)
    assert found["iterations"] == 0
    assert found["iteration_s"] == pytest.approx(2 * 300_000 / found["visited_per_s"], rel=0.01)


@pytest.mark.parametrize(("rest", "least", "most"), [("0", 0.8, 1.0), ("1", 0.4, 0.6), ("3", 0.2, 0.35)])
def test_rests_between_calls_are_a_share_of_their_time(
    server: Any, load: Start, rest: str, least: float, most: float
) -> None:
    """A rest after each call that is as long as the call halves the share of time in calls, and so the calls."""
    fill(server, 30_000)
    found = figures(
        load("iterations", "--url", server.url, "--count", "1000", "--rest-between", rest, "--seconds", "1")
    )
    in_calls = found["calls_per_s"] * found["mean_call_ms"] / 1000
    assert least <= in_calls <= most, found
    assert found["iterations"] >= 1


def test_a_control_walks_nothing(server: Any, load: Start) -> None:
    """The control sends PINGs with rests in between; their number in an iteration does not depend on COUNT."""
    fill(server, 1_000)
    arguments = ("--command", "ping", "--rest-ms", "20", "--concurrent", "2", "--seconds", "1")
    few, many = (
        figures(load("iterations", "--url", server.url, "--count", count, *arguments))
        for count in ("10", "1000")
    )
    for found in (few, many):
        assert found["visited_per_s"] == found["keys_per_call"] == 0
        assert 2 <= found["iterations"] <= 2 * 1_000 / 20 + 2
        assert found["iteration_s"] > 0
    assert calls(server, "scan") == 0
    assert calls(server, "ping") >= 10 * (few["iterations"] + many["iterations"])


@pytest.mark.parametrize("module", ["iterations", "bystanders"])
def test_it_ends_with_its_stdin(server: Any, load: Start, module: str) -> None:
    """With --until-stdin-ends a load ends when its stdin does, for callers that cannot send signals."""
    fill(server, 100)
    process = load(module, "--url", server.url, "--until-stdin-ends")
    next_line(process)
    end_stdin(process)
    assert figures(process)


def test_bystanders_get_until_they_are_told_to_end(server: Any, load: Start) -> None:
    """Bystanders GET keys that exist, over as many connections as asked for, and leave no key behind."""
    server.client().set("not-mine", "stays")
    process = load("bystanders", "--url", server.url, "--prefix", "mine", "--connections", "3", "--pipeline", "5",
                 "--keys", "50")  # fmt: skip
    note = next_line(process)["note"]
    assert "3 connections, pipeline 5" in note
    before = calls(server, "get")
    eventually(lambda: calls(server, "get") > before + 5_000)
    eventually(lambda: sum(client["cmd"] == "get" for client in server.client().client_list()) == 3)
    assert server.client().info("stats")["keyspace_misses"] == 0
    process.terminate()
    found = figures(process)
    assert found == {"bystander_connections": 3, "bystander_pipeline": 5}
    after = calls(server, "get")
    assert server.client().keys() == ["not-mine"]
    time.sleep(0.1)
    assert calls(server, "get") == after


def test_bystanders_sign_in_with_a_password(guarded_server: Any, load: Start) -> None:
    """A password from the environment, which the process list does not show, is used by every process."""
    url = guarded_server.url.replace("redis://", "redis://:open%20sesame@")
    process = load("bystanders", PROBE_URL=url)
    next_line(process)
    process.terminate()
    assert figures(process)["bystander_connections"] == 4


@pytest.mark.parametrize("arguments", [("iterations",), ("bystanders",)])
def test_a_server_that_goes_away_is_one_line_and_exit_code_3(
    server: Any, load: Start, arguments: tuple[str, ...]
) -> None:
    """If the server goes away, a load exits with code 3 and a message without a traceback."""
    fill(server, 1_000)
    process = load(*arguments, "--url", server.url)
    next_line(process)
    server.kill()
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "Traceback" not in complaints
    assert complaints.splitlines()[-1].startswith(f"{arguments[0]}: ")


def test_a_server_that_takes_no_writes_is_one_line_and_exit_code_3(server: Any, load: Start) -> None:
    """A server that is out of memory before the load begins is one line and exit code 3."""
    server.client().config_set("maxmemory", "1")
    process = load("bystanders", "--url", server.url)
    assert "OOM" in refused(process)
