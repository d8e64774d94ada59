"""Proofs that the claims of `scan-count` can fail."""

from __future__ import annotations

from collections.abc import Callable

from lab.scenarios.scan_count import CONTROL, COUNTS, SCENARIO
from tests.lab.plain import PHASE_S, Change, Plain, Proofs

CLIENTS = {"one": 1, "several": 4, "many": 16}
ALONE_PER_S = 600_000.0
RATES = {
    "one-10": 550_000.0,
    "one-100": 360_000.0,
    "several-100": 200_000.0,
    "many-100": 115_000.0,
    "one-1000": 120_000.0,
    "several-1000": 68_000.0,
    "many-1000": 27_000.0,
    "one-10000": 80_000.0,
    "several-10000": 40_000.0,
    "many-10000": 15_000.0,
}
CALL_US = {10: 6.0, 100: 35.0, 1_000: 250.0, 10_000: 2_600.0}
ITERATION_S = {10: 0.9, 100: 0.18, 1_000: 0.07, 10_000: 0.05}
P99_MS = {"many-100": 2.5, "many-1000": 5.0, "many-10000": 50.0, "alone": 1.5, "alone-again": 1.7}


def rate(plain: Plain, phase_id: str, per_s: float) -> None:
    """Set the GETs that the server answered a second in a phase."""
    plain.phase(phase_id).commands["GET"] = {"calls": per_s * PHASE_S, "usec": per_s * PHASE_S}


def takes(plain: Plain, phase_id: str, call_us: float) -> None:
    """Set the server's time for one SCAN in a phase."""
    plain.phase(phase_id).commands["SCAN"] = {"calls": 1_000.0, "usec": 1_000 * call_us}


def laid_out(plain: Plain) -> Plain:
    """Set the clients of each phase of the sweep, and the tool that made the load."""
    for phase in plain.arm("sweep"):
        phase.figures["concurrent"] = CLIENTS[phase.id.partition("-")[0]]
    tool = "bystander load: redis-benchmark 7.0.15, 4 connections, pipeline 16"
    plain.lines.append({"phase": "alone", "load": "bystanders", "note": tool})
    return plain


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = laid_out(Plain(SCENARIO))
    for phase in plain.arm("alone"):
        rate(plain, phase.id, ALONE_PER_S)
    for phase in plain.arm("sweep"):
        count = int(phase.params["count"])
        rate(plain, phase.id, RATES[phase.id])
        takes(plain, phase.id, CALL_US[count])
        clients = phase.figures["concurrent"]
        phase.figures |= {"iteration_s": ITERATION_S[count] * clients, "longest_in_iteration_ms": count / 1e3}
    plain.p99_ms |= P99_MS
    return plain


def control() -> Plain:
    """A run without iterations: rates, times and waits are the same everywhere, up to chance."""
    plain = laid_out(Plain(CONTROL))
    for i, phase in enumerate(plain.facts.phases):
        rate(plain, phase.id, ALONE_PER_S * (1.02 if i % 2 else 0.98))
        plain.p99_ms[phase.id] = 1.5 + 0.1 * (i % 3)
        if phase.arm == "sweep":
            phase.figures |= {"iteration_s": 0.001 * (1 + 0.1 * (i % 2)), "longest_in_iteration_ms": 0.3}
    return plain


def takes_longer(phase_id: str, seconds: float) -> Callable[[Plain], object]:
    """Change the time of a full iteration."""
    return lambda plain: plain.phase(phase_id).figures.update(iteration_s=seconds)


def leaves(phase_id: str, per_s: float) -> Callable[[Plain], object]:
    """Change the rate of GETs in a phase."""
    return lambda plain: rate(plain, phase_id, per_s)


def all_leave(at_once: str, per_s: float) -> Callable[[Plain], object]:
    """Change the rate of GETs beside that many clients, at every COUNT."""

    def change(plain: Plain) -> None:
        for count in COUNTS:
            rate(plain, f"{at_once}-{count}", per_s)

    return change


def stalls(phase_id: str, us: float) -> Callable[[Plain], object]:
    """Change the execution time of SCAN in a phase."""
    return lambda plain: takes(plain, phase_id, us)


def waits(**ms: float) -> Callable[[Plain], object]:
    """Change the probe's p99 of phases (underscores stand for hyphens)."""
    return lambda plain: plain.p99_ms.update({name.replace("_", "-"): value for name, value in ms.items()})


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "iteration-time-falls": [
            Change("COUNT 10 takes hardly longer than 1 000", takes_longer("one-10", 0.3)),
            Change("COUNT 10 000 saves as much again", takes_longer("one-10000", 0.02)),
        ],
        "stall-grows": [
            Change("a call of COUNT 10 000 takes hardly longer", stalls("one-10000", 110.0)),
            Change("a call of COUNT 1 000 takes longer than one of 10 000", stalls("one-1000", 3_000.0)),
        ],
        "throughput-falls": [
            Change("one iteration costs nothing", all_leave("one", ALONE_PER_S)),
            Change("several cost no more than one", all_leave("several", 145_000.0)),
            Change("many cost hardly more than several", all_leave("many", 75_000.0)),
            Change("many of COUNT 100 leave two thirds", leaves("many-100", 400_000.0)),
        ],
        "waits-grow": [
            Change("COUNT 10 000 makes wait hardly longer than 100", waits(many_10000=6.0)),
            Change("without any iteration it waits as long", waits(alone=30.0, alone_again=30.0)),
        ],
    },
    bearing={
        "iteration-time-falls": [
            Change("COUNT 10 takes six times as long", takes_longer("one-10", 0.42)),
            Change("COUNT 10 000 takes longer than 1 000", takes_longer("one-10000", 0.09)),
            Change("COUNT 10 000 takes not much less", takes_longer("one-10000", 0.04)),
        ],
        "stall-grows": [Change("a call of COUNT 10 000 takes 500 µs", stalls("one-10000", 500.0))],
        "throughput-falls": [
            Change("at one COUNT several cost a little less than one", leaves("several-1000", 130_000.0)),
            Change("at one COUNT many cost no more than several", leaves("many-100", 200_000.0)),
            Change("many leave a third less than several", all_leave("many", 55_000.0)),
        ],
        "waits-grow": [
            Change(
                "the machine waits by itself as long as beside COUNT 100", waits(alone=10.0, alone_again=10.0)
            ),
            Change("waits beside many are a fifth", waits(many_10000=10.0)),
        ],
    },
)
