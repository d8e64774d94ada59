"""Correlations: arms in which one quantity was raised step by step, and the quantities that followed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lab.report.quantities import Quantity, quantity
from lab.report.view import RunView
from lab.results.correlation import spearman
from lab.results.folder import PhaseRecord

STEPS = 3
"""An arm with fewer phases makes no row."""
RAISED = 2.0
"""The raised quantity must have grown by this factor at least."""
MOVED = 1.5
"""A quantity that changed by less than this factor is called level: runs of one machine differ by nearly as much."""
IN_ORDER = 0.8
"""A quantity with a weaker rank correlation did not follow the raised one."""
CONTAINERS = ("EXEC",)
"""Commands whose execution time repeats that of the commands in them."""


@dataclass(frozen=True)
class Change:
    """A quantity from the first to the last of some phases, and its rank correlation with the raised quantity."""

    quantity: Quantity
    first: float
    last: float
    rank: float

    @property
    def factor(self) -> float:
        """The last value as a multiple of the first."""
        return self.last / self.first if self.first > 0 else math.inf if self.last > 0 else 1.0

    @property
    def direction(self) -> str:
        """rose, fell or level; empty where it moved in no order."""
        if 1 / MOVED < self.factor < MOVED:
            return "level"
        return "" if abs(self.rank) < IN_ORDER - 1e-9 else "rose" if self.rank > 0 else "fell"


@dataclass(frozen=True)
class Trend:
    """Phases of one arm in which `raised` only grew, and what changed with it."""

    phases: list[PhaseRecord]
    raised: Quantity
    first: float
    last: float
    changes: list[Change]


def rows(view: RunView) -> list[Trend]:
    """Every arm in which something was raised from phase to phase: its keys, or a figure of the scenario's own."""
    found = []
    for arm in dict.fromkeys(phase.arm for phase in view.run.phases):
        phases = view.run.arm(arm)
        names = [f"param:{name}" for name in dict.fromkeys(name for phase in phases for name in phase.params)]
        for raised in map(quantity, [*names, "keys"]):
            values = _values(view, phases, raised)
            if values and _climbs(values):
                changes = _changes(view, phases, values)
                found.append(Trend(phases, raised, values[0], values[-1], changes))
                break
    return found


def busiest(phase: PhaseRecord) -> tuple[str, float] | None:
    """The command that took most of a phase's execution time, and its share of it."""
    spent = {name: used["usec"] for name, used in phase.commands.items() if name not in CONTAINERS}
    whole = sum(spent.values())
    if not whole:
        return None
    name = max(spent, key=lambda each: spent[each])
    return name, spent[name] / whole


def _climbs(values: Sequence[float]) -> bool:
    rising = all(a < b for a, b in pairwise(values))
    return rising and len(values) >= STEPS and values[-1] >= RAISED * values[0]


def _values(view: RunView, phases: Sequence[PhaseRecord], wanted: Quantity) -> list[float]:
    """Return a value for each phase; empty if any phase lacks it."""
    found = [wanted.read(phase, view.latencies) for phase in phases]
    return [value for value in found if isinstance(value, float | int)] if None not in found else []


def _changes(view: RunView, phases: Sequence[PhaseRecord], x: Sequence[float]) -> list[Change]:
    names = ["p99", "utilisation"]
    if (culprit := busiest(phases[-1])) and culprit[0] != "GET":
        names.append(f"exec:{culprit[0]}")
    names.append("exec:GET")
    names += [chart.y for chart in view.charts if chart.y.startswith("figure:")]
    changes = [_change(view, phases, quantity(name), x) for name in dict.fromkeys(names)]
    return [change for change in changes if change]


def _change(
    view: RunView, phases: Sequence[PhaseRecord], wanted: Quantity, x: Sequence[float]
) -> Change | None:
    y = _values(view, phases, wanted)
    return Change(wanted, y[0], y[-1], spearman(x, y)) if y else None
