"""Parts of every synthetic run: its facts before anything is measured, and latencies as the probe writes them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from lab.results.folder import Latencies, RunFacts
from lab.scenarios.model import Scenario
from loadtest.histogram import Histogram

START = 1_795_000_000.0
PROBES_PER_S, INTERVAL_S = 200.0, 0.25


def facts_of(scenario: Scenario, keys: int, events_per_s: float) -> RunFacts:
    """run.json of a quick run on a quiet machine, with its plan and no phases yet."""
    return RunFacts(
        interrupted=False,
        scenario=scenario.id,
        title=scenario.title,
        story=scenario.story,
        source=scenario.source,
        refutes=scenario.refutes,
        server="valkey",
        server_version="9.1.2",
        stack="native",
        pace="quick",
        seed=1,
        keys=keys,
        started="2026-11-18T12:00:00+00:00",
        command=f"bin/lab run {scenario.id} --pace quick --seed 1",
        host={
            "system": "Linux 6.18",
            "machine": "x86_64",
            "processor": "synthetic",
            "cores": 2,
            "memory_gb": 25.3,
            "python": "3.11.7",
        },
        load={
            "reads_per_second": scenario.reads_per_second,
            "probe_per_second": PROBES_PER_S,
            "events_per_second": events_per_s,
        },
        scan_count=scenario.scan_count or 4_000_000,  # a call visits all keys, whatever their number
        slowlog_threshold_us=scenario.slowlog_threshold_us,
        plan=scenario.plan(scenario.paces["quick"], keys),
        calibration={"ping_floor_us": 28.7},
    )


def encode(values_us: ArrayLike) -> str:
    """Encode latencies (µs) as the probe writes them."""
    return _encode(np.maximum(1, np.rint(values_us)).astype(np.int64).tobytes())


@lru_cache(maxsize=10_000)  # most phases of most runs that tests build are the same
def _encode(values_us: bytes) -> str:
    histogram = Histogram()
    for value in np.frombuffer(values_us, dtype=np.int64).tolist():
        histogram.record(value)
    return histogram.encode()


def heavy_tail(rng: np.random.Generator, p99_ms: float, intervals: int, each: int) -> list[Latencies]:
    """Return latencies (µs) with that p99, `each` of them an interval: evenly spread quantiles in a random order.

    They are exponential above a floor of 40 µs: the median is a seventh of the p99, as when waiting dominates.
    """
    count = intervals * each
    quantiles = (rng.permutation(count) + rng.uniform(0.3, 0.7, count)) / count
    values = 40.0 + np.maximum(p99_ms * 1000 - 40.0, 0.0) * -np.log1p(-quantiles) / math.log(100)
    return np.array_split(values, intervals)
