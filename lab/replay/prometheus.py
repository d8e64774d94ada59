"""Reads raw samples and exemplars from a Prometheus, and writes them into another one."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from lab.errors import StackError
from lab.replay import NoAnswer
from lab.replay.client import Client, refusal
from lab.replay.recording import Exemplar, Series
from lab.replay.remotewrite import HEADERS, STALE, Batch, body

SLICE_MS = 30_000
"""Samples are written in slices of this length, all series of one slice before the next slice: Prometheus accepts
samples newer than its own, and none that are much older."""
SERIES_AT_ONCE = 2_000
MISSED = 1.5
"""A gap of more steps than this means that a scrape was missed or the series was gone."""
TIMES_OF_DAY = re.compile(r"(_created|_timestamp_seconds|start_time_seconds)$")
"""Metrics whose values are points in time: the values move along with the samples' times."""
EPOCH_S = 1e9


class Prometheus(Client):
    """A Prometheus server's HTTP interface. Methods raise `StackError`, with one line, when it refuses or is silent."""

    name = "Prometheus"

    def version(self) -> str:
        """Return its version. Raises `StackError` if no server, or another service, answers."""
        return str(self._ask("/api/v1/status/buildinfo")["version"])

    def names(self, start: float, end: float) -> list[str]:
        """Return the names of metrics with samples between two times."""
        found = self._ask("/api/v1/label/__name__/values", start=start, end=end)
        return [str(name) for name in found]

    def series(self, name: str, start: float, end: float) -> list[Series]:
        """Return all series of a metric, with every sample after `start` and up to `end` as it was scraped."""
        quoted = name.replace("\\", "\\\\").replace('"', '\\"')
        query = f'{{__name__="{quoted}"}}[{max(1, round((end - start) * 1000))}ms]'
        found = self._ask("/api/v1/query", query=query, time=f"{end:.3f}")["result"]
        return [
            Series(
                row["metric"],
                [round(float(t) * 1000) for t, _ in row["values"]],
                [float(value) for _, value in row["values"]],
            )
            for row in found
            if row.get("values")
        ]

    def exemplars(self, start: float, end: float) -> dict[tuple[tuple[str, str], ...], list[Exemplar]]:
        """Return labels of a series → its exemplars in the order of time."""
        rows = self._ask(
            "/api/v1/query_exemplars", query='{__name__=~".+"}', start=f"{start:.3f}", end=f"{end:.3f}"
        )
        return {
            key(row["seriesLabels"]): sorted(
                (
                    Exemplar(round(float(e["timestamp"]) * 1000), float(e["value"]), e["labels"])
                    for e in row["exemplars"]
                ),
                key=lambda exemplar: exemplar.t_ms,
            )
            for row in rows
        }

    def _ask(self, path: str, **parameters: str | float) -> Any:
        answer = self.send("GET", path, params=parameters)
        try:
            content = answer.json()
        except ValueError:
            raise NoAnswer(f"the service at {self.url} is not Prometheus.") from None
        if not isinstance(content, dict) or content.get("status") != "success":
            why = content.get("error", "") if isinstance(content, dict) else ""
            raise StackError(f"Prometheus at {self.url} refuses {path}: {why or answer.status_code}.")
        return content["data"]

    def write(self, batches: list[Batch]) -> None:
        """Write samples by remote write."""
        answer = self.send("POST", "/api/v1/write", content=body(batches), headers=HEADERS)
        if not answer.is_success:
            raise StackError(f"Prometheus at {self.url} does not take the samples: {refusal(answer)}.")


def key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return labels as a key for a dictionary, sorted by name."""
    return tuple(sorted(labels.items()))


def usual_step_ms(series: list[Series]) -> int:
    """Return the usual distance of samples in ms: the median of all series' medians; 0 if no series has two samples."""
    steps = [_step_ms(one.times, 0) for one in series if len(one.times) > 1]
    return round(statistics.median(steps)) if steps else 0


def shifted(series: Series, by_ms: int, end_ms: int, usual_ms: int) -> Series:
    """Return the series moved in time by `by_ms`, with the marks of its ends restored.

    Prometheus marks the end of a series with a special sample, which no query returns. Without the mark the last value
    is shown for five more minutes. So every gap gets its mark again, one step after the last sample before it. A series
    that ends before the recording (`end_ms`, not yet moved) gets one, too. `usual_ms` is the step of a series that has
    only one sample.
    """
    step = _step_ms(series.times, usual_ms)
    moves = TIMES_OF_DAY.search(series.name)
    times: list[int] = []
    values: list[float] = []
    following = [*series.times[1:], end_ms]
    for at, value, after in zip(series.times, series.values, following, strict=True):
        times.append(at + by_ms)
        values.append(value + by_ms / 1000 if moves and value > EPOCH_S else value)
        last = after == end_ms and at == series.times[-1]
        if step and after - at > (MISSED + last) * step:
            times.append(at + step + by_ms)
            values.append(STALE)
    exemplars = [replace(exemplar, t_ms=exemplar.t_ms + by_ms) for exemplar in series.exemplars]
    return Series(series.labels, times, values, exemplars)


def _step_ms(times: list[int], otherwise: int) -> int:
    return round(statistics.median(b - a for a, b in pairwise(times))) if times[1:] else otherwise


def push(series: list[Series], prometheus: Prometheus, progress: Callable[[float], None]) -> int:
    """Write all series, oldest samples first. Returns the number of samples. `progress` gets the share done."""
    start = min(one.times[0] for one in series if one.times)
    end = max(one.times[-1] for one in series if one.times)
    pushed = 0
    places = [[0, 0] for _ in series]
    for until in range(start + SLICE_MS, end + SLICE_MS + 1, SLICE_MS):
        for batches in _slices(series, places, until):
            prometheus.write(batches)
            pushed += sum(len(samples) for _, samples, _ in batches)
        progress(min(1.0, (until - start) / max(1, end - start)))
    return pushed


def _slices(series: list[Series], places: list[list[int]], until: int) -> Iterator[list[Batch]]:
    """Yield the remaining samples before `until`, some series at a time; `places` has each series' position."""
    batches: list[Batch] = []
    for one, place in zip(series, places, strict=True):
        at, seen = place
        stop, shown = at, seen
        while stop < len(one.times) and one.times[stop] < until:
            stop += 1
        while shown < len(one.exemplars) and one.exemplars[shown].t_ms < until:
            shown += 1
        if stop > at:
            samples = list(zip(one.times[at:stop], one.values[at:stop], strict=True))
            batches.append((one.labels, samples, one.exemplars[seen:shown]))
            place[:] = stop, shown
        if len(batches) == SERIES_AT_ONCE:
            yield batches
            batches = []
    if batches:
        yield batches
