"""`bin/lab probe` and `bin/lab redis` on real servers: what they show, what they refuse, and what they put back."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cli import run_command
from lab.errors import LabError, StackError, UsageError
from lab.server import redis_cli
from lab.server.address import Address
from lab.server.probe_cli import ProbeTotals, add_interval
from loadtest import resp
from loadtest.histogram import Histogram
from tests.app.servicekit import eventually, free_port
from tests.lab.labkit import Answer, Running
from tests.loadtest.conftest import Server

Run = Callable[..., Answer]
THRESHOLD = "slowlog-log-slower-than"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Somebody's own server; PROBE_URL gives the commands its address."""
    found = Server(tmp_path)
    found.start()
    monkeypatch.setenv("PROBE_URL", found.url)
    yield found
    found.kill()


@pytest.fixture
def observed(server: Server) -> Iterator[Server]:
    """That server in a scene of the lab: the lab's probe is connected to it."""
    client = server.client()
    client.client_setname("probe:main")
    yield server
    client.close()


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """A function that runs a `lab` command in this process."""
    return lambda *words: Answer(run_command(list(words)), *capfd.readouterr())


def a_line(waits: list[int], lags: list[int], errors: int = 0, oldest_us: int = 0) -> dict[str, Any]:
    """Return the probe's line for an interval with these latencies and lags (µs)."""
    intended, lag = Histogram(), Histogram()
    for each in waits:
        intended.record(each)
    for each in lags:
        lag.record(each)
    words = {
        "t": 0.0,
        "interval_s": 0.5,
        "errors": errors,
        "oldest_in_flight_us": oldest_us,
        "last_error": "gone" if errors else None,
    }
    return {**words, "intended": intended.encode(), "lag": lag.encode()}


def test_a_row_counts_what_was_sent_late_and_what_came_back() -> None:
    """p99 is that of the answers; a request is late if it left more than a millisecond after it was due."""
    total = ProbeTotals()
    row = add_interval(a_line([1000] * 98 + [50_000] * 2, [10] * 97 + [1500] * 3, errors=1), total)
    assert (row.sent, row.on_time, row.late, row.failed, row.answered) == (100, 97, 3, 1, 100)
    assert [row.p50, row.p99, row.max] == pytest.approx([1, 50, 50], rel=0.01)
    assert "waits" not in row.line()
    assert "only" not in row.line(every=0.5)
    assert row.line(every=1.0).endswith("  the last 0.5 s only")
    later = add_interval(a_line([], [10] * 100, oldest_us=2_500_000), total)
    assert (later.answered, later.p99) == (0, None)
    assert later.line().endswith("–  the oldest waits for 2.50 s")
    whole = total.row("all")
    assert (whole.sent, whole.late, whole.failed, whole.answered) == (200, 3, 1, 100)
    assert total.error == "gone"


def test_a_probe_is_a_table_with_a_total(server: Server, run: Run) -> None:
    """A probe prints a row for each interval and one for all; its keys have their own prefix and expire."""
    answer = run("probe", "--seconds", "1", "--every", "0.5", "--rate", "100")
    assert answer.code == 0, answer
    head, clocks, names, *rows = answer.out.splitlines()
    assert head == f"127.0.0.1:{server.port}: 100 GETs a second for 1 s"
    assert clocks.startswith("the server's clock ")
    assert names.split() == ["time", "sent", "on", "time", "late", "failed", "answered", "p50", "p99", "max"]
    assert len(rows) >= 3
    assert rows[-1].split()[:2] == ["all", "100"]
    assert (int(rows[-1].split()[3]) > 0) == ("the latest left" in rows[-1])
    keys = [str(key) for key in server.client().scan_iter()]
    assert len(keys) == 100
    assert all(key.startswith("latency-lab:probe:") for key in keys)
    assert 0 < server.client().ttl(keys[0]) <= 3600


def test_a_ping_writes_nothing(server: Server, run: Run) -> None:
    """`probe --ping` writes no key; --json prints one object and nothing else."""
    answer = run("probe", server.url, "--seconds", "1", "--ping", "--json")
    told = json.loads(answer.out)
    assert told["total"]["answered"] == 200
    assert sum(row["sent"] for row in told["rows"]) == told["total"]["sent"] == 200
    assert server.client().dbsize() == 0


def test_a_server_that_stalls_is_seen_from_the_moment_each_was_due(server: Server, run: Run) -> None:
    """One stall of half a second shows in p99 and max, because each request counts from the moment it was due."""
    sleeper = threading.Timer(0.7, lambda: redis_cli.CliConnection(server.url).ask("DEBUG", "SLEEP", "0.5"))
    sleeper.start()
    total = json.loads(run("probe", "--seconds", "2", "--json").out)["total"]
    sleeper.join()
    assert total["max"] > 400
    assert total["p99"] > 20 * total["p50"]


def test_ctrl_c_ends_a_probe_with_its_figures(server: Server, tmp_path: Path) -> None:
    """Ctrl-C ends a probe with its total so far, one line and exit code 130, and leaves no process."""
    with Running("--seconds", "60", cwd=tmp_path, verb="probe") as running:
        running.until(lambda: (tmp_path / "stdout.txt").read_text().count("\n") > 3)
        running.signal(signal.SIGINT)
        answer = running.answer()
        assert answer.is_one_line(130), answer
        assert answer.out.splitlines()[-1].startswith("all ")
        assert running.left() == []


def test_a_server_that_dies_meanwhile_is_no_answer_for_ever(server: Server, run: Run) -> None:
    """When the server dies, failed requests are counted and the last failure is told; the figures are kept."""

    def kill_once_it_is_asked() -> None:
        with server.client() as client:
            eventually(client.dbsize)
        time.sleep(0.5)
        server.kill()

    ending = threading.Thread(target=kill_once_it_is_asked)
    ending.start()
    answer = run("probe", "--seconds", "2")
    ending.join()
    assert answer.code == 0
    assert "the last failure: " in answer.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["probe", "redis://127.0.0.1:PORT"], 3, "no probe was started: 127.0.0.1:"),
        (
            ["probe", "http://127.0.0.1"],
            2,
            "not a redis://host:port address. TLS and sockets: bin/lab diagnose.",
        ),
        (["probe", "--seconds", "0"], 2, "--seconds"),
        (["probe", "--rate", "inf"], 2, "--rate"),
        (["redis", "--url", "redis://127.0.0.1:PORT", "PING"], 3, "127.0.0.1:"),
        (["redis", "--url", "nowhere", "PING"], 2, "not a redis://host:port address"),
        (["redis"], 2, "name a command"),
        (["redis", "SUBSCRIBE", "a"], 2, "SUBSCRIBE never ends"),
        (["redis", "MONITOR"], 2, "MONITOR may change this server or load it heavily"),
        (["redis", "FLUSHALL"], 2, "bin/lab redis --write COMMAND"),
        (["redis", "keys", "*"], 2, "KEYS may change this server or load it heavily"),
        (["redis", "CONFIG", "SET", THRESHOLD, "-1"], 2, "bin/lab redis --write COMMAND"),
        (["redis", "OBJECT", "NOTHING", "a"], 2, "OBJECT may change this server"),
        (["redis", "SCAN", "0", "COUNT", "1000000000"], 2, "SCAN may change this server or load it"),
        (["redis", "MEMORY", "USAGE", "mine", "SAMPLES", "0"], 2, "MEMORY may change this server"),
        (["redis", "SLOWLOG", "GET", "-1"], 2, "SLOWLOG may change this server"),
        (["redis", "TYPE"], 2, "the server refuses: ERR wrong number of arguments"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_be_is_one_line(words: list[str], code: int, said: str, server: Server, run: Run) -> None:
    """A command that cannot or must not be given is refused in one line, and nothing is changed."""
    server.client().set("mine", "1")
    answer = run(*(word.replace("PORT", str(free_port())) for word in words))
    assert answer.is_one_line(code), answer
    assert said in answer.err
    assert server.client().keys() == ["mine"]


@pytest.mark.parametrize("words", [["probe"], ["redis", "PING"]])
def test_an_address_is_never_guessed(words: list[str], monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Without an address a probe and a command are refused: somebody else's server may be at the usual one."""
    monkeypatch.delenv("PROBE_URL", raising=False)
    answer = run(*words)
    assert answer.is_one_line(2), answer
    assert "name a server" in answer.err


def test_answers_are_those_of_redis_cli() -> None:
    """Answers are printed as by redis-cli: with types and numbers on a terminal, bare in a pipe."""
    answer = [b"a", 7, None, [b"x", b"y\xff"], []]
    assert list(redis_cli.lines(answer, terminal=False)) == ["a", "7", "", "x", "y\\xff"]
    assert list(redis_cli.lines(answer, terminal=True)) == [
        "1) a",
        "2) (integer) 7",
        "3) (nil)",
        "4) 1) x",
        "   2) y\\xff",
        "5) (empty array)",
    ]


def test_what_is_harmless_may_be_asked_of_any_server(server: Server, run: Run) -> None:
    """Harmless commands, in small letters too, may be sent to any server; the others need --write."""
    server.client().set("mine", "two\nlines")
    assert run("redis", "get", "mine").out == "two\nlines\n"
    told = run("redis", "info", "memory").out
    assert "maxmemory:" in told and "\\x0d" not in told
    assert run("redis", "config", "get", THRESHOLD).out.split() == [THRESHOLD, "10000"]
    assert run("redis", "--write", "DEL", "mine").out == "1\n"
    assert run("redis", "DBSIZE").out == "0\n"


def test_monitor_is_overheard_for_a_moment(
    observed: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MONITOR shows what other clients ask, in order, and ends by itself, also on a quiet server."""
    monkeypatch.setattr(redis_cli, "MONITORED_S", 0.5)
    client = observed.client()
    asking = threading.Timer(0.2, lambda: [client.get(f"key:{number}") for number in range(3)])
    asking.start()
    told = run("redis", "monitor")
    asking.join()
    assert told.code == 0
    assert [line.split('"')[3] for line in told.out.splitlines() if '"GET"' in line] == [
        "key:0",
        "key:1",
        "key:2",
    ]
    assert run("redis", "MONITOR").code == 0


@pytest.fixture
def says() -> Iterator[Callable[..., redis_cli.CliConnection]]:
    """A function that connects to a server which says these bytes, piece by piece, and then closes the connection."""
    with contextlib.ExitStack() as stack:

        def connect(*pieces: bytes) -> redis_cli.CliConnection:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                with listening.accept()[0] as there:
                    there.recv(1000)
                    for piece in pieces:
                        there.sendall(piece)
                        time.sleep(0.1)

            serving = threading.Thread(target=serve)
            line = redis_cli.CliConnection(f"redis://127.0.0.1:{listening.getsockname()[1]}")
            serving.start()
            stack.callback(serving.join)
            return stack.enter_context(contextlib.closing(line))

        yield connect


def test_monitor_reads_lines_that_come_in_pieces(
    says: Callable[..., redis_cli.CliConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that comes together with OK is kept, and a line in two pieces is put together."""
    monkeypatch.setattr(redis_cli, "MONITORED_LINES", 2)
    line = says(b'+OK\r\n+1.0 "GET" "a"\r\n+2.0 "G', b'ET" "b"\r\n+3.0 "GET" "c"\r\n')
    assert line.monitored() == ['1.0 "GET" "a"', '2.0 "GET" "b"']


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (b'+OK\r\n+1.0 "GET" "a"\r\n', StackError, "the server closed the connection"),
        (b"HTTP/1.1 400\r\n", StackError, "not a Redis-compatible server"),
        (b"-NOPERM no permissions\r\n", UsageError, "the server refuses: NOPERM no permissions"),
    ],
)
def test_monitor_that_cannot_go_on_says_so_at_once(
    words: bytes, error: type[LabError], said: str, says: Callable[..., redis_cli.CliConnection]
) -> None:
    """MONITOR ends with one line and no wait when the server refuses it, closes the connection, or is no Redis."""
    began = time.monotonic()
    with pytest.raises(error, match=said) as raised:
        says(words).monitored()
    assert "\n" not in str(raised.value)
    assert time.monotonic() - began < redis_cli.MONITORED_S / 2


def test_monitor_without_an_answer_says_so(
    says: Callable[..., redis_cli.CliConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is too busy even to begin is not taken for one that nobody asks anything."""
    monkeypatch.setattr(resp, "ANSWER_S", 0.05)
    with pytest.raises(StackError, match="the server does not answer"):
        says(b"").monitored()


def test_a_changed_setting_is_told_with_its_value_before(observed: Server, run: Run) -> None:
    """The line that puts a changed setting back is printed, and does so."""
    client = observed.client()
    answer = run("redis", "CONFIG", "SET", THRESHOLD, "-1", "maxmemory-samples", "5")
    assert (answer.code, answer.out) == (0, "OK\n")
    assert (
        answer.err
        == f"before: {THRESHOLD} 10000. Put it back with: bin/lab redis CONFIG SET {THRESHOLD} 10000\n"
    )
    back = answer.err.partition("bin/lab ")[2].split()
    assert run(*back).code == 0
    assert client.config_get(THRESHOLD)[THRESHOLD] == "10000"
    secret = run("redis", "CONFIG", "SET", "masterauth", "new")
    assert run("redis", "CONFIG", "SET", "masterauth", "").err == secret.err
    assert secret.err == "before: masterauth had another value, which is not shown.\n"
    refused = run("redis", "CONFIG", "SET", "maxmemory", "much")
    assert refused.is_one_line(2) and "the server refuses: ERR" in refused.err, refused


def test_a_run_on_somebody_elses_server_makes_it_no_scene(observed: Server, run: Run) -> None:
    """While a run of the lab has the lock of a server, commands that change it need --write."""
    observed.client().set(redis_cli.LOCK, "token")
    assert run("redis", "FLUSHALL").is_one_line(2)
    assert run("redis", "SCAN", "0", "COUNT", "1000").code == run("redis", "SLOWLOG", "GET", "5").code == 0


def test_a_server_elsewhere_is_no_scene_whatever_its_clients_are_called(
    observed: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lab starts servers on this machine only: any client may take the probe's name."""
    monkeypatch.setattr(Address, "is_here", False)
    assert run("redis", "FLUSHALL").is_one_line(2)
