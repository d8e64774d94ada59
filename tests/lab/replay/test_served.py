"""The committed cold case, written into a real Prometheus: dashboards have their data, exemplars lead to traces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.replay import replay
from lab.replay.prometheus import Prometheus, key
from lab.replay.record import record, trace_of
from lab.replay.recording import Recording, Series, read
from lab.replay.replay import Served
from lab.replay.tempo import Receiver, Tempo
from tests.compose.test_stack_1_story import MAY_BE_EMPTY, SERVERS, expressions, filled_in
from tests.lab.replay.conftest import TempoStandin

pytestmark = pytest.mark.whole

STEP_S = 5
MOST_MB = 5.0


@pytest.fixture(scope="session")
def recording(cold_case: Path) -> Recording:
    """The recording that comes with the workshop."""
    return read(cold_case)


@pytest.fixture(scope="session")
def traces() -> Iterator[TempoStandin]:
    """The stand-in for the Tempo that the recording is written into."""
    standin = TempoStandin()
    yield standin
    standin.close()


@pytest.fixture(scope="session")
def served(recording: Recording, prometheus_url: str, traces: TempoStandin) -> Served:
    """The whole recording, served as if it had ended just now."""
    with (
        Prometheus(prometheus_url) as prometheus,
        Tempo(traces.url) as tempo,
        Receiver(traces.url) as receiver,
    ):
        return replay.fill(recording, prometheus, tempo, receiver, lambda _: None)


@pytest.fixture
def prometheus(prometheus_url: str, served: Served) -> Iterator[Prometheus]:
    """The Prometheus that serves the recording."""
    with Prometheus(prometheus_url) as client:
        yield client


def queried(url: str, path: str, **parameters: Any) -> Any:
    """Return the result of a Prometheus request."""
    answer = httpx.post(f"{url}/api/v1/{path}", data=parameters, timeout=30, trust_env=False).json()
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def test_the_recording_is_small(cold_case: Path, recording: Recording) -> None:
    """The recording is small enough to be committed, and as long as an incident needs."""
    assert sum(file.stat().st_size for file in cold_case.iterdir()) <= MOST_MB * 1e6
    assert recording.meta.end - recording.meta.start >= 420
    assert set(SERVERS) <= set(recording.meta.servers)


def test_it_ends_a_moment_ago(recording: Recording, served: Served, prometheus_url: str) -> None:
    """All of the recording arrives, moved so that it ends now and `last 15 minutes` shows it."""
    assert 0 < time.time() - served.end < 120
    [newest] = queried(prometheus_url, "query", query="max(timestamp(up))", time=served.end)
    assert served.end - float(newest["value"][1]) < 3 * recording.meta.step_s
    found = queried(
        prometheus_url, "query", query="prometheus_tsdb_head_samples_appended_total", time=served.end
    )
    assert found, "the recorded Prometheus' own series are there, too"
    assert served.samples >= recording.meta.counts["samples"]
    assert (served.traces, served.missing) == (len(recording.traces), [])


def test_every_panel_has_its_data(prometheus_url: str, served: Served) -> None:
    """Every query of every dashboard that has data in the scene has data for both servers."""
    empty = []
    for board, panel, expression in expressions():
        for server in [board] if board in SERVERS else SERVERS:
            query = filled_in(expression, server)
            rows = queried(
                prometheus_url, "query_range", query=query, start=served.start, end=served.end, step=STEP_S
            )
            shown = any(value != "NaN" for row in rows for _, value in row["values"])
            if not shown and not expression.startswith(MAY_BE_EMPTY):
                empty.append(f"{board}: {panel} ({server}): {query}")
    assert empty == []


def test_dots_lead_to_traces(prometheus: Prometheus, served: Served, traces: TempoStandin) -> None:
    """Each exemplar that Prometheus shows names a trace that was served, and traces moved along with the samples."""
    shown = [e for found in prometheus.exemplars(served.start, served.end).values() for e in found]
    assert len(shown) > 1000
    assert {trace_of(exemplar) for exemplar in shown} <= set(traces.traces)
    for trace in list(traces.traces.values())[:50]:
        began = min(
            span.start_time_unix_nano / 1e9
            for resource in trace.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )
        assert served.start - 120 < began < served.end


def test_what_happened_can_be_found(recording: Recording, prometheus_url: str, served: Served) -> None:
    """The case holds its clues: keys that climb, fall at a restart and climb again, and a p99 that follows."""
    for server in SERVERS:
        values = {
            metric: [
                float(value)
                for row in queried(
                    prometheus_url,
                    "query_range",
                    query=f'{metric}{{server="{server}"}}',
                    start=served.start,
                    end=served.end,
                    step=STEP_S,
                )
                for _, value in row["values"]
            ]
            for metric in ("server:store_keys:sum", "server:probe_latency:p99_10s")
        }
        keys, p99 = values["server:store_keys:sum"], values["server:probe_latency:p99_10s"]
        falls = [b for a, b in pairwise(keys) if b < a / 4]
        assert falls, f"{server} was never restarted"
        assert max(keys) > 50_000
        assert max(p99) > 10 * min(p99)


def test_recorded_again_it_is_the_same(
    recording: Recording, prometheus: Prometheus, served: Served, traces: TempoStandin, tmp_path: Path
) -> None:
    """A recording of the replay holds the same samples, exemplars and traces, moved in time."""
    minutes = (served.end - served.start) / 60 + 0.1
    tempo = Tempo(traces.url)
    record(tmp_path / "again", prometheus, tempo, minutes, 50, lambda _: None, end=served.end)
    again = read(tmp_path / "again")
    by_ms = round((served.end - recording.meta.end) * 1000)
    assert abs(again.meta.start - served.start) < 0.01
    assert _comparable(again, 0) == _comparable(recording, by_ms)
    shown = {e.labels[name] for one in again.series for e in one.exemplars for name in e.labels}
    assert len(again.traces) > 0.9 * len(recording.traces)
    assert len(shown) > 0.9 * len(
        {e.labels[name] for one in recording.series for e in one.exemplars for name in e.labels}
    )


def _comparable(
    recording: Recording, by_ms: int
) -> dict[tuple[tuple[str, str], ...], tuple[list[int], list[float]]]:
    """Return times and values by labels, without series whose values are times of day, because those move."""
    return {
        key(one.labels): ([t + by_ms for t in one.times], _without_nan(one))
        for one in recording.series
        if not one.name.endswith(("_created", "_timestamp_seconds", "start_time_seconds"))
    }


def _without_nan(one: Series) -> list[float]:
    return [value if value == value else -12345.0 for value in one.values]
