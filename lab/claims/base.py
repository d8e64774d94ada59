"""The type of a claim, and how a run is judged by its claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.results import stats
from lab.results.folder import Latencies, PhaseRecord, Run


class Inapplicable(Exception):
    """The server or the stack cannot answer this question; the text says why."""


@dataclass(frozen=True)
class Result:
    """The result of checking a claim: whether it holds, the measured figure in words, and the figures behind it."""

    holds: bool
    measured: str
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A statement with its bound, and the function that judges a run by it."""

    id: str
    statement: str
    bound: str
    check: Callable[[Run], Result]


@dataclass(frozen=True)
class Outcome:
    """A claim with its result. `holds` is None where the claim is not applicable."""

    claim: Claim
    holds: bool | None
    measured: str
    figures: dict[str, float] = field(default_factory=dict)


def judge(run: Run, claims: Sequence[Claim]) -> list[Outcome]:
    """Judge a run by every claim. A claim does not hold if the run lacks a phase or figure that it needs.

    Nor does it hold if it would have to divide by a figure that is 0, or if one of its figures is not a finite number.
    """
    outcomes = []
    for claim in claims:
        if reason := run.facts.cannot.get(claim.id):
            outcomes.append(Outcome(claim, None, f"not applicable: {reason}"))
            continue
        try:
            outcomes.append(_outcome(claim, claim.check(run)))
        except Inapplicable as reason:
            outcomes.append(Outcome(claim, None, f"not applicable: {reason}"))
        except Refuted as measured:
            outcomes.append(Outcome(claim, False, str(measured)))
        except Missing as missing:
            outcomes.append(Outcome(claim, False, f"not measured: {missing}"))
        except ZeroDivisionError:
            outcomes.append(Outcome(claim, False, "not measured: a figure to compare with is 0"))
    return outcomes


def _outcome(claim: Claim, result: Result) -> Outcome:
    wrong = [name for name, value in result.figures.items() if not math.isfinite(value)]
    if wrong:
        return Outcome(claim, False, f"not measured: {wrong[0]} is no number")
    return Outcome(claim, result.holds, result.measured, result.figures)


class Missing(Exception):
    """The run lacks a measurement that a claim needs."""


class Refuted(Exception):
    """The run shows that a claim does not hold, before its figures can be compared; the text says what was measured."""


def need_phase(run: Run, phase_id: str) -> PhaseRecord:
    """The phase of that id. Raises `Missing` when there is none."""
    phase = run.phase(phase_id)
    if phase is None:
        raise Missing(f"the run has no phase {phase_id!r}")
    return phase


def need_arm(run: Run, arm: str, at_least: int = 1) -> list[PhaseRecord]:
    """The phases of an arm, in order. Raises `Missing` when there are fewer than `at_least`."""
    phases = run.arm(arm)
    if len(phases) < at_least:
        raise Missing(f"{len(phases)} of at least {at_least} phases of {arm!r} were measured")
    return phases


def need_p99(run: Run, phase: PhaseRecord, probe: str = "main") -> float:
    """A phase's p99 in ms from the intended time. Raises `Missing` when the probe recorded nothing."""
    p99 = run.p99_ms(phase, probe)
    if p99 is None:
        raise _silent(probe, phase)
    return p99


def need_latencies(run: Run, phase: PhaseRecord, probe: str = "main") -> list[Latencies]:
    """A probe's latencies in a phase (µs), interval by interval. Raises `Missing` when there are none."""
    parts = run.latencies(phase, probe)
    if not parts:
        raise _silent(probe, phase)
    return parts


def _silent(probe: str, phase: PhaseRecord) -> Missing:
    return Missing(f"probe {probe!r} recorded nothing in phase {phase.id!r}")


def need_typical_p99(run: Run, phase: PhaseRecord, intervals: int = 1) -> float:
    """The median of the main probe's p99s (ms), each over `intervals` consecutive intervals. Raises `Missing`.

    For causes that act all the time. A moment in which the machine itself stood still is then one of many, while it
    would decide the p99 of a short phase.
    """
    parts = need_latencies(run, phase)
    starts = range(0, max(1, len(parts) - intervals + 1), intervals)
    return float(np.median([stats.p99_ms(parts[start : start + intervals]) for start in starts]))


def need_figure(phase: PhaseRecord, name: str) -> float:
    """Return a figure that the phase's loads measured. Raises `Missing` when they did not measure it."""
    if name not in phase.figures:
        raise Missing(f"the loads of {phase.id!r} did not measure {name}")
    return phase.figures[name]


def need_param(phase: PhaseRecord, name: str) -> float:
    """Return a figure that the scenario gave the phase, such as its COUNT. Raises `Missing` when it gave none."""
    if name not in phase.params:
        raise Missing(f"phase {phase.id!r} does not say its {name}")
    return phase.params[name]


def need_utilisation(phase: PhaseRecord) -> float:
    """The busy share of the server's main thread. Raises `Missing` when the server does not report it."""
    if phase.utilisation is None:
        raise Missing("the server does not report its CPU time")
    return phase.utilisation


def elevation(run: Run, rising: str) -> float:
    """Return p99 on the last plateau of an arm as a multiple of p99 on its first."""
    plateaus = need_arm(run, rising, 2)
    return need_p99(run, plateaus[-1]) / need_p99(run, plateaus[0])


SAME_KEYS, SAME_LOAD = 0.05, 0.15


def differ(before: PhaseRecord, after: PhaseRecord, in_keys: bool = True) -> str:
    """Return the reason why two phases cannot be compared, as the end of a sentence; empty if they can.

    `in_keys` is False where the phases store the same entries in a different number of keys.
    """
    if in_keys and abs(before.keys - after.keys) > SAME_KEYS * max(before.keys, after.keys):
        return f", but the key counts differ: {before.keys:,.0f} and {after.keys:,.0f}"
    loads = before.events["offered_per_s"], after.events["offered_per_s"]
    if abs(loads[0] - loads[1]) > SAME_LOAD * max(loads):
        return f", but the loads differ: {loads[0]:.1f} and {loads[1]:.1f} events/s"
    return ""
