"""What the recorder computes from a probe's lines and from the server's counters."""

from __future__ import annotations

import contextlib
import csv
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.results.folder import Run, RunWriter
from lab.runner.recorder import Recorder
from lab.server.http import Metrics
from lab.server.server_stats import Snapshot
from loadtest.probe.record import Interval
from tests.lab.results.test_operational import STEADY, facts

INTERVAL_S, PER_INTERVAL, INTERVALS = 0.25, 50, 10


class Printed:
    """A probe that printed one line, by due time, for each list of lags (ms)."""

    def __init__(self, lateness: list[list[float]]) -> None:
        self._lateness = lateness

    def lines(self) -> Iterator[str]:
        """The lines; the first interval begins at 0."""
        for number, lags in enumerate(self._lateness, 1):
            interval = Interval(0)
            for lag in lags:
                interval.request_was_due(int(lag * 1e6))
            interval.end(0, 0, None, last_error=None)
            line = json.loads(interval.line("main"))
            yield json.dumps(line | {"by": "due", "t": number * INTERVAL_S, "interval_s": INTERVAL_S})


def lateness(tmp_path: Path, printed: list[list[float]]) -> tuple[float, float]:
    """Return the lag that a recorder finds: its p99 and the sum of stalls, in milliseconds."""
    stack = cast(Any, SimpleNamespace(meter=lambda: None))
    recorder = Recorder(stack, RunWriter(tmp_path), lambda row: None)
    recorder.follow("main", cast(Any, Printed(printed)))
    until, found = time.monotonic() + 10, {"sent": 0.0}
    while found["sent"] < sum(map(len, printed)) and time.monotonic() < until:
        found = recorder.probed("main", 0, len(printed) * INTERVAL_S)
    return found["lag_p99_us"] / 1000, found["stalled_s"] * 1000


def plateau() -> list[list[float]]:
    """Return the lags of a plateau whose probe is on time."""
    return [[0.1] * PER_INTERVAL for _ in range(INTERVALS)]


def test_one_late_wake_up_is_a_stall_and_not_the_probes_lateness(tmp_path: Path) -> None:
    """One standstill makes few requests late: it does not show in the lag's p99, so it is counted as a stall."""
    lags = plateau()
    lags[3][:4] = [51.0, 46.0, 41.0, 36.0]
    p99, stalled = lateness(tmp_path, lags)
    assert p99 < 1
    assert 50 < stalled < 52


def test_a_probe_that_is_late_every_second_is_late(tmp_path: Path) -> None:
    """If one request in fifty is late, the lag's p99 shows it; a delay as short as a scheduler's is no stall."""
    lags = plateau()
    for interval in lags:
        interval[0] = 15.0
    p99, stalled = lateness(tmp_path, lags)
    assert 14 < p99 < 16
    assert stalled == 0


def ended() -> dict[str, Any]:
    """The line of an interval in which nothing was sent."""
    interval = Interval(0)
    interval.end(0, 0, None, last_error=None)
    return dict(json.loads(interval.line("main")))


class Complaining:
    """A probe that lost its connection in the second of three intervals, but lost no request."""

    def lines(self) -> Iterator[str]:
        """The lines; the first interval begins at 0."""
        for number, error in enumerate([None, "closed by the server", None], 1):
            line = ended()
            yield json.dumps(
                line | {"t": number * INTERVAL_S, "interval_s": INTERVAL_S, "last_error": error, "errors": 0}
            )


def test_a_probes_complaint_is_trouble_where_it_is_measured(tmp_path: Path) -> None:
    """A probe's error is trouble only in intervals since the given moment: a restart may have caused earlier ones."""
    stack = cast(Any, SimpleNamespace(meter=lambda: None))
    recorder = Recorder(stack, RunWriter(tmp_path), lambda row: None)
    assert recorder.first_error("main", 0.0) is None
    recorder.follow("main", cast(Any, Complaining()))
    until = time.monotonic() + 10
    while recorder.first_error("main", 0.0) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert recorder.first_error("main", 0.0) == "closed by the server"
    assert recorder.first_error("main", INTERVAL_S) == "closed by the server"
    assert recorder.first_error("main", 2 * INTERVAL_S) is None
    assert recorder.first_error("other", 0.0) is None


class AtTheEdge:
    """A probe with one interval whose middle is 0.3 ms after a whole quarter of a second."""

    END, LENGTH = 1_800_000_000.3754, 0.2502

    def lines(self) -> Iterator[str]:
        """Yield the line."""
        line = ended()
        line |= {"t": self.END, "interval_s": self.LENGTH, "sent": 50, "received": 50}
        yield json.dumps(line | {"by": "due"})


@pytest.mark.parametrize("tenths_of_ms", range(-15, 16))
def test_an_interval_at_the_edge_of_a_phase_is_counted_as_the_log_has_it(
    tmp_path: Path, tenths_of_ms: int
) -> None:
    """The phase's counts and its latencies are of the same intervals, wherever the phase ends."""
    end = 1_800_000_000.25 + tenths_of_ms / 10_000
    phase = replace(STEADY, t0=end - 2.5, t1=end)
    recorder = Recorder(cast(Any, SimpleNamespace(meter=lambda: None)), RunWriter(tmp_path), lambda row: None)
    recorder.follow("main", cast(Any, AtTheEdge()))
    until = time.monotonic() + 10
    while not recorder.probed("main", 0, 2e9)["sent"] and time.monotonic() < until:
        time.sleep(0.001)
    with contextlib.closing(recorder._writer) as writer:
        writer.facts(facts(phases=[phase]))
    counted = recorder.probed("main", phase.t0, phase.t1)["received"] > 0
    assert counted == bool(Run(tmp_path).tiles(phase))


def test_every_command_that_is_called_is_sampled(tmp_path: Path) -> None:
    """A command that no list names has columns from its first second on; the lab's own INFO has none."""
    calls = iter(
        (
            {},
            {"HGETALL": (4.0, 800.0), "INFO": (9.0, 90.0)},
            {"HGETALL": (6.0, 1200.0), "INFO": (18.0, 180.0)},
        )
    )

    def snapshot() -> Snapshot:
        commands = next(calls)
        return Snapshot(1e9 + len(rows), 10, commands, 0.0, 1.0, 3, "run")

    rows: list[dict[str, Any]] = []
    server = SimpleNamespace(snapshot=snapshot, refusal=lambda: None, slowlog=list)
    stack = SimpleNamespace(
        meter=lambda: SimpleNamespace(sample=lambda: ({}, {"busy": 0.0, "steal": 0.0, "others": 0.0})),
        server=server, observe=lambda: Metrics({}, 0.0, 0.0, 0.0),
    )  # fmt: skip
    writer = RunWriter(tmp_path)
    recorder = Recorder(cast(Any, stack), writer, rows.append)
    before = None
    for _ in range(3):
        before = recorder._sample(before)
    writer.close()
    assert [row.get("hgetall_per_s") for row in rows] == [None, 4.0, 2.0]
    assert [row.get("hgetall_exec_us") for row in rows] == [None, 200.0, 200.0]
    assert rows[1]["get_per_s"] == 0.0 and not [name for name in rows[-1] if name.startswith("info_")]
    with (tmp_path / "samples.csv").open() as file:
        assert [row["hgetall_per_s"] for row in csv.DictReader(file)] == ["", "4", "2"]
