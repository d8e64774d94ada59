"""Figures from samples: parsing, p99 over a window, rates, the curve, and the arithmetic of the knee."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.clients import SceneSample, probe_buckets, samples
from console.history import CURVE_S, CURVE_STEP_S, Follows, History
from lab.results.knee import PATTERNS_PER_EVENT, cost_of_each, saturating_events, saturating_keys
from loadtest.info import cpu_seconds

INF = float("inf")
EMPTY_SAMPLE = SceneSample("scan", {}, ["scan"], 1000, 0, 0.0, 0.0, {0.001: 0.0, 0.1: 0.0, INF: 0.0})


def with_probe(fast: float, slow: float, beyond: float = 0.0, **more: float) -> SceneSample:
    """A sample whose probe has counted `fast` replies below 1 ms, `slow` below 100 ms, and `beyond` above."""
    sample = replace(EMPTY_SAMPLE, probe={0.001: fast, 0.1: fast + slow, INF: fast + slow + beyond})
    return replace(sample, **more)  # type: ignore[arg-type] # numbers only


def test_samples_by_whole_name() -> None:
    """Only samples of exactly this name are read, not those of names that begin with it."""
    text = '# HELP a_total a\na_total{x="a_total 5"} 1.0\na_total_more 2.0\na_created 3.0\na_total 4.0\n'
    assert [(s.name, s.value) for s in samples(text, "a_total")] == [("a_total", 1.0), ("a_total", 4.0)]


def test_probe_counts_from_the_intended_time() -> None:
    """Latencies measured from the send time, which omit the waiting, are left out."""
    text = (
        'probe_latency_seconds_bucket{probe="main",from="intended",le="0.1"} 5.0\n'
        'probe_latency_seconds_bucket{probe="main",from="send",le="0.1"} 99.0\n'
        'probe_latency_seconds_bucket{probe="main",from="intended",le="+Inf"} 6.0\n'
    )
    assert probe_buckets(text) == {0.1: 5.0, INF: 6.0}


def test_nothing_is_known_from_one_sample() -> None:
    """One sample is no interval, so there is no p99 and no rate."""
    figures = History().add(0.0, with_probe(1000, 0))
    assert figures.p99_ms is None and figures.finished_per_second is None


def test_p99_forgets_what_is_older_than_the_window() -> None:
    """Slow replies no longer count in the p99 once they are older than its window."""
    history = History()
    history.add(0.0, with_probe(0, 0))
    slow = history.add(1.0, with_probe(0, 500))
    assert slow.p99_ms is not None and slow.p99_ms > 50
    for second in range(2, 20):
        fast = history.add(float(second), with_probe(200 * second, 500))
    assert fast.p99_ms is not None and fast.p99_ms <= 1.0


def test_silence_keeps_the_last_p99() -> None:
    """While no replies come at all, p99 stays that of the last replies."""
    history = History()
    history.add(0.0, with_probe(0, 0))
    history.add(1.0, with_probe(0, 500))
    for second in range(2, 40):
        silent = history.add(float(second), with_probe(0, 500))
    assert silent.p99_ms is not None and silent.p99_ms > 50


def test_beyond_the_last_bucket() -> None:
    """A p99 above the probe's last bound is reported as at least that bound."""
    history = History()
    history.add(0.0, with_probe(0, 0))
    figures = history.add(1.0, with_probe(10, 0, beyond=90))
    assert figures.p99_ms == pytest.approx(100) and figures.beyond


def test_rate_of_finished_events() -> None:
    """The rate of finished events is that of the window."""
    history = History()
    for second in range(30):
        figures = history.add(float(second), with_probe(second, 0, finished=12.0 * second))
    assert figures.finished_per_second == pytest.approx(12.0)


def test_restarted_process_starts_anew() -> None:
    """A counter that fell back to nothing gives no negative rate and no wrong p99."""
    history = History()
    history.add(0.0, with_probe(1000, 1000, finished=500.0))
    figures = history.add(1.0, with_probe(5, 0, finished=2.0))
    assert figures.finished_per_second is None and figures.p99_ms is None
    figures = history.add(2.0, with_probe(15, 0, finished=12.0))
    assert figures.finished_per_second == pytest.approx(10.0)


def test_curve_is_bounded() -> None:
    """The curve holds five minutes, however long the page has been running."""
    history = History()
    for second in range(1000):
        history.add(float(second), with_probe(second, 0, keys=second))
    curve = history.curve(1000.0)
    assert len(curve["keys"]) == CURVE_S / CURVE_STEP_S
    assert len(curve["ago_s"]) == len(curve["p99_ms"]) == len(curve["keys"])
    last = curve["keys"][-1]
    assert (
        last is not None
        and last >= 998
        and curve["ago_s"] == sorted(curve["ago_s"], key=lambda ago: -(ago or 0.0))
    )


@given(
    base=st.floats(0, 0.9), cost=st.floats(1e-9, 1e-5), keys=st.floats(100, 1e8), window=st.floats(0.5, 60)
)
def test_knee_and_rate_are_inverse(base: float, cost: float, keys: float, window: float) -> None:
    """The rate computed for a knee has its knee there, and the cost measured from its work is the cost put in."""
    rate = saturating_events(base, keys, cost)
    assert math.isclose(saturating_keys(base, rate, cost), keys, rel_tol=1e-9)
    # half that rate at those keys, for a while:
    visited = rate / 2 * PATTERNS_PER_EVENT * keys * window
    busy = base * window + visited * cost
    assert math.isclose(cost_of_each(busy, base, window, visited), cost, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [("12.34", 12.000034), ("12.000034", 12.000034), ("3.500000", 3.5), ("0.7", 0.000007)],
)
def test_cpu_seconds_are_read_as_meant(printed: str, seconds: float) -> None:
    """The digits after the point are microseconds, with leading zeros (Redis) or without (Dragonfly)."""
    assert cpu_seconds(printed) == pytest.approx(seconds, abs=1e-9)


def test_correlation_of_ranks() -> None:
    """The rank correlation is 1 if p99 rises with the keys, however steeply, -1 if it falls, None if points are few."""
    follows = Follows(step_keys=10)
    for number in range(9):
        follows.add(10.0 * number, 2.0**number)
    assert follows.correlation is None
    follows.add(90.0, 1e9)
    assert follows.correlation == pytest.approx(1.0)
    follows.begin()
    for number in range(12):
        follows.add(10.0 * number, 100.0 - number)
    assert follows.correlation == pytest.approx(-1.0)


def test_correlation_agrees_with_scipy() -> None:
    """The rank correlation is SciPy's, ties included."""
    import scipy.stats  # more than a second, which every process would spend that only collects the tests

    noise = random.Random(4)
    pairs = [(float(10 * number), float(noise.randint(1, 8) + number // 4)) for number in range(40)]
    follows = Follows(step_keys=10)
    for keys, p99 in pairs:
        follows.add(keys, p99)
    assert follows.correlation == pytest.approx(scipy.stats.spearmanr(*zip(*pairs, strict=True)).statistic)


def test_standing_keys_do_not_dilute_the_correlation() -> None:
    """An hour at the edge with a wandering p99 does not change the correlation that the growth has shown."""
    noise = random.Random(5)
    follows = Follows(step_keys=5000)
    for keys in range(0, 150_000, 1000):
        follows.add(float(keys), keys / 1000 + 1)
    grown = follows.correlation
    for _ in range(3600):
        follows.add(150_000 - noise.uniform(0, 3000), noise.uniform(50, 400))
    assert follows.correlation == grown == pytest.approx(1.0)


def test_p99_that_never_changes_has_no_correlation() -> None:
    """A p99 that never changes gives no correlation rather than a wrong one."""
    follows = Follows(step_keys=1)
    for number in range(20):
        follows.add(float(number), 3.0)
    assert follows.correlation is None
