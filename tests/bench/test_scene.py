"""The promises of a round of the scene, and the looks that count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.scene import Round, every_window, is_healthy

GOOD = Round(
    server="redis", round=1, healthy_p99_ms=4.0, planned_events_per_second=1.0, correlation=0.95, events_of_plan=1.01,
    keys=120_000, p99_ms=300.0, times_healthy=75.0, drift=1.1, index_cured_s=12.0, restart_cured_s=11.0, hold_s=60.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "broken"),
    [
        ("correlation", 0.95, []),
        ("correlation", 0.89, ["correlation"]),
        ("events_of_plan", 1.06, ["events"]),
        ("events_of_plan", 0.94, ["events"]),
        ("times_healthy", 19.0, ["times healthy"]),
        ("drift", 2.1, ["drift"]),
        ("drift", 0.4, ["drift"]),
        ("index_cured_s", 15.5, ["index"]),
        ("restart_cured_s", float("inf"), ["restart"]),
    ],
)
def test_each_promise_can_be_broken(name: str, value: float, broken: list[str]) -> None:
    """A round that keeps every promise has none broken; one figure beyond its bound breaks its own."""
    assert replace(GOOD, **{name: value}).broken(flat=False) == broken  # type: ignore[arg-type] # floats only


def test_flat_is_the_opposite() -> None:
    """A server that lets other clients in between breaks its promise if p99 climbs."""
    assert GOOD.broken(flat=True) == ["flat"]
    assert replace(GOOD, times_healthy=2.0, correlation=0.1).broken(flat=True) == []


def test_windows_do_not_overlap() -> None:
    """One look in ten counts, because each p99 is that of ten seconds; looks without one do not."""

    def row(p99: float | None) -> dict[str, Any]:
        return {"p99_ms": p99, "healthy_p99_ms": 1.0}

    seen = [(float(second), row(None if second < 5 else float(second))) for second in range(40)]
    assert [one["p99_ms"] for one in every_window(seen)] == [5.0, 15.0, 25.0, 35.0]
    assert is_healthy(row(1.9)) and not is_healthy(row(2.1)) and not is_healthy(row(None))
