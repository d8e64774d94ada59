"""`bench.cost` on a real server: a search costs more among more keys, the index does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import redis

from app.cache import CacheUnavailable
from bench import cost
from bench.cost_tables import PROMISES
from lab.errors import STACK_BROKE, USAGE
from lab.server.servers import SERVERS


def test_every_strategy_but_ttl_is_measured_and_promises_something() -> None:
    """A new strategy must say how its cost grows."""
    assert set(cost.MEASURED) == set(PROMISES)


def test_sizes_are_two_for_each_power_of_ten() -> None:
    """From the least to the most, both included."""
    assert cost.sizes(1000, 100_000) == [1000, 3162, 10_000, 31_623, 100_000]
    assert cost.sizes(1000, 1000) == [1000]
    assert cost.sizes(1, 40) == [1, 3, 10, 32, 40]


@pytest.mark.whole
def test_the_cost_over_the_keys() -> None:
    """Among a hundred times the keys a search costs many times as much, the index and a number for the user do not."""
    points = list(cost.over_keys("embedded", ["scan", "index", "generation"], 100_000, rounds=3))
    assert [point.entries for point in points[:4:2]] == [1000, 3160]
    assert [point.keys for point in points if point.strategy == "scan"] == [
        1050,
        3318,
        10_500,
        33_201,
        105_000,
    ]

    def grown(strategy: str) -> float:
        found = [median(point.main_us) for point in points if point.strategy == strategy]
        return found[-1] / found[0]

    assert grown("scan") > 3 * grown("index")
    assert grown("scan") > 3 * grown("generation")


@pytest.mark.whole
def test_the_cost_over_the_users_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the user's entries costs, but under `hash`, whose entries are freed by another thread."""
    monkeypatch.setattr(cost, "OTHERS", 10_000)
    monkeypatch.setattr(cost, "sizes", lambda *_: [10, 10_000])
    points = list(cost.over_entries("embedded", ["exact", "hash"], 10_000, rounds=2))
    by = {(point.strategy, point.own): point for point in points}
    assert median(by["exact", 10_000].main_us) > 20 * median(by["exact", 10].main_us)
    assert median(by["hash", 10_000].main_us) < 20 * median(by["hash", 10].main_us)
    assert median(by["hash", 10_000].others_us) > median(by["hash", 10_000].main_us)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--keys", "10"], "--keys must be 1,000 to 50,000,000"),
        (["--entries", "0"], "--entries must be 1 to 100,000"),
        (["--rounds", "0"], "--rounds must be 1 to 1,000"),
        (["--strategies", "scan,ttl"], "there is no strategy 'ttl'"),
    ],
)
def test_bad_arguments_get_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what is wrong."""
    with pytest.raises(SystemExit) as ended:
        cost.arguments(words)
    assert ended.value.code == USAGE
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


@contextmanager
def no_server(_: str) -> Iterator[str]:
    """A server that may not be started."""
    raise AssertionError("a server was started")
    yield ""


def called(monkeypatch: pytest.MonkeyPatch, *words: str, free: float = 4e9) -> int:
    """Call the program on a machine with so much free memory and every server; returns its exit code."""
    monkeypatch.setattr("sys.argv", ["bench.cost", *words])
    monkeypatch.setattr("bench.cost.interrupts_raise", lambda: None)  # pytest keeps its own handlers
    monkeypatch.setattr("bench.cost.psutil.virtual_memory", lambda: type("Memory", (), {"available": free}))
    for name, row in SERVERS.items():
        monkeypatch.setitem(SERVERS, name, replace(row, find=lambda: "/bin/true"))
    return cost.main()


def test_too_little_memory_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error in one line says how much would be needed."""
    monkeypatch.setattr("bench.cost.server", no_server)
    assert called(monkeypatch, "--keys", "50000000") == USAGE
    assert "need about 18.5 GB of memory" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--only", "keys"], ["--only", "entries"], ["--keys", "2000000"]])
def test_more_entries_than_the_server_is_started_with_are_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dragonfly has a maxmemory of its own: one line before anything starts, however much the machine has."""
    monkeypatch.setattr("bench.cost.server", no_server)
    assert called(monkeypatch, "--server", "dragonfly", *words, free=1e12) == USAGE
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "the entries on dragonfly need about" in told
    assert "1.1 GB are its maxmemory" in told


@pytest.mark.parametrize(
    "error", [CacheUnavailable("out of memory"), redis.exceptions.OutOfMemoryError("out of\nmemory")]
)
def test_what_a_server_says_ends_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the line that announces the memory; entries that fit are not refused."""

    @contextmanager
    def broken(_: str) -> Iterator[str]:
        raise error
        yield ""

    monkeypatch.setattr("bench.cost.server", broken)
    words = ("--server", "dragonfly", "--only", "keys", "--keys", "2000000")
    assert called(monkeypatch, *words) == STACK_BROKE
    announced, said = capsys.readouterr().err.splitlines()
    assert "need about 1.4 GB of memory, 4.0 GB are free" in announced
    assert said == "bench.cost: dragonfly failed: out of memory"


def test_a_cache_without_a_size_is_left_out(tmp_path: Path) -> None:
    """Some kernels do not tell it, or tell it otherwise."""
    for number, size in enumerate(("32K", None, "1M")):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(f"{number + 1}\n")
        (folder / "type").write_text("Data\n")
        if size:
            (folder / "size").write_text(f"{size}\n")
    assert cost.caches(tmp_path) == {"L1": 32768}
