"""Checks that a run measured what was planned: phases, keys, strategy, events, latencies.

The plan is in run.json, written before anything was measured. It must be the scenario's own at the pace and for the
keys that the run names: today's claims do not apply to an earlier version of the scenario. A check fails
if its figure is missing or not a number.
A folder that was altered by hand may pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from lab.claims.check import Check, Terms, compared, verdict_of
from lab.results.folder import Interval, PhaseRecord, Run
from lab.results.schema import PlannedPhase

SHORTEST = 0.9
"""The least share of the planned length. A phase may take longer: it counts to the end of the last request."""
KEYS_WITHIN, KEYS_SLACK = 0.10, 500
"""Tolerance of the key count, as a share and in keys: one index set for twenty entries, and the probes' own keys."""
KEYS_A_READ = 2
"""The most keys that a read of a user who was not warmed adds: an entry, and the user's index set."""
OWN_LAYOUT = ("hash", "generation")
"""Strategies under which an entry is not always one key, so that keys do not count the entries: a user's entries are
one key, or those of earlier generations stay. Under all others every entry is a key."""
DONE_WITHIN, DONE_SLACK = 0.10, 3
HAS_TIME, HAS_TIME_TO_SEARCH = 0.8, 0.5
"""Below this utilisation the server must finish as many events as arrive, except a few in flight. The second bound is
for a server that searches: it has many events in flight, and may not get more of the processors than that."""
ASKS_FOR: dict[str, tuple[str, float]] = {
    "scan": ("SCAN", 3),
    "keys": ("KEYS", 3),
    "exact": ("UNLINK", 1),
    "index": ("SSCAN", 1),
    "index-naive": ("SMEMBERS", 1),
    "hash": ("UNLINK", 1),
    "generation": ("INCRBY", 1),
    "slot": ("SCAN", 3),
    "scan-tagged": ("SCAN", 3),
    "index-tagged": ("SSCAN", 1),
}
"""Strategy → the command that shows it on the server, and its fewest calls per event. Only `ttl` sends none."""
SEARCHES = ("SCAN", "KEYS")
"""Commands that walk over all keys. A strategy may send one only if `ASKS_FOR` names it."""
CALIBRATED_WITHIN = 0.01
GAP_S = 0.05
"""A probe's intervals follow one another without a gap; a gap up to this length is rounding."""
PARTS = ("store", "web", "invalidator", "locust", "probe")
"""Beginnings of the processes' names. Natively each probe is a process; on compose all probes are one container."""


def _judged(run: Run) -> Iterator[tuple[PhaseRecord, PlannedPhase]]:
    """Each measured phase that claims look at, with its plan."""
    planned = {phase.id: phase for phase in run.facts.plan}
    return ((record, planned[record.id]) for record in compared(run) if record.id in planned)


def plan_is_the_scenarios(run: Run, terms: Terms) -> Check:
    """The plan is what the scenario plans today: an earlier version may have measured something else."""
    name, plan = "the plan is the scenario's", run.facts.plan
    if terms.plan is None:
        return Check(name, False, f"{run.facts.scenario} has no pace {run.facts.pace!r}")
    wrong = [f"{has.id} is planned otherwise" for has in plan if has not in terms.plan]
    wrong += [f"{should.id} is not planned" for should in terms.plan if should not in plan]
    return verdict_of(name, wrong, f"{len(plan)} phases at the pace {run.facts.pace}")


def phases_as_planned(run: Run) -> Check:
    """Every planned phase was measured once, in order, and none was cut short."""
    plan = {phase.id: phase for phase in run.facts.plan}
    measured = [phase.id for phase in run.phases]
    wrong = [f"{missing} was not measured" for missing in plan if missing not in measured]
    if not wrong and measured != list(plan):
        wrong = [f"{', '.join(plan)} were planned, and {', '.join(measured)} were measured"]
    wrong += [
        f"{phase.id} took {phase.seconds:.1f} s, and {plan[phase.id].seconds:.1f} were planned"
        for phase in run.phases
        if phase.id in plan and not phase.seconds > SHORTEST * plan[phase.id].seconds
    ]
    return verdict_of("every phase was measured as planned", wrong, f"{len(measured)} phases, in order")


def keys_are_judged(keys: float, strategy: str, loads: bool) -> bool:
    """True if a phase's number of keys is checked: not with other layouts, nor with loads that have their own keys."""
    return keys > 0 and not loads and strategy not in OWN_LAYOUT


def keys_tolerance(wanted: float) -> float:
    """Return the number of keys by which a phase may differ from the planned number."""
    return KEYS_WITHIN * wanted + KEYS_SLACK


def keys_as_planned(run: Run, terms: Terms) -> Check:
    """The server held the planned keys on each plateau, also the few after a restart.

    An event takes a user's entries away until they are read again. Reads of users who were not warmed add keys: the
    more, the longer a plateau lasts until it has seen enough events.
    """
    wrong, largest = [], 0.0
    since, before = math.nan, math.inf
    for record, phase in _judged(run):
        wanted = phase.keys
        if wanted < before or not before:  # the server was emptied, or this is the first phase
            since = record.t0
        before = wanted
        if not keys_are_judged(phase.keys, phase.strategy, bool(phase.loads)):
            continue
        invalidated = record.events.get("finished_per_s", 0.0) * record.seconds * terms.entries_per_user
        cold = max(0.0, 1 - wanted / run.facts.keys)
        slack = keys_tolerance(wanted)
        added = KEYS_A_READ * run.facts.load.get("reads_per_second", 0.0) * (record.t1 - since) * cold
        largest = max(largest, abs(record.keys / wanted - 1))
        if not -slack - invalidated <= record.keys - wanted <= slack + added:
            wrong.append(f"{record.id} had {record.keys:,.0f} keys where {wanted:,.0f} were planned")
    return verdict_of("the server held the keys that were planned", wrong, f"largest deviation {largest:.0%}")


def _command_of(strategy: str) -> str:
    """The command that shows a strategy on the server; '' if it sends none."""
    return ASKS_FOR.get(strategy, ("", 0.0))[0]


def strategy_in_force(run: Run) -> Check:
    """The planned strategy was in force, by the commands that the server counted and not by what was asked for."""
    wrong, looked = [], 0
    for record, phase in _judged(run):
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
                for command in SEARCHES
                if command != _command_of(phase.strategy) and calls.get(command)
            ]
    text = (
        f"the server's own counters say so, in the {looked} phases whose events show it"
        if looked
        else "not asked: no phase has events that would show it"
    )
    return verdict_of("the planned strategy was in force", wrong, text)


def events_carried_out(run: Run) -> Check:
    """Events were finished wherever the server had time. Else a cure that invalidates nothing would look best."""
    wrong, least = [], 1.0
    for record, _ in _judged(run):
        offered = record.events.get("offered_per_s", math.nan)
        done = record.events.get("finished_per_s", math.nan)
        searches = _command_of(record.strategy) in SEARCHES
        # A server that does not report its CPU time counts as busy if events search it.
        busy = record.utilisation if record.utilisation is not None else float(searches)
        if offered == 0 or busy >= (HAS_TIME_TO_SEARCH if searches else HAS_TIME):
            continue
        least = min(least, done / offered)
        if not done >= (1 - DONE_WITHIN) * offered - DONE_SLACK / record.seconds:
            wrong.append(f"{record.id} finished {done:.1f} of {offered:.1f} events a second")
    return verdict_of(
        "accepted events were carried out", wrong, f"at least {least:.0%} while the server had time"
    )


def nothing_failed(run: Run) -> Check:
    """No read and no event failed."""
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
    for record, phase in _judged(run):
        base = _figure(figures, phase.events_from) if phase.events_from else load
        wanted, requested = base * phase.events, record.events.get("asked_per_s", math.nan)
        looked += 1
        if not abs(requested - wanted) <= CALIBRATED_WITHIN * wanted:
            wrong.append(
                f"{record.id} was asked for {requested:.2f} events a second, {wanted:.2f} were planned"
            )
    return verdict_of("each phase was asked for the planned load", wrong, f"{looked} phases")


def _figure(figures: dict[str, dict[str, float]], reference: str) -> float:
    """The figure that PHASE[FIGURE] refers to; NaN if it is missing."""
    phase, _, name = reference.rstrip("]").partition("[")
    return figures.get(phase, {}).get(name, math.nan)


def load_as_calibrated(run: Run, terms: Terms) -> Check:
    """The run's event rate is the planned share of the calibrated one, and not zero; or else it is the scenario's."""
    name = "the load was the calibrated one"
    load = run.facts.load.get("events_per_second", math.nan)
    if terms.load_share is None:
        offer = (
            f"{load:.2f} events a second were asked for" if load else "the storefront was asked for no events"
        )
        text = f"no rate of events is calibrated; {offer}"
        return Check(name, load == terms.events_per_second, text)
    calibrated = run.facts.calibration.get("events_per_second", math.nan) * terms.load_share
    return Check(
        name,
        load > 0 and abs(load - calibrated) <= CALIBRATED_WITHIN * calibrated,
        f"calibration found {calibrated:.2f} events a second, {load:.2f} were offered",
    )


def figures_complete(run: Run) -> Check:
    """Each phase has the machine's figures, the CPU time of all processes, and the counts of each of its probes."""
    wrong = []
    for record, phase in _judged(run):
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


def latencies_complete(run: Run) -> Check:
    """The histograms hold what the probes counted: as many replies, in intervals that tile the phase."""
    wrong = [f"{run.unreadable} lines of probe.hlog cannot be read"] if run.unreadable else []
    replies = 0
    for record, _ in _judged(run):
        for probe, counts in record.probes.items():
            received = counts.get("received", math.nan)
            for kind in ("intended", "service"):
                found = run.tiles(record, probe, kind)
                recorded = sum(len(values) for _, _, values in found)
                replies += recorded if kind == "intended" else 0
                if recorded != received:
                    wrong.append(
                        f"{record.id}: probe {probe} counted {received:.0f} replies, {recorded} are in probe.hlog"
                    )
                elif (gap := _gap(found, record)) > GAP_S:
                    wrong.append(
                        f"{record.id}: {gap:.2f} s of probe {probe} are missing from probe.hlog, or are in it twice"
                    )
            if not received > 0:
                wrong.append(f"{record.id}: probe {probe} had no reply at all")
    return verdict_of("the latencies are complete", wrong, f"{replies:,} replies, each once")


def loads_measured(run: Run) -> Check:
    """Every phase with loads of its own has figures of them."""
    wrong = [
        f"{record.id} has no figures of its loads"
        for record, phase in _judged(run)
        if phase.loads and not record.figures
    ]
    return verdict_of("the loads' lines are complete", wrong, f"{len(run.loads)} lines")


def _gap(tiles: list[Interval], record: PhaseRecord) -> float:
    """The most seconds that intervals leave out, or hold twice, in one place."""
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
    loads_measured,
)
CHECKS_BY_TERMS = (plan_is_the_scenarios, keys_as_planned, load_as_calibrated)
