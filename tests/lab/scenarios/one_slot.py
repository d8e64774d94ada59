"""Proofs that the claims of `one-slot` can fail."""

from __future__ import annotations

from collections.abc import Callable

from lab.claims.slots import COST
from lab.scenarios.one_slot import CONTROL, FEW, MANY, SCENARIO
from tests.lab.plain import Change, Plain, Proofs

COST_US = {"late-cost": 60_000.0, "slot-cost": 90.0, f"shared-{FEW}": 900.0, f"shared-{MANY}": 9_000.0}
LATE_P99, SLOT_P99 = 120.0, 2.0


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = Plain(SCENARIO)
    for phase, value in COST_US.items():
        plain.phase(phase).figures[COST] = value
    plain.p99_ms |= {"late-load": LATE_P99, "slot-load": SLOT_P99}
    return plain


def control() -> Plain:
    """A run without slots: every search visits all keys, so the ways cost the same and bystanders wait as long."""
    plain = Plain(CONTROL)
    whole = COST_US["late-cost"]
    for phase, keys in {
        "late-cost": 1.0,
        "slot-cost": 1.02,
        f"shared-{FEW}": 1.1,
        f"shared-{MANY}": 2.0,
    }.items():
        plain.phase(phase).figures[COST] = whole * keys
    plain.p99_ms |= {"late-load": LATE_P99, "slot-load": 0.9 * LATE_P99}
    return plain


def costs(phase: str, value: float) -> Callable[[Plain], object]:
    """Change what an event costs in a phase."""
    return lambda plain: plain.phase(phase).figures.update({COST: value})


def shares(value: float) -> Callable[[Plain], object]:
    """Change what an event costs beside the neighbour, and accordingly beside a tenth of the entries."""

    def change(plain: Plain) -> None:
        costs(f"shared-{MANY}", value)(plain)
        costs(f"shared-{FEW}", value / 5)(plain)

    return change


def waits(phase: str, ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of a phase."""
    return lambda plain: plain.p99_ms.update({phase: ms})


def less_load(plain: Plain) -> None:
    """Let the phase with the tag first be offered fewer events."""
    plain.phase("slot-load").events["offered_per_s"] = 5.0


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "tag-first-costs-little": [
            Change("a search of one slot that is dear", costs("slot-cost", 2_100.0)),
            Change("a search of all that is cheap", costs("late-cost", 2_500.0)),
        ],
        "slot-relieves": [
            Change("bystanders who wait a third as long", waits("slot-load", 40.0)),
            Change("nobody who waits at all", waits("late-load", 4.0)),
            Change("a load that is not the same", less_load),
        ],
        "shared-slot-costs": [
            Change("a neighbour who costs little", costs(f"shared-{MANY}", 1_500.0)),
            Change("a cost that does not follow the entries", costs(f"shared-{FEW}", 4_000.0)),
        ],
    },
    bearing={
        "tag-first-costs-little": [Change("31 times", costs("slot-cost", COST_US["late-cost"] / 31))],
        "slot-relieves": [Change("4.3 times", waits("slot-load", LATE_P99 / 4.3))],
        "shared-slot-costs": [
            Change("21 times", shares(21 * COST_US["slot-cost"])),
            Change("3.1 times the tenth", costs(f"shared-{FEW}", COST_US[f"shared-{MANY}"] / 3.1)),
        ],
    },
)
