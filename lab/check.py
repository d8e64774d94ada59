"""What a condition of a fair experiment is, and which phases are held against it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.runfolder import PhaseRecord, Run

NOT_JUDGED = ("fix",)
"""Arms that no claim looks at."""


@dataclass(frozen=True)
class Check:
    """One condition of a fair experiment."""

    check: str
    ok: bool
    detail: str


def compared(run: Run) -> list[PhaseRecord]:
    """The phases that claims look at."""
    return [phase for phase in run.phases if phase.arm not in NOT_JUDGED]


def verdict_of(check: str, wrong: list[str], fine: str) -> Check:
    """A check that fails with what is wrong, the first two in words."""
    more = f"; and {len(wrong) - 2} more" if len(wrong) > 2 else ""
    return Check(check, not wrong, "; ".join(wrong[:2]) + more if wrong else fine)
