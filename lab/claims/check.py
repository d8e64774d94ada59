"""The conditions of a fair experiment: their types, and the phases that they are checked on."""

from __future__ import annotations

from dataclasses import dataclass

from lab.results.folder import PhaseRecord, Run
from lab.results.schema import PlannedPhase

NOT_JUDGED = ("fix",)
"""Arms that no claim looks at."""


@dataclass(frozen=True)
class Check:
    """A condition of a fair experiment, and whether the run fulfils it."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Terms:
    """The terms that a run is checked against: today's plan of the scenario at the pace and on the server it names.

    `plan`: the scenario's phases at the run's pace and for its keys; None where it has no such pace. `load_share`: the
    offered share of the calibrated rate; None where nothing is calibrated, and `events_per_second` are offered instead.
    `entries_per_user`: the cached entries that one event invalidates. `rising`, `cured`: the arms in which keys grow
    under the cause and after the fix; '' for none.
    """

    plan: list[PlannedPhase] | None
    load_share: float | None
    events_per_second: float
    entries_per_user: int
    rising: str = ""
    cured: str = ""


def compared(run: Run) -> list[PhaseRecord]:
    """The phases that claims look at."""
    return [phase for phase in run.phases if phase.arm not in NOT_JUDGED]


def verdict_of(check: str, wrong: list[str], fine: str) -> Check:
    """A check that fails if anything is `wrong`; its detail then gives the first two problems and counts the others."""
    more = f"; and {len(wrong) - 2} more" if len(wrong) > 2 else ""
    return Check(check, not wrong, "; ".join(wrong[:2]) + more if wrong else fine)
