"""Calibration on a made-up stack: the arithmetic, for servers whose SCAN sees everything and for one whose does not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lab.calibration import calibrate
from lab.scenarios import catalogue
from lab.service import Metrics
from lab.store import Snapshot

SCENARIO = catalogue()["key-growth"]
KEYS, COST_S, BASE = 186_000, 0.2e-6, 0.02


class MadeUp:
    """A server on which a scanned key costs COST_S of one thread; a scan takes so many calls."""

    key_prefix = "shop"

    def __init__(self, threads: int, calls_per_scan: int) -> None:
        self.now, self.busy, self.calls, self.finished, self.rate = 100.0, 0.0, 0.0, 0.0, 0.0
        self.threads, self.calls_per_scan = threads, calls_per_scan
        self.rates: list[float] = []
        self.web = SimpleNamespace(use=lambda *_: None, warm=lambda *_, **__: None)
        self.locust = SimpleNamespace(load=self._load)
        self.store = SimpleNamespace(
            ping_us=lambda: [50.0], snapshot=self._snapshot, scan_cost_us=lambda *_: KEYS * COST_S * 1e6
        )

    def check(self) -> None:
        """Nothing ever ends."""

    def _load(self, reads: float, events: float, population: int) -> None:
        self.rate = events
        self.rates.append(events)

    def pause(self, seconds: float) -> None:
        """The world goes on."""
        scans = 3 * self.rate * seconds
        self.now += seconds
        self.busy += BASE * seconds + scans * KEYS * COST_S / self.threads
        self.calls += scans * self.calls_per_scan
        self.finished += self.rate * seconds

    def observe(self) -> Metrics:
        """What the service says."""
        return Metrics({}, self.finished, 0.0, 0.0)

    def _snapshot(self) -> Snapshot:
        commands = {"SCAN": (self.calls, 0.0)}
        return Snapshot(self.now, KEYS, commands, self.busy, 1.0, 1, "run", self.threads)


def result(threads: int, calls_per_scan: int, whole_scans: bool) -> tuple[Any, MadeUp]:
    """A calibration of that server."""
    stack: Any = MadeUp(threads, calls_per_scan)
    found = calibrate(stack, SCENARIO, 200_000, 6.0, stack.pause, lambda text: None, whole_scans)
    return found, stack


@pytest.mark.parametrize(
    ("threads", "calls_per_scan", "whole_scans"), [(1, 1, True), (1, 4, False), (2, 4, False)]
)
def test_rate_saturates_the_server_at_the_wanted_keys(
    threads: int, calls_per_scan: int, whole_scans: bool
) -> None:
    """Base load and scans at the found rate keep all of the server's threads busy, neither more nor less."""
    found, stack = result(threads, calls_per_scan, whole_scans)
    busy = BASE + found.events_per_second * 3 * KEYS * COST_S / threads
    assert busy == pytest.approx(1.0, rel=0.001)
    assert found.base_utilisation == pytest.approx(BASE, rel=0.001)
    assert max(stack.rates) * 3 * KEYS * COST_S / threads == pytest.approx(0.5), "measured at half load"


def test_calls_that_return_early_must_not_be_taken_for_whole_scans() -> None:
    """Counting four calls a scan as four scans puts the rate four times too high: what `whole_scans` is there for."""
    right, _ = result(1, 4, whole_scans=False)
    wrong, _ = result(1, 4, whole_scans=True)
    assert wrong.events_per_second == pytest.approx(4 * right.events_per_second, rel=0.01)


def test_server_without_cpu_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not tell its CPU time cannot be calibrated, and a line says so."""
    stack: Any = MadeUp(1, 1)
    stack.store.snapshot = lambda: replace(stack._snapshot(), main_thread_s=None)
    with pytest.raises(Exception, match="does not tell its CPU time"):
        calibrate(stack, SCENARIO, 200_000, 6.0, stack.pause, lambda text: None)
