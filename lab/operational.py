"""Operational analysis: utilisation, demand and the knee (Denning and Buzen, ACM Computing Surveys 10(3), 1978).

Utilisation law: U = X · S, busy share = throughput × service time. The *demand* that arrivals put on the server is
arrival rate × S = U · (arrivals / completions): below saturation it equals U; above, U stays at 1 while the
demand goes on, because completions fall behind arrivals. The knee is where the demand reaches 1.
"""

from __future__ import annotations

import math

from lab import stats
from lab.knee import PATTERNS_PER_EVENT
from lab.runfolder import PhaseRecord, Run

NEAR = (0.4, 1.6)
"""Demands that a line to the knee is drawn through."""


def demand(phase: PhaseRecord, scan_count: int, whole_scans: bool = True) -> float | None:
    """The load on the server's main thread that arrivals ask for, as a share of its capacity; None unknown.

    Work is counted in SCAN calls: an event asks for one iteration per pattern, ⌈keys / COUNT⌉ calls each. Where a call
    may return before COUNT keys were seen (not `whole_scans`) it is counted in finished events.
    """
    if phase.utilisation is None:
        return None
    if not whole_scans:
        offered, finished = phase.events.get("offered_per_s", 0.0), phase.events.get("finished_per_s", 0.0)
        return phase.utilisation * max(1.0, offered / finished) if finished > 0 else None
    served = phase.rate("SCAN")
    if not served:
        return phase.utilisation
    asked = phase.events.get("offered_per_s", 0.0) * PATTERNS_PER_EVENT * math.ceil(phase.keys / scan_count)
    return phase.utilisation * max(1.0, asked / served)


def predicted_knee(run: Run) -> float | None:
    """The key count where the predicted demand reaches 1, from a line through the predictions near it; or None."""
    known = [(p.keys, p.predicted_demand) for p in run.arm("grow") if p.predicted_demand is not None]
    return stats.crossing([k for k, _ in known], [d for _, d in known], 1.0, NEAR)


def knee(run: Run) -> float | None:
    """The key count where the demand reaches 1, from a line through the plateaus near it.

    None if it never does: a crossing more than a tenth beyond the largest plateau was not observed.
    """
    grow = [(p.keys, demand(p, run.facts.scan_count, run.facts.whole_scans)) for p in run.arm("grow")]
    known = [(keys, load) for keys, load in grow if load is not None]
    found = stats.crossing([k for k, _ in known], [d for _, d in known], 1.0, NEAR)
    return found if found is not None and found <= 1.1 * max(keys for keys, _ in known) else None
