"""Was measured what was planned? A run folder is held against its plan: phases, keys, strategy, events, latencies.

The plan stands in run.json, written before anything was measured. It must be the scenario's own at the pace and for the
keys that the run names, so a plan that was altered afterwards, or that an earlier version of the scenario made, is told
apart. What has no figure, or one that is no number, fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

from lab.claims.check import Check, Terms, compared, verdict_of
from lab.results.folder import Interval, PhaseRecord, Run
from lab.results.schema import PlannedPhase

SHORTEST = 0.9
"""Of the planned length; longer is what counting to the end of the last request takes."""
KEYS_WITHIN, KEYS_BESIDE = 0.10, 500
"""Index sets are one key to twenty entries; beside them are the probes' own keys."""
KEYS_A_READ = 2
"""What a read of a user who was not warmed brings at most: an entry, and the set that indexes that user's."""
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


def _both(run: Run) -> Iterator[tuple[PhaseRecord, PlannedPhase]]:
    """Each measured phase that claims look at, with what was planned."""
    planned = {phase.id: phase for phase in run.facts.plan}
    return ((record, planned[record.id]) for record in compared(run) if record.id in planned)


def plan_is_the_scenarios(run: Run, terms: Terms) -> Check:
    """Nothing was left out of the plan, added to it or changed in it since the scenario made it."""
    name = "the plan is the scenario's"
    wanted, kept = terms.plan, run.facts.plan
    if wanted is None:
        return Check(name, False, f"{run.facts.scenario} has no pace {run.facts.pace!r}")
    if [phase.id for phase in wanted] != [phase.id for phase in kept]:
        wrong = [f"the scenario has the phases {', '.join(phase.id for phase in wanted)}"]
    else:
        wrong = [
            f"{has.id} is planned with {field} {value}, and the scenario has {asdict(should)[field]}"
            for has, should in zip(kept, wanted, strict=True)
            for field, value in asdict(has).items()
            if value != asdict(should)[field]
        ]
    return verdict_of(name, wrong, f"{len(kept)} phases at the pace {run.facts.pace}")


def phases_as_planned(run: Run) -> Check:
    """Every phase of the plan once, in order, none beside another, none cut short."""
    name = "every phase was measured as planned"
    plan = {phase.id: phase for phase in run.facts.plan}
    wanted, seen = [phase.id for phase in run.facts.plan], [phase.id for phase in run.phases]
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
        f"{phase.id} took {phase.seconds:.1f} s, and {plan[phase.id].seconds:.1f} were planned"
        for phase in run.phases
        if phase.id in plan and not phase.seconds > SHORTEST * plan[phase.id].seconds
    ]
    wrong += [
        f"{phase.id} was to be {plan[phase.id].strategy}, and is called {phase.strategy}"
        for phase in run.phases
        if phase.id in plan and phase.strategy != plan[phase.id].strategy
    ]
    wrong += [
        f"{record.id} was planned with {phase.params}, and says {record.params}"
        for record, phase in _both(run)
        if record.params != phase.params
    ]
    return verdict_of(name, wrong, f"{len(seen)} phases, in order")


def keys_are_judged(keys: float, strategy: str, loads: bool) -> bool:
    """Whether a phase is held to its number of keys: those of other layouts and of loads are not the storefront's."""
    return keys > 0 and not loads and strategy in SHARED


def keys_beside(wanted: float) -> float:
    """How many keys more or fewer a phase may have."""
    return KEYS_WITHIN * wanted + KEYS_BESIDE


def keys_as_planned(run: Run, terms: Terms) -> Check:
    """At each plateau, few after a restart included. An event takes a user's entries away until they are read again.

    Reads of users who were not warmed bring keys beside the planned ones: the more, the longer a plateau lasts until it
    has seen enough events.
    """
    wrong, farthest = [], 0.0
    since, before = math.nan, math.inf
    for record, phase in _both(run):
        wanted = phase.keys
        if wanted < before or not before:  # emptied, or the first
            since = record.t0
        before = wanted
        if not keys_are_judged(phase.keys, phase.strategy, bool(phase.loads)):
            continue
        gone = record.events.get("finished_per_s", 0.0) * record.seconds * terms.entries_per_user
        cold = max(0.0, 1 - wanted / run.facts.keys)
        slack = keys_beside(wanted)
        come = KEYS_A_READ * run.facts.load.get("reads_per_second", 0.0) * (record.t1 - since) * cold
        farthest = max(farthest, abs(record.keys / wanted - 1))
        if not -slack - gone <= record.keys - wanted <= slack + come:
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


def load_as_planned(run: Run) -> Check:
    """Each phase was asked for its share of the run's events, or for the multiple of an earlier phase's figure."""
    wrong, looked = [], 0
    load = run.facts.load.get("events_per_second", math.nan)
    figures = {record.id: record.figures for record in run.phases}
    for record, phase in _both(run):
        base = _figure(figures, phase.events_from) if phase.events_from else load
        wanted, asked = base * phase.events, record.events.get("asked_per_s", math.nan)
        looked += 1
        if not abs(asked - wanted) <= CALIBRATED_WITHIN * wanted:
            wrong.append(f"{record.id} was asked for {asked:.2f} events a second, {wanted:.2f} were planned")
    return verdict_of("each phase was asked for the planned load", wrong, f"{looked} phases")


def _figure(figures: dict[str, dict[str, float]], reference: str) -> float:
    """What PHASE[FIGURE] refers to; NaN where it is not there."""
    phase, _, name = reference.rstrip("]").partition("[")
    return figures.get(phase, {}).get(name, math.nan)


def load_as_calibrated(run: Run, terms: Terms) -> Check:
    """What the run was to be offered is what calibration found, and not nothing."""
    name = "the load was the calibrated one"
    load = run.facts.load.get("events_per_second", math.nan)
    if terms.load_share is None:
        return Check(name, True, "not asked: nothing is calibrated")
    found = run.facts.calibration.get("events_per_second", math.nan) * terms.load_share
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
        probes = ["main", *phase.probes]
        wrong += [f"{record.id} lacks probe {name}" for name in probes if name not in record.probes]
    return verdict_of("every figure is there", wrong, "machine, processes and probes, in each phase")


def nothing_exempted(run: Run, terms: Terms) -> Check:
    """Neither a process from having CPU to spare, nor a claim from being judged, but for a reason that is known."""
    wrong = [
        f"{name} may not take what CPU it gets: it is no load of the scenario's"
        for name in run.facts.cpu_bound
        if not name.startswith("load-")
    ]
    wrong += [
        f"nothing exempts {claim}: {run.facts.server or 'this server'} can answer it"
        for claim in run.facts.cannot
        if claim not in terms.may_exempt
    ]
    return verdict_of(
        "nothing was exempted without a reason", wrong, f"{len(run.facts.cannot)} claims, with a reason"
    )


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


def _gap(tiles: list[Interval], record: PhaseRecord) -> float:
    """Seconds that intervals leave out or have twice, at the worst place."""
    if not tiles:
        return record.seconds
    length = max(tile.end - tile.start for tile in tiles)
    inner = max((abs(after.start - before.end) for before, after in pairwise(tiles)), default=0.0)
    edges = max(tiles[0].start - record.t0, record.t1 - tiles[-1].end) - length
    return max(inner, edges)


CHECKS = (
    phases_as_planned,
    strategy_in_force,
    events_carried_out,
    nothing_failed,
    load_as_planned,
    figures_complete,
    latencies_complete,
    loads_once,
)
CHECKS_BY_TERMS = (plan_is_the_scenarios, keys_as_planned, load_as_calibrated, nothing_exempted)
