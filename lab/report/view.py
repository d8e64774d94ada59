"""A run as the report looks at it: phases with names for people, sides of the comparison, derived figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lab import scenarios
from lab.claims.fairness import measured_again
from lab.report.latencies import LatencyView
from lab.results import operational, stats
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import number
from lab.scenarios.model import Arms, Chart, Phase, Scenario

PLAIN_ARMS = {
    "alone", "base", "calibration", "cost", "cure", "fix", "load", "look", "restart", "return", "scene",
    "storm", "turns",
}  # fmt: skip
"""Arms whose names do not reveal a cause."""
FIT_BELOW = operational.TIME_LEFT
"""Plateaus with a smaller demand lie below the knee: there, and only there, a line is a fair model of p99."""


@dataclass(frozen=True)
class Band:
    """A stretch of the time axis, in seconds since the run began."""

    start: float
    end: float
    label: str
    number: int


@dataclass(frozen=True)
class Fit:
    """A Theil-Sen line through plateaus: p99 in ms over keys, and the range it was fitted in."""

    slope: float
    intercept: float
    low: float
    high: float

    def at(self, keys: float) -> float:
        """p99 in ms that the line gives."""
        return self.slope * keys + self.intercept


class RunView:
    """Every figure comes from the run folder; whatever a partial run lacks is None or an empty list.

    Charts, tables, symptom and headline are chosen by the scenario, as the lab knows it now. Without `spoilers` phases,
    bands and switches have names that do not reveal the cause.
    """

    def __init__(self, run: Run, spoilers: bool = True) -> None:
        self.run = run
        self.spoilers = spoilers
        self.facts = run.facts
        self.latencies = LatencyView(run)
        self.result: dict[str, Any] | None = run.result()

    @cached_property
    def scenario(self) -> Scenario | None:
        """The scenario that was run, for its charts and its headline; None for one that the lab no longer knows."""
        return scenarios.catalogue().get(self.facts.scenario)

    @cached_property
    def arms(self) -> Arms:
        """The arms in which keys grow, before the fix and after it."""
        return self.scenario.arms if self.scenario else Arms()

    @property
    def charts(self) -> tuple[Chart, ...]:
        """The scenario's own charts."""
        return self.scenario.charts if self.scenario else ()

    @property
    def headline(self) -> dict[str, Any] | None:
        """The scenario's headline claim with its outcome in this run; None if there is none."""
        wanted = self.scenario.headline if self.scenario else ""
        return next((c for c in (self.result or {}).get("claims", []) if c["id"] == wanted), None)

    # --- phases

    @cached_property
    def cause(self) -> str:
        """The strategy before the fix: that of the first plateau planned, or else of the first phase."""
        planned = [phase for phase in self.facts.plan if phase.arm == self.arms.rising] or self.facts.plan
        return planned[0].strategy if planned else ""

    @property
    def control(self) -> bool:
        """True if the run is a control: it lacks the cause."""
        return self.facts.refutes

    @property
    def partial(self) -> bool:
        """True if the run was interrupted, or never judged."""
        return self.facts.interrupted or self.result is None

    @property
    def side_before(self) -> str:
        """The name of the plateaus before the fix."""
        return "index (control)" if self.cause == "index" else self.cause

    @property
    def side_after(self) -> str:
        """The name of the plateaus after the fix."""
        return "index, once more" if self.cause == "index" else "index"

    def side(self, phase: PhaseRecord) -> str:
        """Return the side of the comparison that a phase is on."""
        return self.side_after if phase.arm in (self.arms.cured, "fix") else self.side_before

    @property
    def sides(self) -> list[str]:
        """Both sides, the cause first."""
        return [self.side_before, self.side_after]

    def title(self, phase: PhaseRecord) -> str:
        """The phase's title as it was recorded. Without spoilers: what the scenario shows in its place."""
        planned = self._planned.get(phase.id)
        return phase.title if self.spoilers or planned is None else planned.named(spoilers=False)

    @property
    def count(self) -> int | None:
        """COUNT of the run's SCANs, where it was chosen for the run; None where the scenario has COUNTs of its own."""
        chosen = self.scenario is not None and not self.scenario.scan_count
        return self.run.facts.scan_count if chosen else None

    @property
    def repeated(self) -> list[str]:
        """A sentence on each phase that was measured more than once, or was disturbed."""
        return [
            measured_again(phase, self.run.facts.discarded, self.title(phase))
            for phase in self.run.phases
            if phase.attempt > 1 or phase.unfair
        ]

    @cached_property
    def _planned(self) -> dict[str, Phase]:
        return {phase.id: phase for phase in self.scenario.phases} if self.scenario else {}

    def group(self, phase: PhaseRecord) -> str:
        """Return the name of a phase's arm; without spoilers a number, unless the name reveals nothing."""
        if self.spoilers or phase.arm in PLAIN_ARMS or phase.arm == self.arms.rising:
            return phase.arm
        arms = list(dict.fromkeys(each.arm for each in self.run.phases))
        return f"part {arms.index(phase.arm) + 1}"

    def name(self, phase: PhaseRecord) -> str:
        """The phase's title; where several phases have that title, with its key count, or else with its id."""
        return self._titles[phase.id]

    @cached_property
    def _titles(self) -> dict[str, str]:
        """Phase id → name, see `name`."""
        titles = [self.title(phase) for phase in self.run.phases]
        longer = [
            f"{title}, {phase.keys / 1000:,.0f} k keys"
            for phase, title in zip(self.run.phases, titles, strict=True)
        ]
        return {
            phase.id: title
            if titles.count(title) == 1
            else named
            if longer.count(named) == 1
            else f"{title} ({phase.id})"
            for phase, title, named in zip(self.run.phases, titles, longer, strict=True)
        }

    def p99(self, phase: PhaseRecord | None, probe: str = "main", kind: str = "intended") -> float | None:
        """p99 of a phase in ms."""
        return self.latencies.p99_ms(phase, probe, kind) if phase else None

    def first(self, arm: str) -> PhaseRecord | None:
        """The plateau of an arm with the fewest keys."""
        return min(self.run.arm(arm), key=lambda p: p.keys, default=None)

    def top(self, arm: str) -> PhaseRecord | None:
        """The plateau of an arm with the most keys."""
        return max(self.run.arm(arm), key=lambda p: p.keys, default=None)

    @cached_property
    def worst(self) -> PhaseRecord | None:
        """The phase in which a bystander's p99 was the highest."""
        return max(self._answered, key=lambda p: self.p99(p) or 0.0, default=None)

    @cached_property
    def best(self) -> PhaseRecord | None:
        """The phase in which a bystander's p99 was the lowest."""
        return min(self._answered, key=lambda p: self.p99(p) or 0.0, default=None)

    @property
    def _answered(self) -> list[PhaseRecord]:
        return [phase for phase in self.run.phases if self.p99(phase) is not None]

    @property
    def probes(self) -> list[str]:
        """Probes beside the main one."""
        return [p for p in dict.fromkeys(p for phase in self.run.phases for p in phase.probes) if p != "main"]

    # --- figures

    @cached_property
    def predicted_knee(self) -> float | None:
        """Key count at which part of the load, just before and after each plateau, predicts saturation."""
        return operational.predicted_knee(self.run, self.arms.rising)

    @cached_property
    def observed_knee(self) -> float | None:
        """Key count at which the run's demand reaches the server's capacity."""
        return operational.knee(self.run, self.arms.rising)

    def demand(self, phase: PhaseRecord) -> float | None:
        """Arriving work as a share of the server's capacity."""
        return operational.demand(phase, self.facts)

    @property
    def span(self) -> float:
        """The right end of an axis of keys: all phases, and the knees unless they lie far away."""
        highest = max((phase.keys for phase in self.run.phases), default=1.0)
        knees = [knee for knee in (self.predicted_knee, self.observed_knee) if knee and knee <= 1.5 * highest]
        return max([highest, *knees]) * 1.06

    def below_knee(self, phase: PhaseRecord) -> bool:
        """True if a plateau lies below the knee, where waiting does not yet grow without end."""
        demand = self.demand(phase)
        if demand is not None:
            return demand <= FIT_BELOW
        knee = self.observed_knee or self.predicted_knee
        return knee is None or phase.keys <= FIT_BELOW * knee

    def fit(self, arm: str) -> Fit | None:
        """The line through an arm's plateaus below the knee; None with fewer than three."""
        points = [(p.keys, self.p99(p)) for p in self.run.arm(arm) if self.below_knee(p)]
        known = [(keys, p99) for keys, p99 in points if p99 is not None]
        if len(known) < 3 or len({keys for keys, _ in known}) < 2:
            return None
        keys, p99s = [k for k, _ in known], [p for _, p in known]
        slope, intercept = stats.theil_sen(keys, p99s)
        return Fit(slope, intercept, min(keys), max(keys))

    # --- the time axis

    @cached_property
    def origin(self) -> float:
        """Unix time at the left end of the time axis."""
        times = [t for row in self.run.samples if (t := number(row.get("t"))) is not None]
        times += [interval.start for interval in self.run.recorded()[:1]]
        times += [phase.t0 for phase in self.run.phases[:1]]
        return min(times, default=0.0)

    @cached_property
    def length(self) -> float:
        """Seconds on the time axis."""
        times = [t for row in self.run.samples if (t := number(row.get("t"))) is not None]
        times += [phase.t1 for phase in self.run.phases]
        return max(times, default=self.origin + 1.0) - self.origin or 1.0

    @cached_property
    def bands(self) -> list[Band]:
        """Phases along the time axis; adjacent phases of one arm are one band. Filling belongs to the next phase."""
        bands: list[Band] = []
        one_arm = len({phase.arm for phase in self.run.phases}) == 1
        arm = ""
        at = 0.0
        if self.run.phases:
            began = self._began(self.run.phases[0])
            if began > 0.5:
                bands.append(Band(0.0, began, "calibration", 0))
                at = began
        for phase in self.run.phases:
            end = phase.t1 - self.origin
            label = phase.id if one_arm and self.spoilers else self.group(phase)
            if bands and phase.arm == arm and not one_arm:
                bands[-1] = Band(bands[-1].start, end, bands[-1].label, bands[-1].number)
            else:
                bands.append(Band(at, end, label, len(bands)))
            arm, at = phase.arm, end
        if self.partial and self.length - at > max(2.0, 0.01 * self.length):
            bands.append(Band(at, self.length, "not\nfinished", len(bands)))
        return bands

    def _began(self, phase: PhaseRecord) -> float:
        for row in self.run.samples:
            if row.get("phase") == phase.id and (t := number(row.get("t"))) is not None:
                return min(t, phase.t0) - self.origin
        return phase.t0 - self.origin
