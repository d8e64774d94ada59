"""Judges whether a phase was measured fairly: right after it, by what the machine did and never by the results.

An unfair phase is measured again at once, and the first fair attempt counts. This selects no results as long as the
conditions use nothing that the server's answers, and so a claim, could influence. They use the hypervisor's share, how
long server and probes waited for a core (where that is not known, what other programs used), how late the probes were
*sending*, and how many events the load generator started. Latencies, errors and refused requests are outcomes, and are
not used. (Judged per phase, because a mean over a run hides a minute in which another program had half the machine.)
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.results.folder import PhaseRecord

STEAL_MOST = 0.10
OTHERS_MOST = 0.35
"""The largest shares of a core that the hypervisor, and programs other than the run's, may take in a phase."""
LATE_MS = 20.0
"""The largest p99 of a probe's own lateness: a scheduler takes that long now and then, even on a quiet machine."""
STALL_S = 0.020
"""A single delay of a probe of this length or more is a stall: the whole machine stood still, not only the probe."""
STALLED_MOST = 0.005
"""Share of a phase that may be lost in stalls. p99 leaves out one request in a hundred, and after a stall the server,
which stood still as well, takes time to catch up. With more than half of that hundredth lost, p99 shows only stalls."""
DUE_WITHIN = 0.05
"""Share of the events that may be late or missing because the load generator got no processor."""
SPEED_WITHIN = 1.5
"""By how many times the demand that is predicted just after a phase may differ from that just before it: both are for
the same keys and events, so with more the machine changed its speed meanwhile."""
SPEED_SEEN = 0.25
"""The least demand that shows the machine's speed. Where nothing is searched it is little more than the base load."""
WAITED_MOST = 0.10
"""Share of a phase in which the server's thread, or a probe's, may be ready to run and have no core: as much as a
hypervisor may take. Linux reports it for processes."""
MEASURED = {"store": "the server", "probe": "the probe"}
"""The parts that a bystander's latency is made of: as the machine's figures name them, and for people."""
WAITED = {
    f"waited_{name}": f"{whom} waited for a core {{:.0%}} of the time" for name, whom in MEASURED.items()
}
BOUNDS = {
    "steal": (STEAL_MOST, "the hypervisor took {:.0%} of a core"),
    "others": (OTHERS_MOST, "other programs used {:.0%} of a core"),
    **{name: (WAITED_MOST, clause) for name, clause in WAITED.items()},
}
"""Figure of the machine → the largest that is fair, and the clause about a larger one."""
TIMES = {2: "twice"}


def why_unfair(phase: PhaseRecord) -> list[str]:
    """Return the reasons why a phase was not measured fairly, a clause with its figure each; empty if it was fair."""
    clauses = machine_unfair(phase.machine)
    for name, probe in phase.probes.items():
        late = probe["lag_p99_us"] / 1000
        if late > LATE_MS:
            clauses.append(f"probe {name} sent {late:.0f} ms late")
        elif stalled(probe, phase.seconds):
            clauses.append(f"the machine stood still for {1000 * probe['stalled_s']:.0f} ms")
    if speed_changed(phase):
        first, last = (f"{demand:.0%}" for demand in (phase.forecasts[0], phase.forecasts[-1]))
        clauses.append(
            f"the machine changed its speed: the same load would have taken {first}, and then {last}"
        )
    requested, due = phase.events.get("asked_per_s", 0.0), phase.events.get("due_per_s")
    if due is not None and requested - due > max(DUE_WITHIN * requested, 2 / phase.seconds):
        clauses.append(f"the load generator reached {due:.1f} of {requested:.1f} events a second")
    return clauses


def speed_changed(phase: PhaseRecord) -> bool:
    """True if the demands that were predicted before and after a phase differ by more than `SPEED_WITHIN` times."""
    most, least = max(phase.forecasts, default=0.0), min(phase.forecasts, default=0.0)
    return most >= SPEED_SEEN and most > SPEED_WITHIN * least


def stalled(probe: dict[str, float], seconds: float) -> bool:
    """True if stalls made the p99 of a phase of that length. (Runs before November 2026 did not record stalls.)"""
    return probe.get("stalled_s", 0.0) > STALLED_MOST * seconds


def judged(machine: Mapping[str, float]) -> list[str]:
    """Return the figures by which a machine is judged. Other programs' use counts only if no waiting is known."""
    waited = [name for name in WAITED if name in machine]
    return ["steal", *(() if waited == list(WAITED) else ("others",)), *waited]


def machine_unfair(machine: Mapping[str, float], times: float = 1.0) -> list[str]:
    """Return a clause for each figure that exceeds `times` its bound."""
    return [
        BOUNDS[name][1].format(machine.get(name, 0.0))
        for name in judged(machine)
        if not machine.get(name, 0.0) <= times * BOUNDS[name][0]
    ]


def measured_again(record: PhaseRecord, discarded: list[PhaseRecord], name: str = "") -> str:
    """Return in words what disturbed a phase, how often it was measured, and which attempt counts.

    `discarded`: attempts of all phases. `name`: the phase's name for people, by default its id.
    """
    before = [attempt for attempt in discarded if attempt.id == record.id]
    if not before:
        return f"{name or record.id} was disturbed: {', '.join(record.unfair)}. It was not measured again."
    count = len(before) + 1
    why = "; ".join(", ".join(attempt.unfair) for attempt in before)
    last_try = f"; and the last time {', '.join(record.unfair)}" if record.unfair else ""
    counts = (
        "No attempt was fair, so the last one counts" if record.unfair else "The first fair attempt counts"
    )
    return (
        f"{name or record.id} was measured {TIMES.get(count, f'{count} times')}: {why}{last_try}. {counts}; the others "
        "are in run.json."
    )
