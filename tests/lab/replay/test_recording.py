"""A recording's folder: what is written is read back, and damage is named."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import UsageError
from lab.replay.recording import (
    METRICS,
    TRACES,
    Exemplar,
    Meta,
    Series,
    pack_metrics,
    pack_traces,
    read,
    write,
)

START = 1_795_000_000.0


def meta() -> Meta:
    """Return the facts of a recording of one minute."""
    return Meta(START, START + 60, 2.0, {"prometheus": "3.0"}, ["redis"], {"series": 1})


def written(folder: Path, series: list[Series], traces: list[bytes] | None = None) -> Path:
    """Write a recording; return its folder."""
    folder.mkdir(exist_ok=True)
    write(folder, meta(), pack_metrics(series), pack_traces(traces or []))
    return folder


def sample_series(values: list[float]) -> Series:
    """Return a series with a sample every two seconds."""
    times = [round((START + 2 * i) * 1000) for i in range(len(values))]
    return Series({"__name__": "some_total", "server": "redis"}, times, values)


whole = st.integers(-(2**52), 2**52).map(float)
measured = st.floats(-1e12, 1e12).map(lambda value: float(f"{value:.13g}"))
odd = st.sampled_from([math.inf, -math.inf, 0.0, 1e300])


@settings(max_examples=60)
@given(st.lists(st.one_of(whole, measured, odd), min_size=1, max_size=30))
def test_samples_come_back(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    """Times come back exactly, values to thirteen digits, or exactly where all of a series are whole numbers."""
    series = sample_series(values)
    [back] = read(written(tmp_path_factory.mktemp("recording"), [series])).series
    assert (back.labels, back.times) == (series.labels, series.times)
    exact = all(value == round(value) and abs(value) < 2**53 for value in values if math.isfinite(value))
    if exact and all(map(math.isfinite, values)):
        assert back.values == values
    assert all(a == b or math.isclose(a, b, rel_tol=1e-12) for a, b in zip(back.values, values, strict=True))


def test_everything_comes_back(tmp_path: Path) -> None:
    """Exemplars, traces, facts and a value that is NaN come back."""
    series = sample_series([1.0, math.nan, 3.5])
    series.exemplars.append(Exemplar(series.times[1], 0.25, {"trace_id": "ab" * 16}))
    back = read(written(tmp_path / "recording", [series], [b"one", b"", b"three" * 1000]))
    assert back.meta == meta()
    assert back.series[0].exemplars == series.exemplars
    assert back.series[0].values[::2] == [1.0, 3.5]
    assert math.isnan(back.series[0].values[1])
    assert back.traces == [b"one", b"", b"three" * 1000]


def test_a_resting_counter_costs_nothing(tmp_path: Path) -> None:
    """Differences are stored: a thousand samples of a counter with equal steps take less than 300 bytes."""
    assert len(pack_metrics([sample_series([float(i * 7) for i in range(1000)])])) < 300


def cut(path: Path) -> None:
    """Remove the second half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def change_meta(folder: Path, **changes: object) -> None:
    """Change what meta.json says."""
    file = folder / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def empty_series(file: Path) -> None:
    """Let the first series have no samples."""
    first, *rest = gzip.decompress(file.read_bytes()).decode().splitlines()
    lines = [json.dumps({**json.loads(first), "t": [], "v": []}), *rest]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda folder: (folder / "meta.json").unlink(),
            "is not a recording of `bin/lab replay --record`: it has no meta.json",
        ),
        (lambda folder: (folder / TRACES).unlink(), "it has no traces.gz"),
        (lambda folder: (folder / "meta.json").write_text("{"), "meta.json is damaged"),
        (lambda folder: (folder / "meta.json").write_text("[]"), "another version"),
        (lambda folder: (folder / "meta.json").write_text('{"schema": 1}'), "meta.json is damaged"),
        (lambda folder: change_meta(folder, step_s=None), "meta.json is damaged"),
        (lambda folder: change_meta(folder, end=float("inf")), "meta.json is damaged"),
        (lambda folder: empty_series(folder / METRICS), "metrics.gz is damaged"),
        (lambda folder: cut(folder / METRICS), "metrics.gz is damaged"),
        (lambda folder: (folder / METRICS).write_bytes(b"no gzip"), "metrics.gz is damaged"),
        (lambda folder: cut(folder / TRACES), "traces.gz is damaged"),
        (lambda folder: (folder / METRICS).write_bytes(pack_metrics([])), "metrics.gz is damaged|no samples"),
    ],
)
def test_damage_is_named(tmp_path: Path, spoil: object, said: str) -> None:
    """A folder that is no recording, or of which a part is missing or damaged, is a usage error that names it."""
    folder = written(tmp_path / "recording", [sample_series([1.0, 2.0, 4.0])], [b"trace" * 100])
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(UsageError, match=said):
        read(folder)


def test_another_version(tmp_path: Path) -> None:
    """A recording of another schema is refused rather than misread."""
    folder = written(tmp_path / "recording", [sample_series([1.0])])
    facts = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**facts, "schema": 99}))
    with pytest.raises(UsageError, match="another version"):
        read(folder)
