"""Calibration on a made-up stack: the arithmetic, for one thread and for several."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lab.runner.calibration import Calibrator
from lab.scenarios import catalogue
from lab.server.http import Metrics
from lab.server.server_stats import Snapshot

SCENARIO = catalogue()["key-growth"]
KEYS, COST_S, BASE = 170_000, 0.2e-6, 0.02


class MadeUp:
    """A server on which a scanned key costs COST_S of one thread; an event takes LATE_S to finish."""

    key_prefix = "shop"
    LATE_S = 0.4

    def __init__(self, threads: int) -> None:
        self.now, self.busy, self.finished, self.waiting, self.rate = 100.0, 0.0, 0.0, 0.0, 0.0
        self.cost_s = COST_S
        self.threads = threads
        self.rates: list[float] = []
        self.web = SimpleNamespace(use=lambda *_: None, warm=lambda *_, **__: None)
        self.locust = SimpleNamespace(load=self._load)
        self.server = SimpleNamespace(
            ping_us=lambda: [50.0], snapshot=self._snapshot, scan_cost_us=lambda *_: KEYS * COST_S * 1e6
        )

    def check(self) -> None:
        """Do nothing: no process ever ends."""

    def _load(self, reads: float, events: float, population: int) -> None:
        self.rate = events
        self.rates.append(events)

    def pause(self, seconds: float) -> None:
        """Let time pass: events arrive, and the last of them are still waiting."""
        arrived = self.rate * seconds
        left = self.rate * min(seconds, self.LATE_S)
        self._finish(self.waiting + arrived - left)
        self.waiting = left
        self.now += seconds
        self.busy += BASE * seconds

    def drain(self) -> None:
        """Let the waiting events finish."""
        self._finish(self.waiting)
        self.waiting = 0.0
        self.now += self.LATE_S
        self.busy += BASE * self.LATE_S

    def _finish(self, events: float) -> None:
        self.finished += events
        self.busy += 3 * events * KEYS * self.cost_s / self.threads

    def observe(self) -> Metrics:
        """Return the storefront's counters."""
        return Metrics({}, self.finished, 0.0, self.waiting)

    def _snapshot(self) -> Snapshot:
        return Snapshot(self.now, KEYS, {}, self.busy, 1.0, 1, "run", self.threads)


def calibrator(stack: Any) -> Calibrator:
    """Return a calibrator on that stack."""
    return Calibrator(stack, SCENARIO, 10_000, stack.pause, stack.drain)


@pytest.mark.parametrize("threads", [1, 2])
def test_rate_saturates_the_server_at_the_wanted_keys(threads: int) -> None:
    """Base load and scans at the found rate keep all of the server's threads busy, neither more nor less."""
    stack = MadeUp(threads)
    found = calibrator(stack).calibrate(200_000, 6.0, lambda text: None)
    busy = BASE + found.events_per_second * 3 * KEYS * COST_S / threads
    assert busy == pytest.approx(1.0, rel=0.001)
    assert found.base_utilisation == pytest.approx(BASE, rel=0.001)
    assert max(stack.rates) * 3 * KEYS * COST_S / threads == pytest.approx(0.5), "measured at half load"
    assert stack.rate == 0.0, "and nothing goes on afterwards"


def test_demand_is_predicted_from_part_of_the_load_at_what_a_key_costs_by_then() -> None:
    """A machine that became a fifth slower since calibration has a predicted demand a fifth higher."""
    stack = MadeUp(1)
    calibration = calibrator(stack)
    rate = calibration.calibrate(200_000, 6.0, lambda text: None).events_per_second
    assert calibration.predict(rate, 1.2) == pytest.approx(1.0, rel=0.001)
    stack.rates.clear()
    stack.cost_s *= 1.2
    assert calibration.predict(rate, 1.2) == pytest.approx(BASE + 1.2 * (1 - BASE), rel=0.001)
    assert max(stack.rates) == pytest.approx(0.75 * rate)


class Rare(MadeUp):
    """Events are a hundred times as expensive, so they are rare; they come whole, the first when one is due."""

    def __init__(self) -> None:
        super().__init__(1)
        self.cost_s *= 100
        self.server.scan_cost_us = lambda *_: KEYS * self.cost_s * 1e6

    def pause(self, seconds: float) -> None:
        """Let time pass; events that are not due within it do not come."""
        self._finish(float(int(self.rate * seconds)))
        self.now += seconds
        self.busy += BASE * seconds


def test_rare_events_are_waited_for() -> None:
    """Where an event comes every 20 s, a sample of 6 s would see none."""
    stack = Rare()
    calibration = calibrator(stack)
    rate = calibration.calibrate(200_000, 6.0, lambda text: None).events_per_second
    assert stack.rates[1] < 1 / 6.0
    assert rate * 3 * KEYS * stack.cost_s == pytest.approx(1 - BASE, rel=0.01)
    assert calibration.predict(rate, 1.2) == pytest.approx(1.0, rel=0.01)


def test_server_without_cpu_time_is_refused() -> None:
    """A server that does not report its CPU time cannot be calibrated, and a line says so."""
    stack: Any = MadeUp(1)
    stack.server.snapshot = lambda: replace(stack._snapshot(), main_thread_s=None)
    with pytest.raises(Exception, match="does not report its CPU time"):
        calibrator(stack).calibrate(200_000, 6.0, lambda text: None)


def test_events_that_never_finish_are_said() -> None:
    """Without a finished event there is no cost: one line says where to look."""
    stack: Any = MadeUp(1)
    stack._finish = lambda events: None
    with pytest.raises(Exception, match="no event finish"):
        calibrator(stack).calibrate(200_000, 6.0, lambda text: None)
