"""What a condition of a fair experiment is, and which phases are held against it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.results.folder import PhaseRecord, Run
from lab.results.schema import PlannedPhase

NOT_JUDGED = ("fix",)
"""Arms that no claim looks at."""


@dataclass(frozen=True)
class Check:
    """One condition of a fair experiment."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class Terms:
    """What a run is held against: what the lab knows of the scenario, pace and server that the run names.

    `plan`: the phases that the scenario has at the run's pace and for its keys; None where it has no such pace.
    `load_share`: the share of the calibrated rate that is offered; None where nothing is calibrated.
    `entries_per_user`: the cached entries that an event takes away. `may_exempt`: ids of the claims that need not be
    judged, because the server or the stack cannot answer them.
    """

    plan: list[PlannedPhase] | None
    load_share: float | None
    entries_per_user: int
    may_exempt: frozenset[str]


def compared(run: Run) -> list[PhaseRecord]:
    """The phases that claims look at."""
    return [phase for phase in run.phases if phase.arm not in NOT_JUDGED]


def verdict_of(check: str, wrong: list[str], fine: str) -> Check:
    """A check that fails with what is wrong, the first two in words."""
    more = f"; and {len(wrong) - 2} more" if len(wrong) > 2 else ""
    return Check(check, not wrong, "; ".join(wrong[:2]) + more if wrong else fine)
