"""`bin/lab probe` compares the server's clock with this machine's, or says why it cannot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cli import run_command
from lab.server.probe_cli import ClockComparison, compare_clocks
from loadtest.incidents.delay import Delay, relay
from loadtest.probe import clocks
from loadtest.resp import Server as Address
from tests.lab.labkit import Answer
from tests.loadtest.conftest import Server
from tests.loadtest.respkit import RespStandIn, ahead

Run = Callable[..., Answer]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `lab probe` in this process for a second."""
    return lambda *words: Answer(run_command(["probe", *words, "--seconds", "1"]), *capfd.readouterr())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A real server on this machine."""
    found = Server(tmp_path)
    found.start()
    yield found
    found.kill()


def clock_of(answer: Answer) -> dict[str, Any]:
    """What `--json` says of the clocks."""
    assert answer.code == 0, answer
    found: dict[str, Any] = json.loads(answer.out)["clock"]
    return found


@pytest.mark.parametrize("seconds", [3600.0, 0.25, -0.25])
def test_a_clock_that_is_wrong_is_found_within_what_is_said(seconds: float, run: Run) -> None:
    """The difference is right to the uncertainty that is said, which is a few milliseconds at most.

    It fails if the sign is wrong, or if a whole round trip or none is taken off.
    """
    with RespStandIn(ahead(seconds)) as server:
        found = clock_of(run(server.url, "--json"))
    assert abs(found["ahead_ms"] - seconds * 1000) <= found["within_ms"] < 20
    assert found["why"] is None


def test_the_head_says_so_in_one_line(run: Run) -> None:
    """The second line of the table says by how much the server's clock is ahead, and the rest is as it was."""
    with RespStandIn(ahead(90.0)) as server:
        answer = run(server.url)
    assert answer.code == 0, answer
    head, line, names, *_ = answer.out.splitlines()
    assert head.endswith(" GETs a second for 1 s")
    assert line.startswith("the server's clock is 90.0 s ahead of this machine's, ± ")
    assert names.startswith("time ")


def test_a_server_of_this_machine_agrees(server: Server, run: Run) -> None:
    """A real server's clock is this machine's own: no difference is claimed that is not there."""
    answer = run(server.url)
    assert answer.out.splitlines()[1].startswith("the server's clock and this machine's differ by ")
    assert answer.out.splitlines()[1].endswith(" at most")


def test_the_way_there_makes_it_uncertain_not_wrong(server: Server) -> None:
    """Over a way of 40 ms the difference is still 0 within what is said, and that is half the way and a little more.

    It fails if the uncertainty does not grow with the way.
    """
    port = relay(Address("127.0.0.1", server.port), Delay(0.02))
    found = clocks.compare(Address("127.0.0.1", port))
    assert 0.02 <= found.within_s < 0.2
    assert abs(found.ahead_s) <= found.within_s


def test_a_clock_of_whole_milliseconds_is_less_certain() -> None:
    """A server that tells whole milliseconds is found within half of one more; without that it seems to be behind."""
    with RespStandIn(ahead(0.0, step_us=1000)) as server:
        found = clocks.compare(Address("127.0.0.1", server.port))
    assert found.within_s >= 0.0005
    assert abs(found.ahead_s) <= found.within_s


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"-ERR unknown command 'TIME'\r\n", "the server refuses: ERR unknown command 'TIME'"),
        (b"+OK\r\n", "TIME was answered with"),
        (b"*1\r\n$1\r\n1\r\n", "TIME was answered with"),
        (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "TIME was answered with"),
        (b"*2\r\n$-1\r\n$-1\r\n", "TIME was answered with"),
        (b"HTTP/1.1 400\r\n", "not a Redis-compatible server"),
        (None, "the server closed the connection"),
    ],
)
def test_a_proxy_without_time_gets_one_line(reply: bytes | None, why: str) -> None:
    """Whatever a proxy does at TIME, no difference is claimed, and one line says why."""
    with RespStandIn(lambda: reply) as server:
        found = compare_clocks(Address("127.0.0.1", server.port))
    assert (found.ahead_ms, found.within_ms) == (None, None)
    assert str(found).startswith(f"the clocks could not be compared: {why}")
    assert len(str(found).splitlines()) == 1


def test_the_probe_goes_on_without_the_time(run: Run) -> None:
    """A proxy that hangs up at TIME is measured all the same. It fails if the probe ends, or has no figures."""
    with RespStandIn(lambda: None) as server:
        answer = run(server.url)
        found = clock_of(run(server.url, "--json"))
    assert answer.code == 0, answer
    why = "the server closed the connection"
    assert answer.out.splitlines()[1] == f"the clocks could not be compared: {why}"
    assert answer.out.splitlines()[-1].startswith("all ")
    assert found == {"ahead_ms": None, "within_ms": None, "why": why}


def test_a_user_who_may_not_ask_the_time_is_told_so(server: Server, run: Run) -> None:
    """Where TIME is not allowed the server's own words are the reason, and the probe goes on."""
    client: Any = server.client()
    client.execute_command("ACL", "SETUSER", "shy", "on", ">sesame", "~*", "+@all", "-time")
    answer = run(server.url.replace("//", "//shy:sesame@"))
    assert answer.code == 0, answer
    assert answer.out.splitlines()[1].startswith(
        "the clocks could not be compared: the server refuses: NOPERM"
    )
    assert "sesame" not in answer.out.splitlines()[1]


def test_a_time_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A server that is too busy for TIME delays the probe by the time that the line says, and no more."""
    monkeypatch.setattr(clocks, "PATIENCE_S", 0.2)

    def busy() -> bytes:
        time.sleep(1.0)
        return b"+OK\r\n"

    with RespStandIn(busy) as server:
        answer = run(server.url)
    assert answer.code == 0, answer
    assert (
        answer.out.splitlines()[1] == "the clocks could not be compared: TIME was not answered within 0.2 s"
    )


@pytest.mark.parametrize(
    ("ahead_ms", "within_ms", "said"),
    [
        (3.2, 0.4, "the server's clock is 3.20 ms ahead of this machine's, ± 0.400 ms"),
        (-2100.0, 5.0, "the server's clock is 2.10 s behind this machine's, ± 5.00 ms"),
        (0.3, 0.4, "the server's clock and this machine's differ by 0.700 ms at most"),
        (-0.4, 0.4, "the server's clock and this machine's differ by 0.800 ms at most"),
    ],
)
def test_no_difference_is_claimed_that_may_be_none(ahead_ms: float, within_ms: float, said: str) -> None:
    """A difference within the uncertainty is no difference; a larger one has a side."""
    assert str(ClockComparison(ahead_ms, within_ms)) == said
