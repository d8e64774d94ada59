"""Probe latencies of a run: along the time axis, and phase by phase."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lab.histograms import values_of
from lab.runfolder import PhaseRecord, Run

Values = NDArray[np.float64]
ROUNDING_S = 0.01


@dataclass(frozen=True)
class Interval:
    """What a probe recorded between two moments (unix seconds); latencies in µs."""

    start: float
    end: float
    values: Values


@dataclass(frozen=True)
class Second:
    """p99 (ms) of about one second; None where nothing was recorded."""

    t: float
    p99_ms: float | None
    count: int


class Latencies:
    """All intervals of all probes of a run. A damaged line (an interrupted run's last) is left out."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._path = run.folder / "probe.hlog"
        self._phases: dict[tuple[str, str, str], Values] = {}

    @cached_property
    def _tags(self) -> dict[str, list[Interval]]:
        found: dict[str, list[Interval]] = {}
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except OSError:
            return found
        for line in lines:
            if not line.startswith("Tag="):
                continue
            try:
                tag, start, length, _, encoded = line.split(",")
                interval = Interval(float(start), float(start) + float(length), values_of(encoded))
            except Exception:  # whatever a cut line makes a decoder raise
                continue
            found.setdefault(tag[4:], []).append(interval)
        return found

    def intervals(self, probe: str = "main", kind: str = "intended") -> list[Interval]:
        """All intervals of a probe in the order of time."""
        return self._tags.get(f"{probe}-{kind}", [])

    def phase(self, phase: PhaseRecord, probe: str = "main", kind: str = "intended") -> Values:
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
        for interval in self.intervals(probe):
            if pending and interval.start - pending[-1].end > window_s / 2:
                seconds += [_merge(pending), Second(pending[-1].end + ROUNDING_S, None, 0)]
                pending = []
            pending.append(interval)
            if pending[-1].end - pending[0].start >= window_s - ROUNDING_S:
                seconds.append(_merge(pending))
                pending = []
        return [*seconds, _merge(pending)] if pending else seconds


def _merge(intervals: list[Interval]) -> Second:
    values = np.concatenate([interval.values for interval in intervals])
    middle = (intervals[0].start + intervals[-1].end) / 2
    return Second(middle, float(np.percentile(values, 99)) / 1000 if len(values) else None, len(values))
