"""Raw readings on a real server: shares that add up, the longest call, and the client of a slow command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from lab.blind import diagnostics
from lab.blind.diagnostics import longest_us, raw_reading
from lab.errors import StackError, UsageError
from lab.server.http import Storefront
from lab.server.redis_cli import CliConnection
from lab.server.server_stats import ServerObserver
from tests.loadtest.conftest import Server


@dataclass
class Target:
    """A target of readings that consists of a server alone."""

    server: ServerObserver

    @property
    def web(self) -> Storefront:
        """There is no storefront."""
        raise StackError("no storefront")

    def pids(self) -> dict[str, int]:
        """Return no process ids."""
        return {}

    def link_url(self) -> str:
        """Return the server's own URL: no latency proxy is in between."""
        return self.server.url


@pytest.fixture
def target(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """That server as a target; a reading takes one second."""
    monkeypatch.setattr(diagnostics, "WINDOW_S", 1.0)
    observer = ServerObserver(server.url)
    yield Target(observer)
    observer.close()


@pytest.fixture
def background_load(server: Server) -> Iterator[Callable[[Callable[[CliConnection], object]], None]]:
    """A function that repeats a command in a background thread until the test is over."""
    ended = threading.Event()
    threads = []

    def begin(ask: Callable[[CliConnection], object]) -> None:
        line = CliConnection(server.url)

        def repeat() -> None:
            while not ended.is_set():
                ask(line)
            line.close()

        threads.append(threading.Thread(target=repeat))
        threads[-1].start()

    yield begin
    ended.set()
    for thread in threads:
        thread.join()


def rows(text: str) -> dict[str, list[str]]:
    """Return the rows of a table by their first cell."""
    parted = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()[1:]]
    return {cells[0]: cells[1:] for cells in parted if cells}


def test_a_scene_without_a_session_has_no_history(target: Target) -> None:
    """`look history` is refused without a session, with a line that says where to look instead."""
    with pytest.raises(UsageError, match="works in a blind session only"):
        raw_reading("history", target, str)
    assert raw_reading("history", target, str, history=lambda: "since noon") == "since noon"


def test_one_long_call_among_many_short_ones_is_seen(
    target: Target, background_load: Callable[[Callable[[CliConnection], object]], None]
) -> None:
    """One long call shows in the column of the longest call, though the mean hides it."""
    background_load(lambda line: line.ask("GET", "a"))
    sleeper = threading.Timer(0.3, lambda: CliConnection(target.server.url).ask("DEBUG", "SLEEP", "0.1"))
    sleeper.start()
    table = rows(raw_reading("commands", target, str))
    sleeper.join()
    assert table["command"] == ["calls/s", "µs a call", "longest, µs", "% of a core"]
    assert int(table["debug"][2].removeprefix("≤ ").replace(",", "")) >= 100_000
    assert int(table["get"][2].removeprefix("≤ ").replace(",", "")) < 100_000


def test_shares_add_up_to_the_threads(
    target: Target, background_load: Callable[[Callable[[CliConnection], object]], None]
) -> None:
    """The shares add up to the thread's; reading, parsing and answering have a row, the larger part for short calls."""
    background_load(lambda line: line.ask("GET", "a"))
    table = rows(raw_reading("commands", target, str))
    whole = float(table.pop("(the thread in all)")[-1])
    beside_it = float(table["(reading, parsing, answering)"][-1])
    parts = sum(float(cells[-1]) for name, cells in table.items() if name != "command")
    assert parts == pytest.approx(whole, abs=0.1 * len(table))
    assert beside_it > whole / 2


def test_longest_calls_of_cumulative_histograms() -> None:
    """The longest call is in the highest bucket whose own count grew between two samples; there may be none."""
    assert longest_us({}, {}) is None
    assert longest_us({4: 5}, {4: 5}) is None
    assert longest_us({}, {2: 3, 8: 4}) == 8
    assert longest_us({2: 3, 1024: 4}, {2: 9, 1024: 10}) == 2
    assert longest_us({2: 3, 1024: 4}, {2: 3, 64: 5, 1024: 6}) == 64


def test_a_slow_command_has_a_client(server: Server, target: Target) -> None:
    """A slow command is shown with its client's address and name, as in the list of connections."""
    line = CliConnection(server.url)
    line.ask("CLIENT", "SETNAME", "accounting")
    line.ask("DEBUG", "SLEEP", "0.02")
    text = raw_reading("slowlog", target, str)
    (row,) = [row for row in text.splitlines() if "DEBUG" in row]
    assert "127.0.0.1:" in row
    assert "accounting" in row
    address = row.split()[2]
    assert address in raw_reading("clients", target, str)
    line.close()


def test_the_caller_supplies_users_and_unknown_readings_are_named(target: Target) -> None:
    """The caller gives what users see; an unknown reading is refused in one line that lists those there are."""
    assert raw_reading("users", target, lambda: "all is well") == "all is well"
    with pytest.raises(
        UsageError,
        match="choose users, history, slowlog, commands, clients, memory, ping, waits, processes or key",
    ):
        raw_reading("moon", target, str)


def test_memory_is_read_four_times(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """`look memory` shows four samples of each figure, as the server gives it."""
    monkeypatch.setattr(diagnostics, "WINDOW_S", 0.03)
    table = rows(raw_reading("memory", target, str))
    assert len(table["used_memory"]) == 4
    assert table["maxmemory_policy"] == ["noeviction"] * 4
    assert table["DBSIZE"] == ["0"] * 4


def test_a_key_is_looked_at_without_its_value(server: Server, target: Target) -> None:
    """`look key` shows a key's type, length, memory, encoding and remaining lifetime, but not its value."""
    client = server.client()
    client.sadd("index", *range(1000))
    client.set("cart:7", "x" * 50, ex=100)
    assert rows(raw_reading("key", target, str, "index"))["SCARD"] == ["1000"]
    assert rows("\n" + raw_reading("key", target, str, "index"))["PTTL"] == ["none: the key does not expire"]
    cart = rows("\n" + raw_reading("key", target, str, "cart:7"))
    assert (cart["TYPE"], cart["STRLEN"]) == (["string"], ["50"])
    assert cart["MEMORY USAGE"][0].endswith(" bytes")


@pytest.mark.parametrize(
    ("what", "name", "said"),
    [
        ("key", "", "look key needs the name of a key"),
        ("memory", "cart:7", "the other readings take no name"),
        ("key", "gone", "there is no key 'gone' now"),
    ],
)
def test_a_bad_key_name_is_refused_in_one_sentence(what: str, name: str, said: str, target: Target) -> None:
    """A key name that is missing, not wanted or unknown is refused in one sentence."""
    with pytest.raises(UsageError, match=said):
        raw_reading(what, target, str, name)
