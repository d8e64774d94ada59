"""Charts within one phase, from lines of loads.jsonl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.report import charts, style
from lab.report.timeseries import lines, timeseries
from lab.report.view import RunView
from lab.scenarios import eviction_cycle
from lab.scenarios.model import Chart
from tests.lab.plain import Plain

CHART = Chart("x", "The cycle", "moments", "cycle", "used_mb evicted p99_ms", by="evicted")


@pytest.fixture
def view(tmp_path: Path) -> RunView:
    """Ten lines of 0.1 s each: evictions in the 4th, 5th and 8th, a stall without a p99 in the 5th."""
    plain = Plain(eviction_cycle.SCENARIO)
    for i in range(10):
        plain.lines.append(
            {
                "phase": "cycle",
                "load": "crowd",
                "t": 100.1 + i / 10,
                "interval_s": 0.1,
                "used_mb": 200.0 + i,
                "evicted": {3: 10, 4: 20, 7: 5}.get(i, 0),
                "p99_ms": None if i == 4 else 2.0,
            }
        )
    plain.lines.append({"phase": "cycle", "load": "crowd", "figures": {"rate": 1.0}})
    plain.lines.append({"phase": "few-clients", "load": "crowd", "t": 500.0, "interval_s": 0.1, "evicted": 7})
    return RunView(plain.write(tmp_path / "run"))


def panel(view: RunView, number: int, layer: int) -> list[dict[str, float]]:
    """Return the rows of a layer of a panel: 0 is the shaded stretches, 1 the line."""
    document = style.spec(timeseries(view, CHART), "", validate=True)
    data = document["vconcat"][number]["layer"][layer]["data"]
    rows: list[dict[str, float]] = json.loads(
        document["datasets"][data["name"]] if "name" in data else data["values"]
    )
    return rows


def test_only_lines_of_the_phase_count(view: RunView) -> None:
    """Lines of another phase and the last line, which has figures, are left out."""
    assert len(lines(view, CHART)) == 10


def test_counts_become_rates_and_levels_stay(view: RunView) -> None:
    """Counts become rates a second, levels and gaps stay; time is counted from the phase's beginning."""
    assert [row["value"] for row in panel(view, 0, 1)][:2] == [200.0, 201.0]
    evicted = panel(view, 1, 1)
    assert evicted[3]["value"] == pytest.approx(100)
    assert evicted[3]["t"] == pytest.approx(0.4)
    assert panel(view, 2, 1)[4]["value"] is None


def test_neighbouring_moments_are_one_stretch(view: RunView) -> None:
    """Neighbouring lines with a value above zero are one shaded stretch: here two, of 0.2 and 0.1 s."""
    spans = panel(view, 0, 0)

    assert [(round(s["start"], 3), round(s["end"], 3)) for s in spans] == [(0.3, 0.5), (0.7, 0.8)]
    assert "in 2 stretches" in charts.description(view, CHART)


def test_a_moment_too_short_for_a_rate_is_left_out(tmp_path: Path) -> None:
    """A line a few milliseconds after the previous one is left out: its rate would be a spike."""
    plain = Plain(eviction_cycle.SCENARIO)
    for t, interval, evicted in ((1.0, 0.1, 1), (1.1, 0.1, 1), (1.102, 0.002, 9), (1.2, 0.098, 1)):
        plain.lines.append(
            {"phase": "cycle", "load": "crowd", "t": t, "interval_s": interval, "evicted": evicted}
        )

    found = lines(RunView(plain.write(tmp_path / "run")), CHART)

    assert [line["t"] for line in found] == [1.0, 1.1, 1.2]


def test_without_lines_there_is_no_chart(tmp_path: Path) -> None:
    """A run whose load wrote no lines has no chart of them."""
    empty = RunView(Plain(eviction_cycle.SCENARIO).write(tmp_path / "run"))

    assert not charts.has_data(empty, CHART)


def test_with_lines_there_is_one(view: RunView) -> None:
    """A run whose load wrote lines has the chart."""
    assert charts.has_data(view, CHART)
