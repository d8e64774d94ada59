"""Probe latencies of a run: along the time axis, and phase by phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lab.results.folder import Interval, Latencies, PhaseRecord, Run

ROUNDING_S = 0.01


@dataclass(frozen=True)
class Second:
    """p99 (ms) of about one second; None where nothing was recorded."""

    t: float
    p99_ms: float | None
    count: int


class LatencyView:
    """The latencies that a run's probes recorded: percentiles of phases, and p99 along the time axis."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._phases: dict[tuple[str, str, str], Latencies] = {}

    def phase(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> Latencies:
        """Sorted latencies (µs) of a phase: the very ones that claims are judged by."""
        if (key := (phase.id, probe, kind)) not in self._phases:
            parts = self.run.latencies(phase, probe, kind)
            self._phases[key] = np.sort(np.concatenate(parts)) if parts else np.array([])
        return self._phases[key]

    def p99_ms(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> float | None:
        """p99 of a phase in ms; None where the probe recorded nothing."""
        return self.percentile_ms(phase, 99, probe, kind)

    def percentile_ms(
        self, phase: PhaseRecord, percentile: float, probe: str = "main", kind: str = "intended"
    ) -> float | None:
        """Any percentile of a phase in ms; None where the probe recorded nothing."""
        values = self.phase(phase, probe, kind)
        return float(np.percentile(values, percentile)) / 1000 if len(values) else None

    def seconds(self, probe: str = "main", window_s: float = 1.0) -> list[Second]:
        """p99 over consecutive windows. A hole in the record (no server to probe) is a second without a value."""
        seconds: list[Second] = []
        pending: list[Interval] = []
        ended = float("inf")
        for interval in self.run.recorded(probe):
            if interval.start - ended > window_s / 2:
                seconds += [_merge(pending)] if pending else []
                seconds.append(Second(ended + ROUNDING_S, None, 0))
                pending = []
            pending.append(interval)
            ended = interval.end
            if pending[-1].end - pending[0].start >= window_s - ROUNDING_S:
                seconds.append(_merge(pending))
                pending = []
        return [*seconds, _merge(pending)] if pending else seconds


def _merge(intervals: list[Interval]) -> Second:
    values = np.concatenate([interval.values for interval in intervals])
    middle = (intervals[0].start + intervals[-1].end) / 2
    return Second(middle, float(np.percentile(values, 99)) / 1000 if len(values) else None, len(values))
