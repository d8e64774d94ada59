"""The parts of a p99: the probe's own lag is never counted as the server's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from lab.report.breakdown import Parts, parts
from lab.report.view import RunView
from lab.results.folder import PhaseRecord


def split(intended: float, sent: float | None, lag_p99_ms: float) -> Parts:
    """Return the parts of a phase with these p99s (ms), a GET executed in 2 µs and a round trip of 0.05 ms."""
    view = SimpleNamespace(
        p99=lambda phase, kind="intended": intended if kind == "intended" else sent,
        facts=SimpleNamespace(calibration={"ping_floor_us": 50.0}),
    )
    phase = SimpleNamespace(
        execution_us=lambda command: 2.0, probes={"main": {"lag_p99_us": lag_p99_ms * 1000}}
    )
    return parts(cast(RunView, view), cast(PhaseRecord, phase))


def test_a_late_probe_is_a_part_of_its_own() -> None:
    """With 14.7 ms by schedule, but 3.23 ms from sending, 11.47 ms are the late probe's and 3.2 ms are waiting."""
    found = split(14.7, 3.23, 12.7)
    assert found.late == pytest.approx(11.47)
    assert found.waiting == pytest.approx(14.7 - 11.47 - 0.052)
    assert found.share == pytest.approx(0.216, abs=0.001)


def test_requests_that_stood_behind_others_waited_for_the_server() -> None:
    """If the probe was on time, a wait before sending is a wait for a taken connection: it counts as waiting."""
    found = split(100.0, 20.0, 0.2)
    assert found.late == pytest.approx(0.2)
    assert found.waiting == pytest.approx(100 - 0.2 - 0.052)


@pytest.mark.parametrize(("intended", "sent"), [(5.0, 5.0), (5.0, 6.0), (5.0, None)])
def test_a_probe_that_was_on_time_has_no_part(intended: float, sent: float | None) -> None:
    """The late part is never negative, and 0 where the send times were not recorded."""
    assert split(intended, sent, 3.0).late == 0.0
