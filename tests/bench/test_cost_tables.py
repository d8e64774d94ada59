"""The tables on scale: what is fitted to the costs, and what a doctored cost would look like."""

from __future__ import annotations

from typing import Any

import pytest

from bench.cost_tables import (
    EVIDENCE,
    LARGEST,
    PLOTS,
    SERIES,
    growth,
    growth_table,
    largest_table,
    visit_sentences,
)

SIZES = [10**n for n in range(3, 8)]


def points(
    power: float, strategy: str = "scan", noise: float = 0.0, fixed: float = 0.0
) -> list[dict[str, Any]]:
    """Costs that grow with that power of the size, in three rounds that differ by the noise."""
    return [
        {
            "strategy": strategy,
            "entries": size,
            "own": size,
            "keys": size,
            "main_us": [fixed + 0.1 * size**power * (1 + noise * step) for step in (-1, 0, 1)],
            "others_us": [0.0] * 3,
        }
        for size in SIZES
    ]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_power_is_found_with_its_interval(power: float) -> None:
    """It lies in the interval, and noise makes the interval wider."""
    quiet, noisy = (growth(points(power, noise=noise), "entries", None) for noise in (0.02, 0.3))
    assert quiet is not None
    assert noisy is not None
    assert quiet.power == pytest.approx(power, abs=0.01)
    assert noisy.low <= quiet.low <= power <= quiet.high <= noisy.high
    assert noisy.high - noisy.low > quiet.high - quiet.low


@pytest.mark.parametrize(
    ("costs", "promised", "holds"),
    [
        (points(1, noise=0.05), 1, True),
        (points(0.5, noise=0.05), 1, False),
        (points(0.5, noise=0.05), 0, False),
        (points(0, noise=0.05), 0, True),
        (points(1, noise=0.99), 1, False),  # an interval that is wider than the bound
        (points(1, noise=0.01, fixed=50.0), 1, True),  # the smallest sizes are not fitted
    ],
)
def test_a_promise_is_held_against_the_whole_interval(
    costs: list[dict[str, Any]], promised: int, holds: bool
) -> None:
    """Linear is not constant, and the square root is neither."""
    found = growth(costs, "entries", promised)
    assert found is not None
    assert found.holds is holds


def test_two_sizes_are_no_growth() -> None:
    """There is no line to be judged through two points."""
    assert growth(points(1)[-2:], "entries", 1) is None


def one_series(strategy: str, power: float) -> dict[str, dict[str, Any]]:
    """Figures as the benchmark keeps them, in which one strategy's cost grows with that power."""
    about = {
        "command": "c",
        "date": "d",
        "machine": "m",
        "server": "embedded",
        "key_bytes": 360,
        "caches": {},
    }
    return {name: {**about, "series": name, "points": points(power, strategy, 0.02)} for name in SERIES}


def test_broken_and_kept_promises_are_shown() -> None:
    """An index whose cost grows with the keys of the server is a red cell; a search is none."""
    assert "**no**" in growth_table(one_series("index", 1))
    assert "**no**" not in growth_table(one_series("scan", 1))
    assert (
        "A key among 10,000,000 entries costs `scan` 33 ns, 1.00 × as much as among 10,000."
        in visit_sentences(one_series("scan", 1))
    )
    assert all(plot(one_series("scan", 1)).startswith("<svg") for plot in PLOTS.values())


def test_one_event_among_the_most_keys() -> None:
    """A row for each strategy that was measured there, whichever they are."""
    parts = one_series("hash", 0)
    for strategy in ("hash", "index"):
        point = points(0, strategy)[-1] | {"entries": LARGEST, "keys": 52_500_000}
        parts["keys"]["points"].append(point | {"main_us": [20.0, 90.0, 40.0]})
    assert largest_table(parts).splitlines()[2:] == [
        "| `hash` | 52,500,000 | 40.0 µs | `c` |",
        "| `index` | 52,500,000 | 40.0 µs | `c` |",
    ]


def test_every_promise_holds_in_what_is_committed() -> None:
    """The docstrings of the strategies agree with the costs that were measured last."""
    assert "| yes |" in growth_table(EVIDENCE.records())
    assert "**no**" not in growth_table(EVIDENCE.records())
