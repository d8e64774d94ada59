"""Validity before verdict: was this run a fair experiment? Judged from the run folder alone.

A run that fails a check has no verdict: its figures may come from the machine rather than from the cause. Each
check names the figure that made it fail.
"""

from __future__ import annotations

import math

from lab.claims import planned, shards
from lab.claims.check import Check, Terms, compared
from lab.claims.fairness import (
    LATE_MS,
    OTHERS_MOST,
    STEAL_MOST,
    WAITED,
    WAITED_MOST,
    machine_unfair,
    speed_changed,
    stalled,
)
from lab.results import operational
from lab.results.folder import PhaseRecord, Run

LOAD_WITHIN = 0.05
PROBE_WITHIN = 0.02
FEWEST_EVENTS = 12
LATE_SHARE = 0.25
CLIENT_CPU_MOST = 0.80
CHEAPER_MOST = 0.20
DEARER_MOST = 0.50
"""Bounds on the change of a scanned key's cost since calibration. Cheaper keys move the knee beyond the last plateau,
where it cannot be observed: `key-growth` plans it at 0.85 of the keys and observes it up to 1.1 of them, so keys that
became cheaper by 1 - 0.85 / 1.1 = 23 % end that, and less than that is safe. `shards` plans the knee of three nodes at
0.69 of the keys, and its last plateau must lie a tenth beyond the knee for p99 to climb: 1 - 1.1 x 0.69 = 24 %. Dearer
keys move it down among the plateaus; at twice the cost hardly any lie below it."""
NEAR_KNEE = 0.75
"""Share of the planned knee from which plateaus are compared with calibration. With far fewer keys each is cheaper,
because more of them fit into the processor's caches."""


def validate(run: Run, terms: Terms) -> list[Check]:
    """All checks; the run is valid when all are ok."""
    return [
        _complete(run),
        _delivered(run),
        _equal(run, terms),
        _enough(run),
        _probed(run),
        _on_time(run),
        _quiet(run),
        _spare(run),
        _steady(run, terms),
        *(judge(run) for judge in planned.CHECKS),
        *(judge(run, terms) for judge in planned.CHECKS_BY_TERMS),
    ]


def _complete(run: Run) -> Check:
    done = len(run.phases) > 0 and not run.facts.interrupted
    return Check("the run was completed", done, f"{len(run.phases)} phases measured")


def _delivered(run: Run) -> Check:
    """The load generator sent what was asked for, and nothing failed. One event more or less in a phase is rounding."""
    worst, ok = 0.0, bool(compared(run))
    rates = []
    for phase in compared(run):
        wanted = phase.events["asked_per_s"]
        short = abs(phase.events["offered_per_s"] - wanted)
        if wanted:
            rates.append(wanted)
            worst = max(worst, short / wanted)
        ok = ok and short <= max(LOAD_WITHIN * wanted, 2 / phase.seconds)
    if not rates:
        text = "no events were asked for" if ok else "no events were asked for, and some came"
        return Check("the offered load was delivered", ok, text)
    low, high = f"{min(rates):.1f}", f"{max(rates):.1f}"
    requested = low if low == high else f"{low} to {high}"
    return Check(
        "the offered load was delivered", ok, f"{requested} events/s asked; largest deviation {worst:.1%}"
    )


def _equal(run: Run, terms: Terms) -> Check:
    """In a run that compares a cause with its cure, both got the same load."""
    name = "both sides got the same load"
    if not {terms.rising, terms.cured} <= {phase.arm for phase in run.facts.plan}:
        return Check(name, True, "not asked: no plateaus of a search beside those of an index")
    if not run.arm(terms.rising) or not run.arm(terms.cured):
        return Check(name, False, "one side was not measured")
    tops = run.arm(terms.rising)[-1], run.arm(terms.cured)[-1]
    before, after = (top.events["offered_per_s"] for top in tops)
    slack = max(LOAD_WITHIN * before, 2 / min(top.seconds for top in tops))
    return Check(name, abs(before - after) <= slack, f"{before:.2f} and {after:.2f} events/s at the top")


def _enough(run: Run) -> Check:
    """Each plateau saw enough events for its p99 to mean something."""
    with_events = [phase for phase in compared(run) if phase.events["asked_per_s"]]
    if compared(run) and not with_events:
        return Check("each plateau saw enough events", True, "not asked: there are none")
    fewest = min((phase.events["offered_per_s"] * phase.seconds for phase in with_events), default=0.0)
    return Check(
        "each plateau saw enough events",
        fewest >= FEWEST_EVENTS,
        f"at least {fewest:.0f}, needed {FEWEST_EVENTS}"
        + ("" if fewest >= FEWEST_EVENTS else ": take a longer --pace"),
    )


def _probed(run: Run) -> Check:
    requested = run.facts.load.get("probe_per_second", 0.0)
    errors, largest, ok = 0.0, 0.0, bool(compared(run))
    for phase in compared(run):
        for probe in phase.probes.values():
            errors += probe["errors"]
            off = abs(probe["rate"] - requested)
            largest = max(largest, off / requested if requested else 1.0)
            ok = ok and off <= PROBE_WITHIN * requested + 2 / phase.seconds
    return Check(
        "the probes sent their GETs, and none failed",
        ok and errors == 0,
        f"{requested:g}/s asked; largest deviation {largest:.1%}; {errors:.0f} errors",
    )


def _on_time(run: Run) -> Check:
    """A probe's own lateness must be small against what it measures in the same phase, p99 against p99.

    LATE_MS is allowed in any case: a busy machine's scheduler takes that long now and then. Stalls must not make p99.
    """
    worst, allowed, ok, stall = 0.0, LATE_MS, bool(compared(run)), ""
    for phase in compared(run):
        for name, probe in phase.probes.items():
            late = probe["lag_p99_us"] / 1000
            bound = max(LATE_SHARE * (run.p99_ms(phase, name) or 0.0), LATE_MS)
            ok = ok and late <= bound
            if stalled(probe, phase.seconds):
                ok, stall = (
                    False,
                    f"; in {phase.id} {name} stood still for {1000 * probe['stalled_s']:.0f} ms",
                )
            if late / bound > worst / allowed:
                worst, allowed = late, bound
    return Check(
        "the probes were on time",
        ok,
        f"at worst {worst:.2f} ms late where {allowed:.1f} were allowed{stall}",
    )


def _quiet(run: Run) -> Check:
    """The machine's figures stay within the bounds of `lab.claims.fairness` in every judged phase.

    A mean over the run would hide a plateau that lost half the machine. A machine that reports the waiting in one phase
    reports it in all: a missing figure was removed by hand.
    """
    phases = compared(run)
    waits_known = [name for name in WAITED if any(name in phase.machine for phase in phases)]
    absent = {"steal": math.nan, "others": math.nan} | dict.fromkeys(waits_known, math.inf)
    found = [absent | phase.machine for phase in phases]
    ok = bool(found) and not any(machine_unfair(machine) for machine in found)
    most = {name: max((machine[name] for machine in found), default=0.0) for name in absent}
    steal = f"the hypervisor took {most['steal']:.0%} (at most {STEAL_MOST:.0%})"
    if waits_known == list(WAITED):
        text = (
            f"the server waited for a core {most['waited_store']:.0%} of the time, the probe "
            f"{most['waited_probe']:.0%} (at most {WAITED_MOST:.0%})"
        )
    else:
        text = f"other programs used {most['others']:.0%} of a core beyond the spare ones (at most {OTHERS_MOST:.0%})"
    repeated = len({phase.id for phase in run.facts.discarded})
    return Check(
        "the machine was quiet",
        ok,
        f"in the worst phase {text}, {steal}"
        + (f"; {repeated} of {len(run.phases)} phases had to be measured again" if repeated else ""),
    )


def _spare(run: Run) -> Check:
    busiest, share = "none", 0.0
    for phase in compared(run):
        for name, used in phase.processes.items():
            if name not in ("store", "scene", *run.facts.cpu_bound) and used > share:
                busiest, share = name, used
    return Check(
        "the clients had CPU to spare",
        share <= CLIENT_CPU_MOST,
        f"busiest: {busiest}, {share:.0%} of a core (at most {CLIENT_CPU_MOST:.0%})",
    )


def _steady(run: Run, terms: Terms) -> Check:
    """The knee must not have drifted since it was planned, because the plateaus were laid out around it.

    Judged by the demands themselves, not by the knee they predict: a machine that became fast enough has no knee. On
    the nodes of a cluster the demand is the observed one. There the plateaus of one node and of several are judged
    apart, and against each other, because one moves and not the other.
    """
    planned = run.facts.calibration.get("planned_knee_keys", 0.0)
    laid_out = [
        p
        for p in run.phases
        if planned and p.rate("SCAN") and (p.arm == terms.rising or "shards" in p.params)
    ]
    drifts = {
        nodes: drift
        for nodes in sorted({_nodes(phase) for phase in laid_out})
        if (drift := _drift(run, [p for p in laid_out if _nodes(p) == nodes], nodes * planned)) is not None
    }
    if not drifts:
        return Check(
            "the machine kept its speed", True, "not asked: no plateau was laid out by what a search costs"
        )
    spread = (1 + max(drifts.values())) / (1 + min(drifts.values()))
    text = " and ".join(
        f"{drift:+.0%} on the plateaus" + (f" of {nodes:.0f} nodes" if nodes > 1 else "")
        for nodes, drift in drifts.items()
    )
    return Check(
        "the machine kept its speed",
        all(-CHEAPER_MOST <= drift <= DEARER_MOST for drift in drifts.values())
        and spread <= shards.MOST_DRIFT
        and not any(speed_changed(phase) for phase in laid_out),
        f"a scanned key cost {text} against calibration ({-CHEAPER_MOST:+.0%} to {DEARER_MOST:+.0%} are allowed"
        + (f", and {shards.MOST_DRIFT:g} × between them)" if len(drifts) > 1 else ")")
        + "".join(f"; it changed during {phase.id}" for phase in laid_out if speed_changed(phase)),
    )


def _nodes(phase: PhaseRecord) -> float:
    return phase.params.get("shards", 1.0)


def _lower(phase: PhaseRecord, run: Run) -> float | None:
    """The demand that was predicted on a plateau, or the observed one where that is lower; None without a prediction.

    At part of the load a key costs a little more, so a prediction alone would let a machine pass that became too fast.
    """
    predicted = phase.predicted_demand
    observed = operational.demand(phase, run.facts) if run.facts.whole_scans else None
    return predicted if predicted is None or observed is None else min(predicted, observed)


def _drift(run: Run, plateaus: list[PhaseRecord], planned: float) -> float | None:
    """The demand on the plateaus near the planned knee or beyond, over what was planned, less one; None without any."""
    base = run.facts.calibration.get("base_utilisation", 0.0)
    requested = [
        (p.keys, shards.demand(p, run.facts.scan_count) if "shards" in p.params else _lower(p, run))
        for p in plateaus
        if p.keys >= NEAR_KNEE * planned
    ]
    demands = [(keys, demand) for keys, demand in requested if demand is not None]
    expected = sum(base + (1 - base) * keys / planned for keys, _ in demands)
    return sum(demand for _, demand in demands) / expected - 1 if demands else None


PHASE_CHECKS = (
    _delivered,
    _enough,
    _probed,
    _quiet,
    _spare,
    planned.strategy_in_force,
    planned.events_carried_out,
    planned.nothing_failed,
)
"""Checks whose failure no later phase can repair. They need no latencies, which are written while the run goes on."""


def why_lost(run: Run, latest: PhaseRecord) -> str:
    """Return the reason why a run can no longer get a verdict after its latest phase; empty while it can.

    The text does not reveal the cause.
    """
    if latest.unfair:
        return ", ".join(latest.unfair)
    failed = [
        check.check for check in (judge(run) for judge in PHASE_CHECKS) if compared(run) and not check.ok
    ]
    return f"not fulfilled: {', '.join(failed)}" if failed else ""
