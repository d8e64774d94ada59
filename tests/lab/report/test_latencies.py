"""Latencies read for the report agree with those that claims are judged by."""

from __future__ import annotations

import pytest

from lab.report.latencies import LatencyView
from lab.results import numbers
from lab.results.folder import RunFacts
from tests.lab.doctored import build_run


def test_phases_have_the_p99_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The report's p99 of a phase is the run's, for every probe, from the due time and from the send time."""

    def shift(facts: RunFacts) -> None:  # intervals then cross the phases' ends, as in a real run
        for phase in facts.phases:
            phase.t0, phase.t1 = phase.t0 + 0.1, phase.t1 + 0.1

    arms = ["index", "fix", "restart", "return"]
    run = build_run(tmp_path_factory.mktemp("run") / "run", without=arms, doctor=shift)
    latencies = LatencyView(run)
    for phase in run.phases:
        for probe in phase.probes:
            for kind in ("intended", "service"):
                assert latencies.p99_ms(phase, probe, kind) == run.p99_ms(phase, probe, kind)


def test_a_restart_breaks_the_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Between the last answer before a restart and the first after it there is no value."""
    run = build_run(tmp_path_factory.mktemp("run") / "run", without=["index", "fix", "return"])
    holes = [second for second in LatencyView(run).seconds() if second.p99_ms is None]
    (restart,) = [mark.t for mark in run.facts.marks if mark.text == "restart"]

    assert len(holes) == 1
    assert restart <= holes[0].t <= restart + 1.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0"),
        (1.4049, "1.40"),
        (406.7, "407"),
        (0.02867, "0.0287"),
        (187815, "188,000"),
    ],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    """Three digits, no exponent, a dash for what is not known."""
    assert numbers.sig(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3430.0, "3.43 s"), (406.7, "407 ms"), (0.0287, "28.7 µs"), (None, "–"), (0, "0 ms")]
)
def test_latencies_come_in_the_unit_that_reads_best(value: float | None, text: str) -> None:
    """A latency is shown in seconds, milliseconds or microseconds, whichever reads best."""
    assert numbers.ms(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.966, "96.6 %"), (0.9985, "99.85 %"), (0.99999, "over 99.99 %"), (None, "–")]
)
def test_a_share_near_all_is_not_rounded_to_all(share: float | None, text: str) -> None:
    """A share just below 100 % is not rounded to 100 %."""
    assert numbers.share(share) == text
