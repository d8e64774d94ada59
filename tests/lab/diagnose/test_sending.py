"""The commands of a diagnosis: only allowed ones, within the promised rate and time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from bench.kit import server as bench_server
from lab.diagnose import questions
from lab.diagnose.prober import LAST_REPLY_S
from lab.diagnose.questions import ALLOWED, SETTINGS, NotAllowed, Questions
from lab.diagnose.watch import LOOKS_S
from lab.server.address import read_address
from lab.server.servers import SERVERS
from tests.lab.diagnose.diagnosekit import Fake, Run, Tap, one_line
from tests.loadtest.conftest import Server


@pytest.fixture(params=["embedded", "redis", "dragonfly", "keydb"])
def any_server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of each server that the machine has, with 5,000 keys on it."""
    if SERVERS[request.param].find() is None:
        pytest.skip(f"there is no {request.param} on this machine")
    with bench_server(request.param) as url:
        client: Any = redis.Redis.from_url(url, protocol=2)
        client.mset({f"key:{number}": "x" for number in range(5_000)})
        yield client
        client.close()


def test_only_allowed_commands_are_sent_within_their_rate(any_server: Any, diagnose: Run) -> None:
    """On the wire and by the server's count only allowed commands are sent, within their rate; no key is changed."""
    own = any_server

    def keyspace() -> tuple[int, int, int]:
        database = own.info("keyspace")["db0"]
        return database["keys"], database["expires"], own.info("stats")["expired_keys"]

    before = keyspace()
    own.config_resetstat()
    port = own.connection_pool.connection_kwargs["port"]
    with Tap(port) as tap:
        code, said, _ = diagnose(tap.url, "--seconds", "4", "--json")
        tap.shutdown()
    assert code == 0
    for _, words in tap.commands:
        assert (words[0],) in ALLOWED or tuple(words[:2]) in ALLOWED, words
        assert words[0] != "CONFIG" or words[2] in SETTINGS
    probes = [at for at, words in tap.commands if words[0] in ("GET", "PING")]
    others = [at for at, words in tap.commands if words[0] not in ("GET", "PING")]
    for moments, most in ((probes, questions.PROBES_PER_S), (others, questions.PER_SECOND)):
        assert (
            max(sum(at <= each < at + 1 for each in moments) for at in moments) <= most + 2
        )  # each command comes at a random moment of its slot
    counted = own.info("commandstats")
    names = {name.removeprefix("cmdstat_") for name in counted} - {"config|resetstat"}
    known = {"info", "ping", "get", "slowlog|get", "commandlog|get", "latency|latest", "latency|histogram",
             "config|get", "client|list"}  # fmt: skip
    if not any("|" in name for name in names):
        # Dragonfly counts by first words. The second ones were seen on the wire.
        known = {name.partition("|")[0] for name in known}
    assert names <= known
    told = json.loads(said)
    assert sum(told["sent"].values()) == len(tap.commands)
    assert keyspace() == before


NEVER: tuple[tuple[str | int, ...], ...] = (
    ("SCAN", "0"), ("KEYS", "*"), ("MONITOR",), ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "RESETSTAT"), ("SLOWLOG", "RESET"), ("GET", "somebody"), ("SET", "a", "b"), ("EVAL", "return 1", 0),
    ("CONFIG", "GET", "maxmemory", "requirepass"), ("CONFIG", "GET"),
    ("DEBUG", "SLEEP", "1"), ("CLIENT", "KILL", "x"), ("LATENCY", "RESET"), ("OBJECT", "FREQ", "a"), ("FLUSHALL",),
)  # fmt: skip


def test_nothing_else_can_be_sent(server: Server) -> None:
    """The module that sends refuses every other command before it leaves."""
    with Tap(server.port) as tap, closing(Questions(read_address(tap.url, environ={}))) as asked:
        for words in NEVER:
            with pytest.raises(NotAllowed):
                asked.ask(*words)
        asked.ask("PING")
        tap.shutdown()
    assert [words for _, words in tap.commands] == [["PING"]]


def test_a_diagnosis_that_holds_the_server_ends_by_itself(diagnose: Run) -> None:
    """If INFO takes the server two seconds, the diagnosis ends early and says why."""
    with Fake(info_s=2.0) as fake:
        began = time.monotonic()
        code, said, _ = diagnose(f"redis://127.0.0.1:{fake.server_address[1]}", "--seconds", "60")
        fake.shutdown()
    assert code == 0
    assert time.monotonic() - began < 30
    assert "not seen: the diagnosis ended early: INFO held the server for 2.0 s" in said


def test_a_request_without_a_reply_counts_with_its_wait(diagnose: Run) -> None:
    """A request without a reply at the end counts with the time it has waited so far."""
    with Fake(ping_s=8.0) as fake:
        code, said, _ = diagnose(f"redis://127.0.0.1:{fake.server_address[1]}", "--seconds", "3", "--json")
        fake.shutdown()
    assert code == 0
    assert json.loads(said)["figures"]["p99_ms"] > 2000


def timed(diagnose: Run, *words: str) -> tuple[float, tuple[int, str, str]]:
    """Return the seconds that a diagnosis took, and what came of it."""
    began = time.monotonic()
    found = diagnose(*words)
    return time.monotonic() - began, found


AT_MOST_S = 3 + LOOKS_S + 1.5
"""The most seconds of a diagnosis with --seconds 3: the probe's first two slots take 0.2 s, printing under a second."""


@pytest.mark.whole
def test_a_reply_that_takes_twenty_seconds_does_not_prolong_it(diagnose: Run) -> None:
    """If INFO gets no reply from the third on, the diagnosis ends in time, with what it saw until then."""
    with Fake(stands=lambda name, infos: name == "INFO" and infos >= 2) as fake:
        took, (code, said, _) = timed(diagnose, fake.url, "--seconds", "3", "--json")
        fake.shutdown()
    told = json.loads(said)
    assert code == 0
    assert took < AT_MOST_S
    assert any(
        line.startswith("the diagnosis ended early: no reply to INFO within ") for line in told["unseen"]
    )
    assert told["sent"]["INFO"] == 4  # two with a reply, the one that ended it, and a last attempt


@pytest.mark.whole
def test_a_log_that_does_not_come_is_not_compared(diagnose: Run) -> None:
    """A log that was not read at the beginning is not read at the end: every old entry would look new."""
    entry = b"*1\r\n*4\r\n:1\r\n:1\r\n:90000\r\n*1\r\n$4\r\nKEYS\r\n"
    slow = {"SLOWLOG": entry}
    with Fake(replies=slow) as fake:
        _, calm, _ = diagnose(fake.url, "--seconds", "1", "--show-arguments")
        fake.shutdown()
    with Fake(replies=slow, stands=lambda name, infos: name == "SLOWLOG" and infos < 2) as fake:
        took, (code, said, _) = timed(diagnose, fake.url, "--seconds", "3", "--show-arguments")
        fake.shutdown()
    assert (code, "slow: KEYS" in calm, "slow: KEYS" in said) == (0, False, False)
    assert "not seen: SLOWLOG GET: no reply in time" in said
    assert took < AT_MOST_S


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.whole
def test_a_server_that_stands_still_is_one_line_in_time(after: int, diagnose: Run) -> None:
    """A server that answers no INFO, or none after the first, is one line, before a reply could have come."""
    with Fake(stands=lambda _name, infos: infos >= after) as fake:
        took, found = timed(diagnose, fake.url, "--seconds", "3")
        fake.shutdown()
    one_line(found, 3, "accepts the connection, but does not answer INFO: it stands still")
    assert took < AT_MOST_S + LAST_REPLY_S
