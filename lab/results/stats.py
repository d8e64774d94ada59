"""The statistics of the claims: few plateaus, a noisy machine, latencies with heavy tails.

Why these. Spearman's rank correlation asks only for order, so one outlying plateau cannot make or hide it.
Theil and Sen's slope is the median of all pairwise slopes: it tolerates 29 % outliers. Confidence intervals come
from a bootstrap that draws whole probe intervals (quarters of a second), not single requests, because latencies
within a moment depend on each other (a block bootstrap). Drawing requests would make them far too narrow.
Flatness is shown by an equivalence bound on the confidence interval's upper end: "no significant rise" would also
be true of a run too noisy to show one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Plateau = Sequence[NDArray[np.float64]]
"""Latencies of one plateau: one array for each interval."""

RESAMPLES = 400
ROOM = 500_000
"""Latencies processed in one step: a few megabytes."""


def theil_sen(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept after Theil (1950) and Sen (1968). At least two of the `x` must differ."""
    slope = float(theil_sen_slope(x, np.asarray(y, dtype=np.float64)))
    return slope, float(np.median(y) - slope * np.median(x))


def theil_sen_slope(x: Sequence[float], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The slope alone, for each column of `y`, which has one row for each of the `x`; NaN if all `x` are the same."""
    xs = np.asarray(x, dtype=np.float64)
    right, left = np.nonzero(np.subtract.outer(xs, xs) > 0)
    if not right.size:
        return np.full(y.shape[1:], np.nan)
    slopes = (y[right] - y[left]).T / (xs[right] - xs[left])
    return np.asarray(np.median(slopes, axis=-1))


def p99_ms(intervals: Plateau) -> float:
    """p99 in ms over all intervals of a plateau, whose latencies are in µs; for a phase of a run: `Run.p99_ms`."""
    return float(np.percentile(np.concatenate(list(intervals)), 99)) / 1000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap(
    plateaus: Sequence[Plateau],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seed: int,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A statistic of the plateaus' p99s (ms) with its percentile interval, by the module's block bootstrap.

    `statistic` gets many resamples at once: a row for each plateau, a column for each resample.
    """
    rng = np.random.default_rng(seed)
    counts = [len(intervals) for intervals in plateaus]
    chosen = [[rng.integers(0, count, count) for count in counts] for _ in range(resamples)]
    p99s = [
        _Sorted(intervals).p99s(np.array(of_one))
        for intervals, of_one in zip(plateaus, zip(*chosen, strict=True), strict=True)
    ]
    low, high = np.percentile(statistic(np.array(p99s)), [2.5, 97.5])
    value = statistic(np.array([p99_ms(p) for p in plateaus]))
    return Estimate(float(value), float(low), float(high))


class _Sorted:
    """A plateau's latencies in ascending order, each with the number of its interval: sorted once for all resamples."""

    def __init__(self, intervals: Plateau) -> None:
        self._count = len(intervals)
        values = np.concatenate(list(intervals))
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._interval = np.repeat(np.arange(self._count), [len(each) for each in intervals])[order]

    def p99s(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """p99 in ms of each resample. A row holds the numbers of its intervals; the result is NaN if all are empty."""
        at_once = max(1, ROOM // max(1, len(self._values)))
        parts = [chosen[start : start + at_once] for start in range(0, len(chosen), at_once)]
        return np.concatenate([self._p99s_of_block(part) for part in parts])

    def _p99s_of_block(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = np.arange(len(chosen))[:, np.newaxis]
        cells = (chosen + rows * self._count).ravel()
        times = np.bincount(cells, minlength=chosen.size).reshape(chosen.shape)
        ends = np.cumsum(
            times[:, self._interval], axis=1
        )  # how many values of the resample come before the next one
        total = ends[:, -1] if ends.size else np.zeros(len(chosen), dtype=np.int64)
        found = np.full(len(chosen), np.nan)
        filled = total > 0
        position = 0.99 * (total[filled] - 1)
        below = position.astype(np.int64)
        above = np.minimum(below + 1, total[filled] - 1)
        low, high = (self._values[np.sum(ends[filled] <= at[:, np.newaxis], axis=1)] for at in (below, above))
        found[filled] = low + (high - low) * (position - below)
        return found / 1000


def rise_over(keys: Sequence[float]) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """A statistic: the rise of p99 (ms) over the range of `keys`, by the Theil-Sen slope."""
    span = max(keys) - min(keys)
    return lambda p99s: theil_sen_slope(keys, p99s) * span


def saturation(
    x: Sequence[float], y: Sequence[float], base: float, window: tuple[float, float], least: int = 3
) -> float | None:
    """The x at which y = `base` + s · x reaches 1: the geometric mean of the estimates of the points inside `window`.

    A machine's speed changes by some factor from one moment to the next, so each point's estimate is off by a factor,
    and the geometric mean by a smaller one. (A line with a free intercept would rest on its outermost points.) None
    with fewer than `least` points whose y lies inside `window`.
    """
    estimates = [
        a * (1 - base) / (b - base)
        for a, b in zip(x, y, strict=True)
        if window[0] <= b <= window[1] and b > base
    ]
    return float(np.exp(np.mean(np.log(estimates)))) if len(estimates) >= least else None
