"""Claims about searches on a server in cluster mode: what the place of a pattern's hash tag decides, and what not.

The same entries are searched with the tag behind a wildcard (``late``) and before it (``slot``). Each has two phases:
``WAY-cost``, with nothing but the single events of `loadtest.incidents.slots`, and ``WAY-load``, at the same offered
load. In the phases ``shared-N`` another user of the slot has N entries.
"""

from __future__ import annotations

from lab.claims.base import Claim, Finding, differ, need_figure, need_p99, need_phase
from lab.claims.cures import apart
from lab.results.folder import Run
from lab.results.numbers import sig, us

LATE, SLOT = "late", "slot"
COST = "execution_per_event_us"


def _cost(run: Run, phase: str) -> float:
    """Execution time of an event in µs. Raises `Missing` when it was not measured."""
    return need_figure(need_phase(run, phase), COST)


def tag_first_costs_little(times: float) -> Claim:
    """Execution time of an event with the tag behind a wildcard, against the same with the tag before it."""

    def check(run: Run) -> Finding:
        late, slot = _cost(run, f"{LATE}-cost"), _cost(run, f"{SLOT}-cost")
        return Finding(
            late / slot >= times, f"{sig(late / slot)} × ({us(late)} → {us(slot)})", {"ratio": late / slot}
        )

    return Claim(
        "tag-first-costs-little",
        "with the hash tag behind a wildcard, an event costs the server a multiple of what it costs with the tag first",
        f"≥ {times:g} ×",
        check,
    )


def slot_relieves(times: float) -> Claim:
    """p99 of bystanders with the tag behind a wildcard is a multiple of p99 with the tag before it; p90 too."""

    def check(run: Run) -> Finding:
        before, after = need_phase(run, f"{LATE}-load"), need_phase(run, f"{SLOT}-load")
        p99s = need_p99(run, before), need_p99(run, after)
        (ratio, at_p90), differs = apart(run, before, after), differ(before, after)
        return Finding(
            min(ratio, at_p90) >= times and not differs,
            f"{ratio:.1f} × ({p99s[0]:.1f} → {p99s[1]:.2f} ms), at p90 {at_p90:.1f} ×{differs}",
            {"ratio": ratio, "p90_ratio": at_p90},
        )

    return Claim(
        "slot-relieves",
        "at the same keys and load, bystanders' p99 with the tag behind a wildcard is a multiple of that with it first",
        f"≥ {times:g} ×, and as much at p90",
        check,
    )


def shared_slot_costs(times: float, few: int, many: int, growth: float) -> Claim:
    """An event of a user who shares a slot: it costs a multiple, the more the more entries the neighbour has."""

    def check(run: Run) -> Finding:
        alone, some, most = (
            _cost(run, phase) for phase in (f"{SLOT}-cost", f"shared-{few}", f"shared-{many}")
        )
        return Finding(
            most / alone >= times and most / some >= growth,
            f"{us(alone)} alone, {us(some)} beside {few:,} entries, {us(most)} beside {many:,} ({sig(most / alone)} ×)",
            {"ratio": most / alone, "growth": most / some},
        )

    return Claim(
        "shared-slot-costs",
        f"beside a neighbour's {many:,} entries in the same slot, the same event costs a multiple",
        f"≥ {times:g} × alone, ≥ {growth:g} × beside {few:,}",
        check,
    )
