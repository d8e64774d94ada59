"""A recording's folder: the data of an incident in Prometheus and Tempo, small enough to be passed on.

meta.json    the period, the versions, the counts, and the parts left out
metrics.gz   a JSON line for each series: its labels, times, values and exemplars
traces.gz    traces one after the other: four bytes of length (big-endian), then an OTLP message `TracesData`

Times (ms) are written as the first time and then differences. So are the values of a series if all of them are whole
numbers: most counters then become rows of equal small numbers, which gzip shrinks to next to nothing. Other values keep
thirteen significant digits, enough for a point in time to the millisecond.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.errors import StackError, UsageError
from lab.results.jsontext import parse

SCHEMA = 1
META, METRICS, TRACES = "meta.json", "metrics.gz", "traces.gz"
WHOLE = 2.0**53
"""Beyond this a double does not hold every whole number."""
LENGTH = struct.Struct(">I")
DAMAGED = (
    OSError,
    EOFError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    zlib.error,
    struct.error,
)
"""Errors that reading a damaged file may raise."""
MOST_BYTES = 1 << 27
"""Neither file may unpack to more: some kilobytes can hold gigabytes, which take about 18 times as much memory as
lists of numbers. (The cold case unpacks to 27 MB.)"""


@dataclass(frozen=True)
class Exemplar:
    """A measured value with the labels that lead to its trace."""

    t_ms: int
    value: float
    labels: dict[str, str]


@dataclass
class Series:
    """A series of Prometheus: labels (with `__name__`), times in ms since 1970, values."""

    labels: dict[str, str]
    times: list[int]
    values: list[float]
    exemplars: list[Exemplar] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.labels.get("__name__", "")


@dataclass
class Meta:
    """A recording's metadata. `start`, `end`: unix seconds; `step_s`: the usual distance of samples."""

    start: float
    end: float
    step_s: float
    versions: dict[str, str]
    servers: list[str]
    counts: dict[str, int]
    dropped: list[str] = field(default_factory=list)
    schema: int = SCHEMA


@dataclass
class Recording:
    """The content of a recording's folder; a trace is the bytes of an OTLP message."""

    meta: Meta
    series: list[Series]
    traces: list[bytes]


def pack_metrics(series: Iterable[Series]) -> bytes:
    """Return the content of metrics.gz."""
    lines = (json.dumps(_line(one), separators=(",", ":")) for one in series)
    return gzip.compress("\n".join(lines).encode(), 9, mtime=0)


def pack_traces(traces: Iterable[bytes]) -> bytes:
    """Return the content of traces.gz."""
    return gzip.compress(b"".join(LENGTH.pack(len(trace)) + trace for trace in traces), 9, mtime=0)


def write(folder: Path, meta: Meta, metrics: bytes, traces: bytes) -> None:
    """Write the three files. A full disk or a lost permission raises `StackError`."""
    try:
        (folder / METRICS).write_bytes(metrics)
        (folder / TRACES).write_bytes(traces)
        (folder / META).write_text(json.dumps(asdict(meta), indent=1) + "\n")
    except OSError as error:
        raise StackError(f"cannot write to {folder}: {error.strerror}. Free some space.") from error


def discard(folder: Path) -> None:
    """Remove the files of `write`, also unfinished ones."""
    for name in (META, METRICS, TRACES):
        (folder / name).unlink(missing_ok=True)


def read(folder: Path) -> Recording:
    """Read a recording. Raises `UsageError` when the folder is not a recording, or is damaged."""
    try:
        raw = parse((folder / META).read_text())
        packed = [(folder / name).read_bytes() for name in (METRICS, TRACES)]
    except (FileNotFoundError, NotADirectoryError) as error:
        missing = Path(str(error.filename)).name
        raise UsageError(
            f"{folder} is not a recording of `bin/lab replay --record`: it has no {missing}."
        ) from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror}.") from error
    except ValueError:
        raise _damaged(folder, META) from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise UsageError(f"{folder}/{META} was written by another version of the lab: record it again.")
    name = META
    try:
        meta = Meta(**raw)
        length_s = meta.end - meta.start
        if not all(math.isfinite(each) for each in (meta.start, meta.end, meta.step_s)):
            raise ValueError("a time without an end")
        name = METRICS
        series = [_series(parse(line)) for line in _unpacked(packed[0]).decode().splitlines()]
        name = TRACES
        traces = list(_messages(_unpacked(packed[1])))
    except DAMAGED:
        raise _damaged(folder, name) from None
    if not length_s > 0 or not series:
        raise UsageError(f"{folder} holds no samples: record it again.")
    return Recording(meta, series, traces)


def _unpacked(packed: bytes) -> bytes:
    """Return the content of a gzip file. Raises `ValueError` beyond `MOST_BYTES`, and the errors of `gzip`."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError("it unpacks to too much")
    return content


def _damaged(folder: Path, name: str) -> UsageError:
    return UsageError(f"{folder}/{name} is damaged: copy the recording again, or make a new one.")


def _line(one: Series) -> dict[str, Any]:
    whole = all(math.isfinite(v) and v == int(v) and abs(v) < WHOLE for v in one.values)
    line: dict[str, Any] = {
        "labels": one.labels,
        "t": _differences(one.times),
        "v": _differences([int(v) for v in one.values])
        if whole
        else [float(f"{v:.13g}") for v in one.values],
    }
    if not whole:
        line["plain"] = True
    if one.exemplars:
        line["e"] = [[e.t_ms, e.value, e.labels] for e in one.exemplars]
    return line


def _series(line: dict[str, Any]) -> Series:
    values = line["v"] if line.get("plain") else _sums(line["v"])
    series = Series(
        {str(name): str(value) for name, value in line["labels"].items()},
        _sums(line["t"]),
        [float(value) for value in values],
        [Exemplar(int(t), float(value), dict(labels)) for t, value, labels in line.get("e", ())],
    )
    if not series.times or len(series.times) != len(series.values):
        raise ValueError("times and values are not of one length, or there are none")
    return series


def _differences(numbers: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *numbers], numbers, strict=False)]


def _sums(differences: list[int]) -> list[int]:
    total, found = 0, []
    for difference in differences:
        total += int(difference)
        found.append(total)
    return found


def _messages(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (length,) = LENGTH.unpack_from(content, at)
        at += LENGTH.size
        if at + length > len(content):
            raise ValueError("a trace is cut off")
        yield content[at : at + length]
        at += length
