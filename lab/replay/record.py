"""`lab replay --record`: saves the last minutes of the running scene, from Prometheus and Tempo, to a folder."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lab import ROOT
from lab.errors import Interrupted, UsageError
from lab.replay import NoAnswer
from lab.replay.prometheus import Prometheus, key, usual_step_ms
from lab.replay.recording import Exemplar, Meta, Series, discard, pack_metrics, pack_traces, write
from lab.replay.tempo import Tempo, padded

MB = 1_000_000
SLOT_MS = 10_000
"""Traces are chosen in turns: one from a metric's exemplars in each slot of this length, then a second, and so on."""
MOST_TRACES = 400
SLOWEST = 40
META_BYTES = 4_000
TRACE_LABELS = ("trace_id", "traceID")
"""Labels of an exemplar that may have its trace id: the application's, and Tempo's."""
WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Done:
    """A recording that was written: its size in bytes, and its `Meta`."""

    size: int
    meta: Meta


def record(
    folder: Path,
    prometheus: Prometheus,
    tempo: Tempo,
    minutes: float,
    max_mb: float,
    say: Say,
    end: float | None = None,
) -> Done:
    """Record the minutes before `end` (now, if left out) into an empty folder.

    Raises `UsageError` when the folder is not empty or `max_mb` is too small, `StackError` when Prometheus or Tempo
    does not answer or there are no samples, `Interrupted` after Ctrl-C. The folder is then unchanged: part of a
    recording is of no use, and the same command can be tried again.
    """
    made = _make(folder)
    try:
        return _record(
            folder, prometheus, tempo, minutes, max_mb, say, end if end is not None else time.time()
        )
    except BaseException as error:
        discard(folder)
        if made and not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted("interrupted; nothing was recorded, and nothing is left behind.") from None
        raise


def _record(
    folder: Path, prometheus: Prometheus, tempo: Tempo, minutes: float, max_mb: float, say: Say, end: float
) -> Done:
    start = end - minutes * 60
    versions = {"prometheus": prometheus.version(), "tempo": tempo.version()}
    series: list[Series] = []
    names = prometheus.names(start, end)
    for number, name in enumerate(names, start=1):
        say(f"samples: {number} of {len(names)} metrics")
        series += prometheus.series(name, start, end)
    if not series:
        raise NoAnswer(f"Prometheus at {prometheus.url} has no sample of the last {minutes:g} minutes.")
    first = min(one.times[0] for one in series) / 1000
    say("exemplars")
    exemplars = prometheus.exemplars(start, end)
    wanted = choose(exemplars, MOST_TRACES)
    wanted = list(dict.fromkeys([*wanted, *tempo.slowest(start, end, SLOWEST)]))
    traces: dict[str, bytes] = {}
    silent = []
    for number, trace_id in enumerate(wanted, start=1):
        say(f"traces: {number} of {len(wanted)}")
        try:
            found = tempo.trace(trace_id)
        except NoAnswer:  # long traces cost Tempo much memory; the traces so far are kept
            silent = [f"traces, because Tempo stopped answering: {len(wanted) - number + 1} of {len(wanted)}"]
            break
        if found:
            traces[trace_id] = found
    say("writing")
    series, fitting, dropped = fit(series, exemplars, traces, max_mb * MB - META_BYTES)
    metrics, packed = pack_metrics(series), pack_traces(fitting.values())
    meta = Meta(
        start=max(start, first),
        end=end,
        step_s=usual_step_ms(series) / 1000,
        versions=versions,
        servers=sorted(
            {server for one in series if one.name == "up" and (server := one.labels.get("server"))}
        ),
        counts={
            "series": len(series),
            "samples": sum(len(one.times) for one in series),
            "exemplars": sum(len(one.exemplars) for one in series),
            "traces": len(fitting),
        },
        dropped=[*silent, *dropped],
    )
    write(folder, meta, metrics, packed)
    return Done(sum(file.stat().st_size for file in folder.iterdir()), meta)


def _make(folder: Path) -> bool:
    """Make the folder; return whether it is new. Raises `UsageError` when it is not empty or cannot be written."""
    try:
        there = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty. Choose a new folder: a recording never overwrites anything."
            )
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}. Choose another folder.") from error
    return not there


def choose(exemplars: dict[tuple[tuple[str, str], ...], list[Exemplar]], most: int) -> list[str]:
    """Choose at most `most` trace ids from the exemplars.

    First comes the slowest of each metric and server in each `SLOT_MS`, then the second slowest of each, and so on.
    """
    groups: dict[tuple[str, str, int], dict[str, float]] = {}
    for labels, found in exemplars.items():
        named = dict(labels)
        for exemplar in found:
            if trace := trace_of(exemplar):
                place = named.get("__name__", ""), named.get("server", ""), exemplar.t_ms // SLOT_MS
                group = groups.setdefault(place, {})
                group[trace] = max(exemplar.value, group.get(trace, 0.0))
    ranked = [sorted(group, key=lambda trace: -group[trace]) for group in groups.values()]
    deepest = max(map(len, ranked), default=0)
    by_turns = (traces[rank] for rank in range(deepest) for traces in ranked if rank < len(traces))
    return list(dict.fromkeys(by_turns))[:most]


def trace_of(exemplar: Exemplar) -> str:
    """Return the id of an exemplar's trace; empty if it has none."""
    return next((padded(exemplar.labels[name]) for name in TRACE_LABELS if name in exemplar.labels), "")


def fit(
    series: list[Series],
    exemplars: dict[tuple[tuple[str, str], ...], list[Exemplar]],
    traces: dict[str, bytes],
    most: float,
) -> tuple[list[Series], dict[str, bytes], list[str]]:
    """Cut series and traces down to `most` bytes. Returns both, and sentences on the parts left out.

    Traces are left out first, beginning with the last chosen; then metrics that no dashboard and no rule uses. An
    exemplar is left out with its trace, because its link would lead nowhere. Raises `UsageError` if that is not enough.
    """
    dropped = []
    size = len(pack_metrics(series))
    if size > most:
        used = names_in_use()
        used_series = [one for one in series if one.name in used]
        gone = len({one.name for one in series} - {one.name for one in used_series})
        dropped.append(f"metrics that no dashboard and no rule uses: {gone}")
        series, size = used_series, len(pack_metrics(used_series))
    if size > most or not series:
        raise UsageError(
            f"the samples alone need {size / MB:.1f} MB: raise --max-mb, or record fewer --minutes."
        )
    number = _most_that_fit(series, exemplars, traces, most)
    kept_traces = dict(list(traces.items())[:number])
    if number < len(traces):
        dropped.insert(0, f"traces: {len(traces) - number} of {len(traces)}")
    return _with_exemplars(series, exemplars, kept_traces), kept_traces, dropped


def _most_that_fit(
    series: list[Series],
    exemplars: dict[tuple[tuple[str, str], ...], list[Exemplar]],
    traces: dict[str, bytes],
    most: float,
) -> int:
    """Return about how many traces fit, by bisection: a trace's share of the compressed size is not known alone."""
    ids = list(traces)

    def fits(number: int) -> bool:
        tried = {trace: traces[trace] for trace in ids[:number]}
        metrics = pack_metrics(_with_exemplars(series, exemplars, tried))
        return len(metrics) + len(pack_traces(tried.values())) <= most

    if fits(len(ids)):
        return len(ids)
    low, high = 0, len(ids)
    while high - low > max(1, len(ids) // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _with_exemplars(
    series: list[Series], exemplars: dict[tuple[tuple[str, str], ...], list[Exemplar]], traces: Iterable[str]
) -> list[Series]:
    known = set(traces)
    return [
        Series(
            one.labels,
            one.times,
            one.values,
            [each for each in exemplars.get(key(one.labels), ()) if trace_of(each) in known],
        )
        for one in series
    ]


def names_in_use(root: Path = ROOT) -> set[str]:
    """Return every word in dashboards and rules: the metrics that they use are among them."""
    files = [
        *(root / "grafana" / "dashboards").glob("*.json"),
        *(root / "prometheus" / "rules").glob("*.yml"),
    ]
    return {word for path in files for word in WORD.findall(path.read_text(encoding="utf-8"))}
