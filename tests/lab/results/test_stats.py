"""The statistics against plain definitions, and laws that must hold for any data."""

import math
from itertools import combinations
from statistics import median

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.results import stats
from lab.results.correlation import spearman
from lab.results.histograms import values_of
from lab.server.http import bucket_quantile
from tests.lab.synthetic import encode, heavy_tail

QUICK = settings(max_examples=60, deadline=None)
NUMBERS = st.integers(-1000, 1000).map(float)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=12)
LATENCIES = st.lists(st.integers(1, 60_000_000), min_size=1, max_size=40)


def ranks(values: list[float]) -> list[float]:
    """Ranks from 1, ties sharing their mean rank: by the definition."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]


@QUICK
@given(PAIRS)
def test_spearman_is_the_correlation_of_ranks(pairs: list[tuple[float, float]]) -> None:
    """Spearman's coefficient is Pearson's of the ranks, ties sharing their mean rank."""
    x, y = (list(side) for side in zip(*pairs, strict=True))
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    assert math.isclose(spearman(x, y), np.corrcoef(ranks(x), ranks(y))[0, 1], abs_tol=1e-9)


@QUICK
@given(PAIRS)
def test_spearman_sees_order_only(pairs: list[tuple[float, float]]) -> None:
    """A rising transformation changes nothing, however steep; the coefficient stays within -1 and 1."""
    x, y = (list(side) for side in zip(*pairs, strict=True))
    rho = spearman(x, y)
    assert -1 - 1e-9 <= rho <= 1 + 1e-9
    assert math.isclose(rho, spearman(x, [math.sinh(value / 100) for value in y]), abs_tol=1e-9)


@pytest.mark.parametrize(
    ("x", "y"), [([1, 2], [1, 2]), ([], []), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [5, 5, 5])]
)
def test_spearman_without_order_is_0(x: list[float], y: list[float]) -> None:
    """Fewer than three points, or a side that does not move, correlate with nothing."""
    assert spearman(x, y) == 0.0


@QUICK
@given(PAIRS)
def test_theil_sen_is_the_median_of_all_slopes(pairs: list[tuple[float, float]]) -> None:
    """Slope: the median over all pairs of points; intercept: median of y less slope times median of x."""
    x, y = (list(side) for side in zip(*pairs, strict=True))
    assume(len(set(x)) > 1)
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(pairs, 2) if x1 != x2]
    slope, intercept = stats.theil_sen(x, y)
    assert math.isclose(slope, median(slopes), abs_tol=1e-9)
    assert math.isclose(intercept, median(y) - slope * median(x), abs_tol=1e-6)


def test_theil_sen_of_points_that_are_close() -> None:
    """Points that are less than one apart count as well."""
    assert stats.theil_sen([0.0, 0.5, 0.75], [1.0, 2.5, 3.25]) == pytest.approx((3, 1))


def test_theil_sen_bears_a_wild_point() -> None:
    """One outlier among seven plateaus does not move the slope of the other six."""
    x = [float(i) for i in range(7)]
    y = [3 * value + 1 for value in x]
    y[3] = 1e6
    assert stats.theil_sen(x, y)[0] == pytest.approx(3)


@QUICK
@given(st.lists(LATENCIES, min_size=1, max_size=5))
def test_p99_is_that_of_all_intervals_together(intervals: list[list[int]]) -> None:
    """p99 (ms) counts every value once, whichever interval it came in."""
    arrays = [np.array(values, dtype=np.float64) for values in intervals]
    together = np.concatenate(arrays)
    assert stats.p99_ms(arrays) == pytest.approx(np.percentile(together, 99) / 1000)
    assert stats.p99_ms(arrays) == pytest.approx(stats.p99_ms([together]))


def tame(p99s: list[float], intervals: int, seed: int) -> list[list[np.ndarray]]:
    """Return plateaus with these p99s (ms), each of `intervals` intervals of fifty latencies."""
    rng = np.random.default_rng(seed)
    return [heavy_tail(rng, p99, intervals, 50) for p99 in p99s]


@pytest.mark.parametrize("seed", range(5))
def test_bootstrap_interval_holds_the_value(seed: int) -> None:
    """For tame data the interval holds the value, which is the statistic of the plateaus' own p99s."""
    plateaus = tame([1.0, 2.0, 4.0, 8.0], 12, seed)
    rise = stats.rise_over([10.0, 20.0, 30.0, 40.0])
    found = stats.bootstrap(plateaus, rise, seed, resamples=100)
    assert found.value == rise(np.array([stats.p99_ms(plateau) for plateau in plateaus]))
    assert found.low <= found.value <= found.high


def test_bootstrap_interval_widens_with_fewer_intervals() -> None:
    """With a quarter of the intervals the confidence interval is wider, summed over six seeds."""

    def width(intervals: int) -> float:
        found = [
            stats.bootstrap(tame([5.0], intervals, seed), lambda p: p[0], seed, resamples=100)
            for seed in range(6)
        ]
        return sum(estimate.high - estimate.low for estimate in found)

    assert width(12) > 1.3 * width(48)


def test_bootstrap_draws_whole_intervals() -> None:
    """One bad interval in ten widens the confidence interval; its latencies spread over all intervals do not."""
    calm, bad = np.full(50, 1000.0), np.full(50, 9000.0)
    moments = [*[calm] * 9, bad]
    mixed = np.array_split(np.random.default_rng(1).permutation(np.concatenate(moments)), 10)
    together = stats.bootstrap([moments], lambda p: p[0], seed=1)
    spread = stats.bootstrap([mixed], lambda p: p[0], seed=1)
    assert together.low < 0.2 * together.high
    assert spread.low == spread.high


@QUICK
@given(
    st.lists(st.lists(LATENCIES, min_size=2, max_size=6), min_size=1, max_size=3),
    st.integers(0, 9),
)
def test_bootstrap_is_that_of_its_definition(values: list[list[list[int]]], seed: int) -> None:
    """Each resample takes the p99 of all values of the intervals drawn, plateau by plateau."""
    plateaus = [[np.array(each, dtype=np.float64) for each in intervals] for intervals in values]
    rng, drawn = np.random.default_rng(seed), []
    for _ in range(20):
        picks = [[plateau[i] for i in rng.integers(0, len(plateau), len(plateau))] for plateau in plateaus]
        drawn.append(sum(stats.p99_ms(each) for each in picks))
    low, high = np.percentile(drawn, [2.5, 97.5])
    found = stats.bootstrap(plateaus, lambda p99s: p99s.sum(axis=0), seed, resamples=20)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_resample_without_a_value_has_no_p99() -> None:
    """If half of the intervals are empty, some resamples have no value, and the confidence interval is NaN."""
    found = stats.bootstrap([[np.array([5000.0]), np.array([])]], lambda p: p[0], 1, resamples=50)
    assert found.value == pytest.approx(5.0)
    assert math.isnan(found.low)


def test_bootstrap_is_repeatable() -> None:
    """The same seed gives the same interval, so a report drawn again says the same; another seed another one."""
    plateaus = tame([1.0, 3.0], 10, 1)
    again = [stats.bootstrap(plateaus, lambda p: p[1] - p[0], seed, resamples=50) for seed in (3, 3, 4)]
    assert again[0] == again[1] != again[2]


def test_the_room_that_bootstrap_takes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resamples computed one by one give the same as many at once."""
    plateaus = tame([1.0, 3.0], 10, 1)
    at_once = stats.bootstrap(plateaus, lambda p: p[1] - p[0], 3, resamples=50)
    monkeypatch.setattr(stats, "ROOM", 1)
    assert stats.bootstrap(plateaus, lambda p: p[1] - p[0], 3, resamples=50) == at_once


def test_rise_is_slope_times_range() -> None:
    """The rise of a straight line is what it climbs between the fewest and the most keys."""
    assert stats.rise_over([1e4, 1e5, 2e5])(np.array([1.0, 10.0, 20.0])) == pytest.approx(19.0)


@QUICK
@given(st.floats(0.001, 0.3), st.floats(0.0, 0.3), st.lists(st.integers(1, 50), min_size=3, max_size=9))
def test_saturation_of_a_line_is_exact(slope: float, base: float, x: list[int]) -> None:
    """Points on a line through the base give exactly the x at which it reaches 1."""
    y = [base + slope * value for value in x]
    found = stats.saturation([float(v) for v in x], y, base, (-1e9, 1e9))
    assert found == pytest.approx((1.0 - base) / slope, rel=1e-6)


def test_saturation_looks_into_its_window_only() -> None:
    """Points outside of the window do not count."""
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.3, 0.35, 0.6, 0.8, 1.0, 7.0]
    assert stats.saturation(x, y, 0.0, (0.4, 1.6)) == pytest.approx(5.0)


def test_the_windows_ends_belong_to_it() -> None:
    """Points on the ends of the window count; lists of different lengths raise `ValueError`."""
    assert stats.saturation([4.0, 10.0, 16.0], [0.4, 1.0, 1.6], 0.0, (0.4, 1.6)) == pytest.approx(10.0)
    with pytest.raises(ValueError, match="zip"):
        stats.saturation([4.0, 10.0, 16.0, 20.0], [0.4, 1.0, 1.6], 0.0, (0.4, 1.6))


def test_one_point_that_is_off_moves_saturation_little() -> None:
    """If the last of four plateaus ran a fifth faster, saturation is off by under 6 %, a fitted line by over 15 %."""
    x = [100.0, 130.0, 160.0, 200.0]
    y = [value / 200 for value in x]
    y[3] /= 1.2
    found = stats.saturation(x, y, 0.0, (0.4, 1.6))
    assert found is not None
    assert 1.0 < found / 200 < 1.06
    slope, intercept = np.polyfit(x, y, 1)
    assert (1 - intercept) / slope / 200 > 1.15


@pytest.mark.parametrize(
    ("y", "base"), [([0.1, 0.2, 0.9], 0.0), ([0.1, 0.5, 0.9], 0.0), ([0.5, 0.6, 0.7], 0.6), ([], 0.0)]
)
def test_no_saturation(y: list[float], base: float) -> None:
    """Fewer than three points in the window and above the base load give None."""
    assert stats.saturation([1.0, 2.0, 3.0][: len(y)], y, base, (0.4, 1.6)) is None


BOUNDS = [0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]


def counted(values: list[float]) -> dict[float, float]:
    """Cumulative counts as Prometheus exposes them."""
    return {bound: float(sum(v <= bound for v in values)) for bound in [*BOUNDS, float("inf")]}


@QUICK
@given(
    st.lists(st.floats(1e-4, 4.9), min_size=1, max_size=60),
    st.lists(st.floats(1e-4, 20), max_size=20),
    st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_bucket_quantile_is_in_the_bucket_of_the_true_one(
    values: list[float], before: list[float], q: float
) -> None:
    """Between two scrapes only what came in between counts, and the quantile is right to within its bucket."""
    found = bucket_quantile(counted(before), counted(before + values), q)
    # The bucket where the cumulative count reaches q·n holds the ⌈q·n⌉-th smallest value.
    true = sorted(values)[math.ceil(q * len(values) - 1e-9) - 1]
    top = next(bound for bound in BOUNDS if bound >= true)
    low = max((bound for bound in BOUNDS if bound < true), default=0.0)
    assert found is not None
    assert low - 1e-9 <= found <= top + 1e-9


def test_bucket_quantile_follows_numpy_on_fine_buckets() -> None:
    """With buckets of 1 % the quantiles of a smooth distribution are numpy's to within a bucket."""
    values = np.random.default_rng(1).lognormal(-5, 1, 5000)
    bounds = [1e-4 * 1.01**i for i in range(1200)]
    after = {bound: float(np.sum(values <= bound)) for bound in bounds} | {float("inf"): 5000.0}
    for q in (0.5, 0.9, 0.99):
        assert bucket_quantile({}, after, q) == pytest.approx(np.quantile(values, q), rel=0.02)


def test_bucket_quantile_of_nothing_and_of_too_much() -> None:
    """No counts give None; a quantile above the last finite bound gives that bound."""
    assert bucket_quantile({}, {}, 0.99) is None
    assert bucket_quantile(counted([0.3]), counted([0.3]), 0.99) is None
    assert bucket_quantile({}, counted([100.0, 200.0]), 0.5) == 5.0


@QUICK
@given(LATENCIES)
def test_histogram_round_trip(values: list[int]) -> None:
    """Every latency comes back once, in order, and to three significant digits."""
    found = values_of(encode(values))
    assert len(found) == len(values)
    assert list(found) == sorted(found)
    assert found == pytest.approx(sorted(float(value) for value in values), rel=1e-3, abs=1)


def test_empty_histogram_has_no_values() -> None:
    """An interval without a reply is empty, not an error."""
    assert len(values_of(encode([]))) == 0
