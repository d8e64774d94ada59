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
from scipy import stats as scipy_stats

Plateau = Sequence[NDArray[np.float64]]
"""Latencies of one plateau: one array for each interval."""

RESAMPLES = 400


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 where either side is constant or there are fewer than 3 points."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return float(scipy_stats.spearmanr(x, y).statistic)


def theil_sen(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept after Theil (1950) and Sen (1968)."""
    slope, intercept, _, _ = scipy_stats.theilslopes(y, x)
    return float(slope), float(intercept)


def p99_ms(intervals: Plateau) -> float:
    """p99 in ms over all intervals (µs)."""
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
    drawn = []
    for _ in range(resamples):
        p99s = []
        for intervals in plateaus:
            picks = rng.integers(0, len(intervals), len(intervals))
            p99s.append(p99_ms([intervals[i] for i in picks]))
        drawn.append(statistic(p99s))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(statistic([p99_ms(p) for p in plateaus]), float(low), float(high))


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
