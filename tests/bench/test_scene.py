"""`bench.scene`: when an incident counts as over, on a slow machine and on a fast one."""

from __future__ import annotations

from typing import Any

import pytest

from bench.scene import cured

HEALTHY_MS = 2.0


def row(times: float | None) -> dict[str, Any]:
    """The control page's row of a server whose p99 is that many times the healthy one; None: not known."""
    return {
        "name": "redis",
        "healthy_p99_ms": HEALTHY_MS,
        "p99_ms": times if times is None else times * HEALTHY_MS,
    }


@pytest.mark.parametrize(
    ("before", "now", "over"),
    [
        (10.0, 1.9, True),
        (10.0, 2.1, False),  # a mild incident: no more than what a healthy server shows
        (30.0, 3.5, True),
        (30.0, 4.5, False),
        (600.0, 5.8, True),  # a fast machine: its own programs make as much of it
        (600.0, 10.5, False),  # 98 % are gone, but a server of which this is left is still ill
        (600.0, None, False),
        (1.0, 1.9, True),
    ],
)
def test_an_incident_is_over_when_it_is_gone_from_p99(before: float, now: float | None, over: bool) -> None:
    """Twice the healthy p99 is over; so are nine tenths of what was added, below ten times the healthy p99."""
    assert cured(row(now), before) is over
