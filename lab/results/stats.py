"""The statistics of the claims: few plateaus, a noisy machine, latencies with heavy tails.

Why these. Spearman's rank correlation asks only for order, so one outlying plateau cannot make or hide it.
Theil and Sen's slope is the median of all pairwise slopes: it bears 29 % wild points. Intervals come from a
bootstrap that draws whole probe intervals (quarters of a second), not single requests, because latencies
within a moment depend on each other (a block bootstrap); drawing requests would make intervals far too
narrow. Flatness is shown by an equivalence bound on the interval's upper end: "no significant rise" would also
be true of a run too noisy to see one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Plateau = Sequence[NDArray[np.float64]]
"""Latencies of one plateau: one array for each interval."""

RESAMPLES = 400


def theil_sen(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept after Theil (1950) and Sen (1968). At least two of the `x` must differ."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    across, up = np.subtract.outer(xs, xs), np.subtract.outer(ys, ys)
    slope = np.median(up[across > 0] / across[across > 0])
    return float(slope), float(np.median(ys) - slope * np.median(xs))


def p99_ms(intervals: Plateau) -> float:
    """p99 in ms over intervals of latencies in µs, of the kind that `Run.latencies` was asked for."""
    return float(np.percentile(np.concatenate(list(intervals)), 99)) / 1000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap(
    plateaus: Sequence[Plateau],
    statistic: Callable[[list[float]], float],
    seed: int,
    resamples: int = RESAMPLES,
) -> Estimate:
    """A statistic of the plateaus' p99s (ms) with its percentile interval; see the module for the blocks."""
    rng = np.random.default_rng(seed)
    sorted_plateaus = [_Sorted(intervals) for intervals in plateaus]
    drawn = [statistic([plateau.draw(rng) for plateau in sorted_plateaus]) for _ in range(resamples)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(statistic([p99_ms(p) for p in plateaus]), float(low), float(high))


class _Sorted:
    """A plateau's latencies in ascending order, each with the interval it came in: sorted once for all resamples."""

    def __init__(self, intervals: Plateau) -> None:
        self._count = len(intervals)
        values = np.concatenate(list(intervals))
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._interval = np.repeat(np.arange(self._count), [len(each) for each in intervals])[order]

    def draw(self, rng: np.random.Generator) -> float:
        """p99 in ms of as many intervals as there are, drawn with replacement; not a number where all are empty."""
        times = np.bincount(rng.integers(0, self._count, self._count), minlength=self._count)
        ends = np.cumsum(times[self._interval])  # how many values of the resample come before the next one
        if not len(ends) or not ends[-1]:
            return float("nan")
        position = 0.99 * (ends[-1] - 1)
        below = int(position)
        pair = np.searchsorted(ends, [below, min(below + 1, ends[-1] - 1)], side="right")
        low, high = self._values[pair]
        return float(low + (high - low) * (position - below)) / 1000


def rise_over(keys: Sequence[float]) -> Callable[[list[float]], float]:
    """A statistic: the rise of p99 (ms) over the range of `keys`, by the Theil-Sen slope."""
    span = max(keys) - min(keys)
    return lambda p99s: theil_sen(keys, p99s)[0] * span


def crossing(
    x: Sequence[float], y: Sequence[float], level: float, window: tuple[float, float]
) -> float | None:
    """Where a least-squares line through the points with y inside `window` reaches `level`.

    None with fewer than three such points, or a line that does not rise.
    """
    points = [(a, b) for a, b in zip(x, y, strict=True) if window[0] <= b <= window[1]]
    if len(points) < 3:
        return None
    slope, intercept = np.polyfit([a for a, _ in points], [b for _, b in points], 1)
    return float((level - intercept) / slope) if slope > 0 else None
