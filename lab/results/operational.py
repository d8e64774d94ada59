"""Operational analysis: utilisation, demand and the knee (Denning and Buzen, ACM Computing Surveys 10(3), 1978).

Utilisation law: U = X · S, busy share = throughput × service time. The *demand* that arrivals put on the server is
arrival rate × S = U · (arrivals / completions): below saturation it equals U; above, U stays at 1 while the
demand goes on, because completions fall behind arrivals. The knee is where the demand reaches 1.

A server that lets others in between its searches (Dragonfly) differs in two things. With many searches under way all
of them are late and few end within a plateau, so completions say nothing of the work that was done: there the demand
is arrival rate × CPU seconds of an event, over all events of the plateau until the last is done. And its thread does
not come to all of a core even with a backlog (0.87 of one was measured on two cores): that is what it can have, and
the demand is a share of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lab.results import stats
from lab.results.folder import PhaseRecord, Run, RunFacts
from lab.results.knee import PATTERNS_PER_EVENT

NEAR = (0.4, 1.6)
"""Demands from which the knee is told."""


TIME_LEFT = 0.9
"""Demand up to which a plateau lies below the knee with time to spare."""
LEFT_OVER = 0.2
"""A plateau at whose end more than this share of its events is left over was saturated, whatever its utilisation."""


def capacity(facts: RunFacts) -> float:
    """The busy share of a core that the server's main thread comes to when events are left over: its 1.

    Where one SCAN call is one search (`whole_scans`), and where no events were left over, a whole core.
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
    """The load on the server's main thread that arrivals ask for, as a share of its capacity; None unknown.

    Work is counted in SCAN calls: an event asks for one iteration per pattern, ⌈keys / COUNT⌉ calls each. Where a call
    may return before COUNT keys were seen (not `whole_scans`) it is counted in CPU seconds of an event, and where
    these were not measured in finished events.
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
    asked = offered * PATTERNS_PER_EVENT * math.ceil(phase.keys / facts.scan_count)
    return phase.utilisation * max(1.0, asked / served)


def predicted_demand(phase: PhaseRecord, facts: RunFacts) -> float | None:
    """The demand that part of the load predicted, the mean of the looks before and after; None where there was none."""
    return None if phase.predicted_demand is None else phase.predicted_demand / capacity(facts)


def predicted_knee(run: Run) -> float | None:
    """The key count where the predicted demand reaches 1, as the plateaus near it say together; or None."""
    return _knee(run, predicted_demand)


def knee(run: Run) -> float | None:
    """The key count where the demand reaches 1, as the plateaus near it say together.

    None if it never does: a knee more than a tenth beyond the largest plateau was not observed.
    """
    found = _knee(run, demand)
    largest = max((phase.keys for phase in run.arm("grow")), default=0.0)
    return found if found is not None and found <= 1.1 * largest else None


def _knee(run: Run, asked: Callable[[PhaseRecord, RunFacts], float | None]) -> float | None:
    grow = [(phase.keys, asked(phase, run.facts)) for phase in run.arm("grow")]
    known = [(keys, load) for keys, load in grow if load is not None]
    base = run.facts.calibration.get("base_utilisation", 0.0) / capacity(run.facts)
    return stats.saturation([keys for keys, _ in known], [load for _, load in known], base, NEAR)
