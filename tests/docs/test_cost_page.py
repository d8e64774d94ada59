"""The page on scale: what is fitted to the costs, and what a doctored cost would look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.pages import fromcost
from docs.pages.pages import Renewal
from lab import ROOT
from lab.errors import UsageError

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
    quiet, noisy = (fromcost.growth(points(power, noise=noise), "entries", None) for noise in (0.02, 0.3))
    assert quiet is not None
    assert noisy is not None
    assert quiet.power == pytest.approx(power, abs=0.01)
    assert noisy.low <= quiet.low <= power <= quiet.high <= noisy.high
    assert noisy.high - noisy.low > quiet.high - quiet.low


@pytest.mark.parametrize(
    ("power", "promised", "holds"), [(1, 1, True), (0.5, 1, False), (0.5, 0, False), (0, 0, True)]
)
def test_a_promise_is_held_against_the_whole_interval(power: float, promised: int, holds: bool) -> None:
    """Linear is not constant, and the square root is neither."""
    found = fromcost.growth(points(power, noise=0.05), "entries", promised)
    assert found is not None
    assert found.holds is holds


def test_a_noisy_cost_holds_nothing() -> None:
    """An interval that is wider than the bound cannot hold a promise."""
    found = fromcost.growth(points(1, noise=0.99), "entries", 1)
    assert found is not None
    assert found.holds is False


def test_fixed_costs_do_not_hide_the_growth() -> None:
    """The smallest sizes, where the fixed part is most of the cost, are not fitted."""
    found = fromcost.growth(points(1, noise=0.01, fixed=50.0), "entries", 1)
    assert found is not None
    assert found.holds


def test_two_sizes_are_no_growth() -> None:
    """There is no line to be judged through two points."""
    assert fromcost.growth(points(1)[-2:], "entries", 1) is None


def kept(root: Path, strategy: str, power: float) -> None:
    """Write a file as the benchmark does, in which one strategy's cost grows with that power."""
    about = {
        "command": "c",
        "date": "d",
        "machine": "m",
        "server": "embedded",
        "key_bytes": 360,
        "caches": {},
    }
    parts = {
        name: {**about, "series": name, "points": points(power, strategy, 0.02)} for name in fromcost.SERIES
    }
    (root / "docs").mkdir()
    (root / fromcost.FILE).write_text(json.dumps(parts), encoding="utf-8")


def test_a_broken_promise_is_shown(tmp_path: Path) -> None:
    """An index whose cost grows with the keys of the server is a red cell."""
    kept(tmp_path, "index", 1)
    assert "**no**" in fromcost.growth_list(tmp_path)


def test_a_kept_promise_is_shown(tmp_path: Path) -> None:
    """A search whose cost grows with the keys is none; and what a key costs is read off."""
    kept(tmp_path, "scan", 1)
    assert "**no**" not in fromcost.growth_list(tmp_path)
    assert "| 10,000,000 | 33 ns | – |" in fromcost.visit_list(tmp_path)
    for draw in fromcost.PLOTS.values():
        drawn = draw(tmp_path)
        assert drawn is not None
        assert drawn[0].startswith("<svg")


def test_one_event_among_the_most_keys(tmp_path: Path) -> None:
    """A row for each strategy that was measured there, whichever they are; without any, the command that would."""
    kept(tmp_path, "hash", 0)
    assert "--keys 50000000 --only keys" in fromcost.largest_list(tmp_path)
    path = tmp_path / fromcost.FILE
    parts = json.loads(path.read_text(encoding="utf-8"))
    for strategy in ("hash", "index"):
        point = points(0, strategy)[-1] | {"entries": fromcost.LARGEST, "keys": 52_500_000}
        parts["keys"]["points"].append(point | {"main_us": [20.0, 90.0, 40.0]})
    path.write_text(json.dumps(parts), encoding="utf-8")
    assert fromcost.largest_list(tmp_path).splitlines()[2:] == [
        "| `hash` | 52,500,000 | 40.0 µs | `c` |",
        "| `index` | 52,500,000 | 40.0 µs | `c` |",
    ]


@pytest.mark.parametrize("name", ["growth", "freed", "visits", "largest"])
def test_before_the_benchmark_was_run_the_page_says_so(name: str, tmp_path: Path) -> None:
    """With the command that fills it."""
    assert "Not measured yet: `.venv/bin/python -m bench.cost" in fromcost.LISTS[name](tmp_path)
    assert "--write docs/cost.json" in fromcost.LISTS[name](tmp_path)
    assert all(draw(tmp_path) is None for draw in fromcost.PLOTS.values())


def test_an_unknown_plot_is_one_line(tmp_path: Path) -> None:
    """The nearest name is offered."""
    page = tmp_path / "page.md"
    page.write_text("<!-- plot: costs -->\n<!-- /plot -->\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"page.md:1: there is no plot 'costs'; .*cost"):
        Renewal(tmp_path).page(page)


def test_every_promise_holds_in_what_is_committed() -> None:
    """The docstrings of the strategies agree with the costs that were measured last."""
    assert "| yes |" in fromcost.growth_list(ROOT)
    assert "**no**" not in fromcost.growth_list(ROOT)
