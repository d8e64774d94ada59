"""Claims about searches on a server in cluster mode: the effect of the place of a pattern's hash tag.

The same entries are searched with the tag behind a wildcard (``late``) and before it (``slot``). Each has two phases:
``late-cost`` with nothing but the single events of `loadtest.incidents.slots`, and ``late-load`` at the same offered
load (``slot-cost`` and ``slot-load`` likewise). In the phases ``shared-N`` another user of the slot has N entries.
"""

from __future__ import annotations

from lab.claims.base import Claim, Result, need_figure, need_phase
from lab.claims.cures import RELIEF
from lab.claims.ratio import at_least, waits_longer
from lab.claims.texts import worded
from lab.results.folder import Run
from lab.results.numbers import sig, us

LATE, SLOT = "late", "slot"
COST = "execution_per_event_us"


def _cost(run: Run, phase: str) -> float:
    """Execution time of an event in µs. Raises `Missing` when it was not measured."""
    return need_figure(need_phase(run, phase), COST)


def tag_first_costs_little(times: float) -> Claim:
    """Execution time of an event with the tag behind a wildcard, against the same with the tag before it."""
    return at_least(
        "tag-first-costs-little",
        times,
        lambda run: (_cost(run, f"{LATE}-cost"), _cost(run, f"{SLOT}-cost")),
        lambda late, slot: f"{sig(late / slot)} × ({us(late)} → {us(slot)})",
    )


def slot_relieves(times: float) -> Claim:
    """p99 of bystanders with the tag behind a wildcard is a multiple of p99 with the tag before it; p90 too."""
    return waits_longer(
        "slot-relieves",
        times,
        lambda run: (need_phase(run, f"{LATE}-load"), need_phase(run, f"{SLOT}-load")),
        RELIEF,
        in_keys=True,
    )


def shared_slot_costs(times: float, few: int, many: int, growth: float) -> Claim:
    """An event of a user who shares a slot: it costs a multiple, which grows with the neighbour's entries."""

    def check(run: Run) -> Result:
        alone, some, most = (
            _cost(run, phase) for phase in (f"{SLOT}-cost", f"shared-{few}", f"shared-{many}")
        )
        return Result(
            most / alone >= times and most / some >= growth,
            f"{us(alone)} alone, {us(some)} beside {few:,} entries, {us(most)} beside {many:,} ({sig(most / alone)} ×)",
            {"ratio": most / alone, "growth": most / some},
        )

    return worded("shared-slot-costs", check, many=many, times=times, growth=growth, few=few)
