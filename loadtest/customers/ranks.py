"""Spearman's rank correlation of two columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import atanh, sqrt, tanh
from statistics import correlation

FEWEST = 5
Z = 1.959964  # of the normal distribution, for 95 %


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float] | None:
    """Spearman's rank correlation, and its 95 % interval. None for fewer than `FEWEST` pairs, or a constant column.

    The interval is Fisher's z with the standard error for ranks of Bonett and Wright, "Sample size requirements for
    estimating Pearson, Kendall and Spearman correlations", Psychometrika 65 (2000): sqrt((1 + r**2 / 2) / (n - 3)).
    """
    if len(x) < FEWEST or len(set(x)) == 1 or len(set(y)) == 1:
        return None
    r = correlation(_ranks(x), _ranks(y))
    if abs(r) > 1 - 1e-9:  # z is infinite
        return round(r), round(r), round(r)
    half = Z * sqrt((1 + r * r / 2) / (len(x) - 3))
    return r, tanh(atanh(r) - half), tanh(atanh(r) + half)


def _ranks(values: Sequence[float]) -> list[float]:
    """The place of each value in ascending order; equal values share the mean of their places."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
