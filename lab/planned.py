"""Was measured what was planned? A run folder is held against its scenario: phases, keys, strategy, events, latencies.

The plan is the scenario's, at the pace and for the keys that the run names, so nothing has to be believed of the run
itself but what was measured. What has no figure, or one that is no number, fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from lab import scenarios
from lab.check import Check, compared, verdict_of
from lab.runfolder import Latencies, PhaseRecord, Run
from lab.scenario import Pace, Phase, Scenario
from lab.servers import SERVERS

SHORTEST = 0.9
"""Of the planned length; longer is what counting to the end of the last request takes."""
KEYS_WITHIN, KEYS_BESIDE = 0.10, 500
"""Index sets are one key to twenty entries; beside them are the probes' own keys."""
SHARED = ("scan", "keys", "exact", "index", "index-naive", "ttl")
"""Strategies whose entries are a key each, and may be counted."""
DONE_WITHIN, DONE_SLACK = 0.10, 3
HAS_TIME, HAS_TIME_TO_SEARCH = 0.8, 0.5
"""Where the server is busy for less than that, as many events are finished as come, but for a few under way. A server
that searches has many of them under way, and may not get more of the processors than that."""
ASKS_FOR: dict[str, tuple[str, float]] = {
    "scan": ("SCAN", 3),
    "keys": ("KEYS", 3),
    "exact": ("UNLINK", 1),
    "index": ("SSCAN", 1),
    "index-naive": ("SMEMBERS", 1),
    "hash": ("UNLINK", 1),
    "generation": ("INCRBY", 1),
}
"""The command by which each strategy is known on the server, and how many an event takes at least."""
SEARCHES = {"SCAN": "scan", "KEYS": "keys"}
CALIBRATED_WITHIN = 0.01
GAP_S = 0.05
"""A probe's lines follow one another without a gap; this much is rounding."""
PARTS = ("store", "web", "invalidator", "locust", "probe")
"""Processes by how their names begin: probes are one process each natively, and one container on compose."""
NO_REPLICA = ("replica-unharmed",)
NOT_OURS = ("restart-restores", "victims-not-slow")
"""Claims that a stack, not a server, may be unable to answer: without a replica, and on somebody's own server."""


@dataclass(frozen=True)
class Plan:
    """What a run was to do."""

    scenario: Scenario
    pace: Pace
    keys: int

    @property
    def phases(self) -> dict[str, Phase]:
        """By id, in order."""
        return {phase.id: phase for phase in self.scenario.phases}

    def seconds(self, phase: Phase) -> float:
        """The least that a phase lasts; 0 where its loads end it."""
        ends = any(load.ends for load in phase.loads)
        return 0.0 if ends else SHORTEST * self.pace.plateau_s * phase.weight


def plan_of(run: Run) -> Plan | None:
    """The plan of a run; None where its scenario has no such pace."""
    scenario = scenarios.find(run.facts.scenario)
    pace = scenario.paces.get(run.facts.pace)
    if pace is None:
        return None
    return Plan(replace(scenario, **pace.changes), pace, run.facts.keys)  # type: ignore[arg-type] # names of fields


def _both(run: Run) -> Iterator[tuple[PhaseRecord, Phase]]:
    """Each measured phase that claims look at, with what was planned."""
    plan = plan_of(run)
    planned = plan.phases if plan else {}
    return ((record, planned[record.id]) for record in compared(run) if record.id in planned)


def phases_as_planned(run: Run) -> Check:
    """Every phase of the plan once, in order, none beside another, none cut short."""
    name = "every phase was measured as planned"
    plan = plan_of(run)
    if plan is None:
        return Check(name, False, f"{run.facts.scenario} has no pace {run.facts.pace!r}")
    wanted, seen = list(plan.phases), [phase.id for phase in run.phases]
    wrong = [f"{missing} was not measured" for missing in wanted if missing not in seen]
    wrong += [f"{one} was measured though it was not planned" for one in seen if one not in wanted]
    wrong += [f"{one} is there {seen.count(one)} times" for one in dict.fromkeys(seen) if seen.count(one) > 1]
    if not wrong and seen != wanted:
        wrong.append("the phases are in another order")
    wrong += [
        f"{after.id} began before {before.id} was over"
        for before, after in pairwise(run.phases)
        if after.t0 < before.t1
    ]
    wrong += [
        f"{phase.id} took {phase.seconds:.1f} s, and {plan.seconds(plan.phases[phase.id]):.1f} were planned"
        for phase in run.phases
        if phase.id in plan.phases and not phase.seconds > plan.seconds(plan.phases[phase.id])
    ]
    wrong += [
        f"{phase.id} was to be {plan.phases[phase.id].strategy}, and is called {phase.strategy}"
        for phase in run.phases
        if phase.id in plan.phases and phase.strategy != plan.phases[phase.id].strategy
    ]
    wrong += [
        f"{record.id} was planned with {phase.params}, and says {record.params}"
        for record, phase in _both(run)
        if record.params != phase.params
    ]
    return verdict_of(name, wrong, f"{len(seen)} phases, in order")


def keys_as_planned(run: Run) -> Check:
    """At each plateau, few after a restart included. An event takes a user's entries away until they are read again."""
    wrong, farthest = [], 0.0
    each = scenarios.find(run.facts.scenario).fragments_per_user
    for record, phase in _both(run):
        wanted = phase.keys * run.facts.keys
        if not wanted or phase.loads or phase.strategy not in SHARED:
            continue
        gone = record.events.get("finished_per_s", 0.0) * record.seconds * each
        slack = KEYS_WITHIN * wanted + KEYS_BESIDE
        farthest = max(farthest, abs(record.keys / wanted - 1))
        if not -slack - gone <= record.keys - wanted <= slack:
            wrong.append(f"{record.id} had {record.keys:,.0f} keys where {wanted:,.0f} were planned")
    return verdict_of("the server held the keys that were planned", wrong, f"farthest from it {farthest:.0%}")


def strategy_in_force(run: Run) -> Check:
    """By the commands that the server counted, and not by what was asked for."""
    wrong, looked = [], 0
    for record, phase in _both(run):
        done = record.events.get("finished_per_s", 0.0) * record.seconds
        calls = {name: counters.get("calls", 0.0) for name, counters in record.commands.items()}
        if phase.strategy in ASKS_FOR and done >= 1:
            looked += 1
            command, least = ASKS_FOR[phase.strategy]
            if not calls.get(command, 0.0) >= least * done / 2:
                wrong.append(
                    f"{record.id} finished {done:.0f} events by {phase.strategy}, and the server saw "
                    f"{calls.get(command, 0.0):.0f} {command}"
                )
        if not phase.loads:
            wrong += [
                f"{record.id} is {phase.strategy}, and the server saw {calls[command]:.0f} {command}"
                for command, strategy in SEARCHES.items()
                if strategy != phase.strategy and calls.get(command)
            ]
    return verdict_of(
        "the planned strategy was in force", wrong, f"the server's own counters say so, in {looked} phases"
    )


def events_carried_out(run: Run) -> Check:
    """Wherever the server has time: a cure that invalidates nothing would be the best of all."""
    wrong, least = [], 1.0
    for record, _ in _both(run):
        offered = record.events.get("offered_per_s", math.nan)
        done = record.events.get("finished_per_s", math.nan)
        busy = record.utilisation
        most = HAS_TIME_TO_SEARCH if record.strategy in SEARCHES.values() else HAS_TIME
        if offered == 0 or busy is None or busy >= most:
            continue
        least = min(least, done / offered)
        if not done >= (1 - DONE_WITHIN) * offered - DONE_SLACK / record.seconds:
            wrong.append(f"{record.id} finished {done:.1f} of {offered:.1f} events a second")
    return verdict_of(
        "accepted events were carried out", wrong, f"at least {least:.0%} while the server had time"
    )


def nothing_failed(run: Run) -> Check:
    """No read and no event."""
    wrong = [
        f"{record.events.get('failures', math.nan):.0f} requests failed in {record.id}"
        for record in compared(run)
        if record.events.get("failures", math.nan) != 0
    ]
    return verdict_of("no request failed", wrong, "no read and no event")


def load_as_calibrated(run: Run) -> Check:
    """What the phases were to be offered is what calibration found, and not nothing."""
    name = "the load was the calibrated one"
    plan, load = plan_of(run), run.facts.load.get("events_per_second", math.nan)
    if plan is None or plan.scenario.knee_at is None:
        return Check(name, True, "not asked: nothing is calibrated")
    found = run.facts.calibration.get("events_per_second", math.nan) * plan.scenario.load_share
    return Check(
        name,
        load > 0 and abs(load - found) <= CALIBRATED_WITHIN * found,
        f"calibration found {found:.2f} events a second, {load:.2f} were offered",
    )


def figures_complete(run: Run) -> Check:
    """Each phase has the machine's figures, those of all processes, and a probe's counts for each of its probes."""
    wrong = []
    for record, phase in _both(run):
        wrong += [
            f"{record.id} lacks {name} of the machine"
            for name in ("steal", "others")
            if name not in record.machine
        ]
        wrong += [
            f"{record.id} lacks the CPU time of {name}"
            for name in PARTS
            if not any(process.startswith(name) for process in record.processes)
        ]
        probes = ["main", *(spec.name for spec in phase.probes if not spec.replica)]
        wrong += [f"{record.id} lacks probe {name}" for name in probes if name not in record.probes]
    return verdict_of("every figure is there", wrong, "machine, processes and probes, in each phase")


def nothing_exempted(run: Run) -> Check:
    """Neither a process from having CPU to spare, nor a claim from being judged, but for a reason that is known."""
    wrong = [
        f"{name} may not take what CPU it gets: it is no load of the scenario's"
        for name in run.facts.greedy
        if not name.startswith("load-")
    ]
    wrong += [
        f"nothing exempts {claim}: {run.facts.server or 'this server'} can answer it"
        for claim in run.facts.cannot
        if claim not in _exempt(run)
    ]
    return verdict_of(
        "nothing was exempted without a reason", wrong, f"{len(run.facts.cannot)} claims, with a reason"
    )


def _exempt(run: Run) -> set[str]:
    """Claims that this run need not answer."""
    server = SERVERS.get(run.facts.server)
    not_ours = NOT_OURS if "--url" in run.facts.command else ()
    return {*(server.cannot if server else ()), *NO_REPLICA, *not_ours}


def latencies_complete(run: Run) -> Check:
    """The histograms hold what the probes counted: as many replies, in intervals that tile the phase."""
    wrong = [f"{run.unreadable} lines of probe.hlog cannot be read"] if run.unreadable else []
    replies = 0
    for record, _ in _both(run):
        for probe, counts in record.probes.items():
            received = counts.get("received", math.nan)
            for kind in ("intended", "service"):
                found = run.tiles(record, probe, kind)
                held = sum(len(values) for _, _, values in found)
                replies += held if kind == "intended" else 0
                if held != received:
                    wrong.append(
                        f"{record.id}: probe {probe} counted {received:.0f} replies, {held} are in probe.hlog"
                    )
                elif (gap := _gap(found, record)) > GAP_S:
                    wrong.append(
                        f"{record.id}: {gap:.2f} s of probe {probe} are missing from probe.hlog, or there twice"
                    )
            if not received > 0:
                wrong.append(f"{record.id}: probe {probe} had no reply at all")
    return verdict_of("the latencies are complete", wrong, f"{replies:,} replies, each once")


def loads_once(run: Run) -> Check:
    """What a load says with a time is said once, and in order; every phase with loads has figures of them."""
    wrong = []
    last: dict[tuple[str, str], float] = {}
    for line in run.loads:
        moment, whose = line.get("t"), (line["phase"], line["load"])
        if isinstance(moment, (int, float)):
            if moment <= last.get(whose, -math.inf):
                wrong.append(f"{whose[0]}: load {whose[1]} said the same twice, or went back in time")
            last[whose] = moment
    wrong += [
        f"{record.id} has no figures of its loads"
        for record, phase in _both(run)
        if phase.loads and not record.figures
    ]
    return verdict_of("what the loads said is whole", list(dict.fromkeys(wrong)), f"{len(run.loads)} lines")


def _gap(tiles: list[tuple[float, float, Latencies]], record: PhaseRecord) -> float:
    """Seconds that intervals leave out or have twice, at the worst place."""
    if not tiles:
        return record.seconds
    length = max(end - start for start, end, _ in tiles)
    inner = max((abs(after[0] - before[1]) for before, after in pairwise(tiles)), default=0.0)
    edges = max(tiles[0][0] - record.t0, record.t1 - tiles[-1][1]) - length
    return max(inner, edges)


CHECKS = (
    phases_as_planned,
    keys_as_planned,
    strategy_in_force,
    events_carried_out,
    nothing_failed,
    load_as_calibrated,
    figures_complete,
    nothing_exempted,
    latencies_complete,
    loads_once,
)
