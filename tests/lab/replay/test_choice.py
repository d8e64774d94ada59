"""What a recording keeps when it must be small, and how series are moved in time."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.replay import NoAnswer
from lab.replay.prometheus import key, shifted, usual_step_ms
from lab.replay.record import choose, fit, names_in_use, record
from lab.replay.recording import Exemplar, Series, pack_metrics
from lab.replay.remotewrite import LITERAL, STALE, snappy

T = 1_795_000_000_000


def exemplar(t_s: float, value: float, trace: int) -> Exemplar:
    """Return an exemplar of the trace of that number."""
    return Exemplar(T + round(t_s * 1000), value, {"trace_id": f"{trace:032x}"})


def series(name: str, samples: int = 5, step_ms: int = 2000) -> Series:
    """Return a series of numbers that do not compress."""
    numbers = random.Random(name)
    values = [numbers.random() for _ in range(samples)]
    return Series({"__name__": name, "server": "redis"}, [T + i * step_ms for i in range(samples)], values)


def test_slowest_of_each_moment_first() -> None:
    """The slowest trace of each stretch and server is chosen before a second one of any: all time is covered."""
    labels = {"__name__": "http_bucket", "server": "redis"}
    found = {
        key({**labels, "le": "0.1"}): [exemplar(1, 0.05, 1), exemplar(2, 0.09, 2), exemplar(31, 0.01, 3)],
        key({**labels, "le": "+Inf"}): [exemplar(3, 7.0, 4)],
        key({**labels, "server": "dragonfly", "le": "0.1"}): [exemplar(2, 0.02, 5)],
    }
    order = [int(trace, 16) for trace in choose(found, 10)]
    assert set(order[:3]) == {4, 3, 5}
    assert order[3:] == [2, 1]
    assert len(choose(found, 2)) == 2


def test_a_dot_that_leads_nowhere_is_left_out() -> None:
    """An exemplar is kept only with its trace, whose id Tempo may give without leading zeros."""
    one = series("http_bucket")
    shown = [exemplar(1, 0.5, 1), exemplar(3, 0.5, 2)]
    kept, traces, dropped = fit([one], {key(one.labels): shown}, {f"{1:032x}": b"spans"}, 1e6)
    assert kept[0].exemplars == shown[:1]
    assert list(traces) == [f"{1:032x}"]
    assert dropped == []


def test_traces_go_first_then_metrics_nobody_uses() -> None:
    """To fit the bound, traces go first, then metrics that no dashboard or rule uses; beyond that it is an error."""
    used = series("probe_latency_seconds_count", 200)
    unused = series("go_nobody_looks_at_this", 200)
    noise = random.Random(1)
    traces = {f"{i:032x}": noise.randbytes(500) for i in range(40)}
    both, one = len(pack_metrics([used, unused])), len(pack_metrics([used]))

    kept, some, dropped = fit([used, unused], {}, traces, both + 5000)
    assert kept == [used, unused]
    assert 0 < len(some) < len(traces)
    assert list(some) == list(traces)[: len(some)], "the first chosen stay"
    assert dropped == [f"traces: {40 - len(some)} of 40"]

    kept, _, dropped = fit([used, unused], {}, traces, one + 300)
    assert kept == [used]
    assert dropped[1:] == ["metrics that no dashboard and no rule uses: 1"]

    with pytest.raises(UsageError, match="raise --max-mb"):
        fit([used, unused], {}, traces, one / 2)


def test_names_in_use_are_those_of_dashboards_and_rules() -> None:
    """What panels, recording rules and alerts ask for is known as used."""
    names = names_in_use()
    assert {"probe_latency_seconds_bucket", "server:probe_latency:p99_10s", "ALERTS", "up"} <= names
    assert "go_memstats_alloc_bytes" not in names


def test_gaps_and_ends_are_marked_again() -> None:
    """After the last sample before a gap, and after an early end, a series gets its stale mark again."""
    one = Series({"__name__": "up"}, [T, T + 2000, T + 4000, T + 12_000, T + 14_000], [1.0] * 5)
    moved = shifted(one, 1000, T + 60_000, 2000)
    assert moved.times == [T + s for s in (1000, 3000, 5000, 7000, 13_000, 15_000, 17_000)]
    assert [math.isnan(value) for value in moved.values] == [False] * 3 + [True] + [False] * 2 + [True]
    whole = shifted(one, 1000, T + 15_000, 2000)
    assert [math.isnan(value) for value in whole.values] == [False] * 3 + [True] + [False] * 2


def test_a_time_of_day_moves_along() -> None:
    """A value that is a time of day stays as far from the samples' times as it was; other values stay."""
    start = Series({"__name__": "process_start_time_seconds"}, [T], [T / 1000 - 60])
    assert shifted(start, 5000, T + 100, 2000).values[0] == T / 1000 - 55
    count = Series({"__name__": "some_total"}, [T], [T / 1000])
    assert shifted(count, 5000, T + 100, 2000).values[0] == T / 1000


def test_usual_step() -> None:
    """The usual step is the median over series of each series' median step."""
    assert usual_step_ms([series("a"), series("b"), series("c", step_ms=15_000), series("d", 1)]) == 2000


def test_stale_is_the_mark_and_snappy_is_plain() -> None:
    """`STALE` is the NaN that Prometheus knows; a Snappy block is its length and literals of at most 64 kB."""
    import struct

    assert struct.pack("<d", STALE) == struct.pack("<Q", 0x7FF0000000000002)
    content = random.Random(2).randbytes(LITERAL + 10)
    packed = snappy(content)
    assert packed[:3] == bytes([0x8A, 0x80, 0x04])  # 65546 as a varint
    assert packed[3:6] == b"\xf4\xff\xff"
    assert packed[6 : 6 + LITERAL] == content[:LITERAL]
    assert packed[6 + LITERAL :] == b"\xf4\x09\x00" + content[LITERAL:]


class OnePrometheus:
    """A Prometheus with one series and an exemplar for each of five traces."""

    url = "http://prometheus"

    def version(self) -> str:
        """Its version."""
        return "3"

    def names(self, _start: float, _end: float) -> list[str]:
        """Its one metric."""
        return ["http_bucket"]

    def series(self, name: str, _start: float, _end: float) -> list[Series]:
        """Its one series."""
        return [series(name, 300)]

    def exemplars(self, _start: float, _end: float) -> dict[tuple[tuple[str, str], ...], list[Exemplar]]:
        """An exemplar every twenty seconds."""
        return {key(series("http_bucket").labels): [exemplar(20 * i, 0.1, i) for i in range(1, 6)]}


class WeakTempo:
    """A Tempo that stops answering at the third trace."""

    def __init__(self) -> None:
        self.given = 0

    def version(self) -> str:
        """Its version."""
        return "3"

    def slowest(self, _start: float, _end: float, _number: int) -> list[str]:
        """Return no traces beside those that exemplars name."""
        return []

    def trace(self, trace_id: str) -> bytes | None:
        """Return the first two traces; raise `NoAnswer` for any further one."""
        self.given += 1
        if self.given > 2:
            raise NoAnswer("Tempo does not answer")
        return bytes.fromhex(trace_id)


def test_what_tempo_gave_is_kept(tmp_path: Path) -> None:
    """If Tempo stops answering, the recording keeps the traces so far and their exemplars, and says what is missing."""
    done = record(
        tmp_path / "case",
        OnePrometheus(),  # type: ignore[arg-type]
        WeakTempo(),  # type: ignore[arg-type]
        minutes=10,
        max_mb=5,
        say=lambda _: None,
        end=T / 1000 + 600,
    )
    assert done.meta.counts["traces"] == done.meta.counts["exemplars"] == 2
    assert done.meta.dropped == ["traces, because Tempo stopped answering: 3 of 5"]
