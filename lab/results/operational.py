"""Operational analysis: utilisation, demand and the knee (Denning and Buzen, ACM Computing Surveys 10(3), 1978).

Utilisation law: U = X · S, busy share = throughput × service time. The *demand* that arrivals put on the server is
arrival rate × S = U · (arrivals / completions): below saturation it equals U; above, U stays at 1 while the
demand keeps growing, because completions fall behind arrivals. The knee is where the demand reaches 1.

A server that serves others in the middle of a search (Dragonfly) differs in two ways. When many searches are in flight,
all of them are late and few end within a plateau, so completions say nothing about the work done. There the demand is
arrival rate × CPU seconds per event, over all events of the plateau until the last is done. And its thread does not use
a whole core even with a backlog (0.87 of a core was measured on two cores). That share is its capacity, and the demand
is a share of that capacity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lab.results import stats
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.results.knee import PATTERNS_PER_EVENT

NEAR = (0.4, 1.6)
"""The range of demands in which a plateau is near the knee and used to find it."""


TIME_LEFT = 0.9
"""Up to this demand a plateau lies below the knee, and the server has time to spare."""
LEFT_OVER = 0.2
"""A plateau that leaves over more than this share of its events at its end was saturated, whatever its utilisation."""


def capacity(facts: RunFacts) -> float:
    """The largest share of a core that the server's main thread used in plateaus that left events over.

    A demand of 1 is this share. It is a whole core if one SCAN call is one search (`whole_scans`), or if no plateau
    left events over.
    """
    if facts.whole_scans:
        return 1.0
    saturated = [
        phase.utilisation
        for phase in facts.phases
        if phase.utilisation
        and phase.events.get("in_flight_end", 0.0)
        > LEFT_OVER * phase.events.get("offered_per_s", 0.0) * phase.seconds
    ]
    return min(1.0, max(saturated, default=1.0))


def demand(phase: PhaseRecord, facts: RunFacts) -> float | None:
    """The work that arrivals bring to the server's main thread, as a share of its capacity; None if unknown.

    Work is counted in SCAN calls: an event asks for one iteration per pattern, ⌈keys / COUNT⌉ calls each. If a call
    may return before it has visited COUNT keys (not `whole_scans`), work is counted in CPU seconds per event instead;
    where those were not measured, in finished events.
    """
    if phase.utilisation is None:
        return None
    offered = phase.events.get("offered_per_s", 0.0)
    if not facts.whole_scans:
        finished, cost = phase.events.get("finished_per_s", 0.0), phase.events.get("server_s")
        if cost is not None:
            return (facts.calibration.get("base_utilisation", 0.0) + offered * cost) / capacity(facts)
        return phase.utilisation * max(1.0, offered / finished) / capacity(facts) if finished > 0 else None
    served = phase.rate("SCAN")
    if not served:
        return phase.utilisation
    calls = offered * PATTERNS_PER_EVENT * math.ceil(phase.keys / facts.scan_count)
    return phase.utilisation * max(1.0, calls / served)


def predicted_demand(phase: PhaseRecord, facts: RunFacts) -> float | None:
    """The demand predicted from part of the load, as a share of the capacity; None where nothing was predicted."""
    return None if phase.predicted_demand is None else phase.predicted_demand / capacity(facts)


def predicted_knee(run: Run, arm: str) -> float | None:
    """The key count at which the predicted demand reaches 1, from an arm's plateaus near it; None with too few."""
    return _knee(run.arm(arm), run.facts, predicted_demand)


def knee(run: Run, arm: str) -> float | None:
    """The key count at which the demand reaches 1, from an arm's plateaus near it.

    None if it never reaches 1: a knee more than a tenth beyond the largest plateau was not observed.
    """
    found = _knee(run.arm(arm), run.facts, demand)
    largest = max((phase.keys for phase in run.arm(arm)), default=0.0)
    return found if found is not None and found <= 1.1 * largest else None


def _knee(
    plateaus: Sequence[PhaseRecord],
    facts: RunFacts,
    demand_of: Callable[[PhaseRecord, RunFacts], float | None],
) -> float | None:
    loads = [(phase.keys, demand_of(phase, facts)) for phase in plateaus]
    known = [(keys, load) for keys, load in loads if load is not None and keys > 0]
    base = facts.calibration.get("base_utilisation", 0.0) / capacity(facts)
    return stats.saturation([keys for keys, _ in known], [load for _, load in known], base, NEAR)
