"""Proofs that the claims of `empty-slowlog` can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.scenarios.empty_slowlog import CONTROL, SCENARIO
from tests.lab.plain import EVENTS_PER_S, Change, Plain, Proofs

CALLS_PER_S, CALL_US = 25_000.0, 32.0
"""SCANs a second, and µs each, of a server that does nothing else; at the fewest keys it finishes EVENTS_PER_S."""


def scanned(plain: Plain, phase_id: str, **figures: float) -> None:
    """Fill in a phase in which the server did nothing but SCAN."""
    phase = plain.phase(phase_id)
    phase.figures |= figures
    calls = CALLS_PER_S * phase.seconds
    phase.commands["SCAN"] = {"calls": calls, "usec": calls * CALL_US}
    phase.utilisation = 0.95


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = Plain(SCENARIO)
    for phase in plain.arm("look"):
        each = 0.25 * phase.keys
        scanned(plain, phase.id, calls_per_event=each, capacity_per_s=CALLS_PER_S / each)
    scanned(plain, "storm", arrived_per_s=EVENTS_PER_S, finished_per_s=0.1 * EVENTS_PER_S)
    plain.p99_ms |= {"storm": 8.0, "cure": 1.0}
    plain.phase("cure").utilisation = 0.05
    return plain


def control() -> Plain:
    """A run that invalidates by index once the rate is known."""
    plain = Plain(CONTROL)
    for i, phase in enumerate(plain.facts.phases):
        plain.p99_ms[phase.id] = 1.1 if i % 2 else 0.9
        phase.utilisation = 0.05
    scanned(plain, "look-1", calls_per_event=3_000.0, capacity_per_s=EVENTS_PER_S)
    return plain


def measured(phase_id: str, **figures: float) -> Callable[[Plain], object]:
    """Change the figures of a phase's events."""
    return lambda plain: plain.phase(phase_id).figures.update(figures)


def record(phase_id: str, **fields: Any) -> Callable[[Plain], object]:
    """Change fields of a phase."""

    def change(plain: Plain) -> None:
        for name, value in fields.items():
            setattr(plain.phase(phase_id), name, value)

    return change


def waits(phase_id: str, ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of a phase."""
    return lambda plain: plain.p99_ms.update({phase_id: ms})


def entries(count: float) -> Callable[[Plain], object]:
    """Set the number of SCANs in the slow log of the storm."""
    return record("storm", slowlog={"SCAN": {"count": count, "max_us": 12_000.0}})


def scans(calls: float, each_us: float) -> Callable[[Plain], object]:
    """Change the SCANs of the storm."""
    return lambda plain: plain.phase("storm").commands.update(SCAN={"calls": calls, "usec": calls * each_us})


def cure(**events: float) -> Callable[[Plain], object]:
    """Change the events under the cure."""
    return lambda plain: plain.phase("cure").events.update(events)


ALLOWED = healthy().phase("storm").seconds * CALLS_PER_S / 100_000
"""Entries of the slow log that the claim allows the storm: one in 100,000 SCANs."""

PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "server-drowns": [
            Change("a third of its time to spare", record("storm", utilisation=0.66)),
            Change("most events get done", measured("storm", finished_per_s=0.7 * EVENTS_PER_S)),
            Change("nobody waits", waits("storm", 1.8)),
        ],
        "slow-log-empty": [
            Change("more slow SCANs than chance puts there", entries(ALLOWED + 1)),
            Change("an idle server", record("storm", utilisation=0.3)),
        ],
        "calls-are-short": [Change("a fiftieth of the threshold", scans(1_000, 200.0))],
        "calls-per-event": [
            Change(
                "few",
                lambda plain: [p.figures.update(calls_per_event=p.keys / 200) for p in plain.arm("look")],
            ),
            Change("the same at all keys", measured("look-3", calls_per_event=0.25 * 25_000)),
            Change("growing much faster than the keys", measured("look-3", calls_per_event=0.35 * 100_000)),
        ],
        "time-goes-to-scan": [Change("most of it elsewhere", scans(100.0, CALL_US))],
        "index-cures": [
            Change("half as busy", record("cure", utilisation=0.48)),
            Change("as long a wait", waits("cure", 4.5)),
            Change("events left undone", cure(finished_per_s=0.7 * EVENTS_PER_S)),
            Change("fewer events", cure(offered_per_s=0.8 * EVENTS_PER_S, finished_per_s=0.8 * EVENTS_PER_S)),
            Change("fewer keys", record("cure", keys=70_000.0)),
        ],
    },
    bearing={
        "server-drowns": [Change("a quarter of its time to spare", record("storm", utilisation=0.75))],
        "slow-log-empty": [Change("a few calls that the machine interrupted", entries(ALLOWED - 1))],
        "calls-are-short": [Change("slow calls, but far from the threshold", scans(1_000, 90.0))],
        "calls-per-event": [
            Change("buckets of another size", measured("look-3", calls_per_event=0.3 * 100_000))
        ],
        "time-goes-to-scan": [Change("another command now and then", scans(100_000.0, CALL_US))],
        "index-cures": [
            Change("deleted faster than refilled", record("cure", keys=82_000.0)),
            Change("some events still under way", cure(finished_per_s=0.85 * EVENTS_PER_S)),
        ],
    },
)
