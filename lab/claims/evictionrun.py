"""The eviction cycles of a run as the claims read them: their phases, and the bystanders' waits in each.

The phases of a cycle come from memory and evictions alone (`lab.results.cycles`). The waiting comes from the main
probe, a bystander with a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lab.claims.base import Missing, Refuted, need_phase
from lab.results import stats
from lab.results.cycles import Cycle, CycleSample, bursts_at, cycles, read_sample, seconds
from lab.results.folder import Latencies, PhaseRecord, Run

INCIDENT = "cycle"
"""The id of the phase in which the cycles are measured."""
FEWEST = 3
SETTLED_S = 0.25
"""Added to the end of a burst: a slow reply counts in the probe's interval in which it arrives, which may be later."""


def read_samples(run: Run, phase: PhaseRecord) -> list[CycleSample]:
    """The crowd's samples of the server in a phase. Raises `Missing` when there are none, or one cannot be read."""
    try:
        found = [
            sample
            for line in run.loads
            if line["phase"] == phase.id and (sample := read_sample(line)) is not None
        ]
    except ValueError as error:
        raise Missing(f"a sample of the server in phase {phase.id!r} cannot be read: {error}") from None
    if not found:
        raise Missing(f"there is no sample of the server in phase {phase.id!r}")
    return found


@dataclass(frozen=True)
class EvictionRun:
    """The phase with the cycles, taken apart. Latencies are the main probe's, in µs.

    `healthy` and `bursting` are the latencies in whole cycles; None without cycles. `evicting` covers every burst,
    `elsewhere` the rest of the phase.
    """

    samples: list[CycleSample]
    cycles: list[Cycle]
    healthy: Latencies | None
    bursting: Latencies | None
    evicting: Latencies
    elsewhere: Latencies

    @property
    def enough_cycles(self) -> bool:
        """True if there were enough whole cycles for the claims."""
        return len(self.cycles) >= FEWEST

    @property
    def cycles_in_words(self) -> str:
        """The number of whole cycles and of seconds, in words."""
        return f"{len(self.cycles)} whole cycles in {seconds(self.samples):.0f} s"


def pool(parts: Iterable[Latencies]) -> Latencies | None:
    found = list(parts)
    return np.concatenate(found) if found else None


def p99_ms(values: Latencies | None) -> float:
    """p99 of latencies in µs, in milliseconds. Raises `Missing` where there are none."""
    if values is None or not len(values):
        raise Missing("the main probe recorded nothing in a part of the phase")
    return stats.p99_ms([values])


def read_run(run: Run) -> EvictionRun:
    """Read the phase with the cycles. Raises `Missing` when it, its samples or its latencies are missing."""
    phase = need_phase(run, INCIDENT)
    samples = read_samples(run, phase)
    found = cycles(samples)
    began, ended = samples[0].start, samples[-1].t
    intervals = [i for i in run.intervals(phase) if began <= i[0] and i[1] <= ended]
    if not intervals:
        raise Missing("the main probe recorded nothing beside the crowd")
    bursts = [(cycle.burst[0].start, cycle.burst[-1].t + SETTLED_S) for cycle in found]
    all_bursts = [(samples[first].start, samples[last].t + SETTLED_S) for first, last in bursts_at(samples)]
    calm = [(cycle.healthy[0].start, cycle.healthy[-1].t) for cycle in found]

    def touches(start: float, end: float, stretches: list[tuple[float, float]]) -> bool:
        return any(start < last and end > first for first, last in stretches)

    nothing = np.empty(0)
    return EvictionRun(
        samples,
        found,
        pool(v for a, b, v in intervals if any(first <= a and b <= last for first, last in calm)),
        pool(v for a, b, v in intervals if touches(a, b, bursts)),
        np.concatenate([nothing, *(v for a, b, v in intervals if touches(a, b, all_bursts))]),
        np.concatenate([nothing, *(v for a, b, v in intervals if not touches(a, b, all_bursts))]),
    )


def need_cycles(run: Run) -> EvictionRun:
    """The same, for claims that hold of cycles only. Raises `Refuted` when there are too few."""
    found = read_run(run)
    if not found.enough_cycles:
        raise Refuted(found.cycles_in_words)
    return found
