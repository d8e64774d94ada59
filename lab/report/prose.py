"""The story of a run, section by section. Every sentence is made from the run's data and changes with it."""

from __future__ import annotations

from lab.claims.server import ONE_IN
from lab.report import evidence
from lab.report.breakdown import parts
from lab.report.conclusions import Judged, Section, cannot_tell, refuted, remains
from lab.report.view import RunView
from lab.results.folder import PhaseRecord
from lab.results.numbers import UNKNOWN, count, ms, percent, ratio, setting, share, short, sig, times, us

BYSTANDER = "GET"
LATE = 0.05
"""Above this share of p99 the probe's own lateness is mentioned."""
EXECUTION, SLOW_LOG = "execution-steady", "victims-not-slow"
"""Claims that a server cannot answer if its execution times, or its slow log, measure something else."""
APART = 3.0
"""If the best and the worst phase's p99 differ by less than this factor, there was no incident."""
ALIKE = 2.0
"""Two single p99s that differ by less than this factor are called alike."""
BUSY = 0.7
"""A main thread with a smaller busy share has time to spare."""

DISAGREE, LITTLE = 0.1, 0.2
"""The server's own clock and its CPU time are put side by side if they differ by more than this share of the CPU time;
a thread that is busy for a smaller share than `LITTLE` is left out."""
THROTTLED_BELOW = 0.9
"""If the server used less of a core than this multiple of its main thread's busy share, it was throttled: the share is
then relative to its CPU limit, and its own clock, which runs on while it is throttled, is not comparable."""


def sections(view: RunView, judged: Judged) -> list[Section]:
    """All sections. If no phase was finished, a single section that says so."""
    if not view.run.phases:
        return [
            Section("The scene", [_who(view), "It ended before a phase was measured: there is no story."], [])
        ]
    found = [
        the_scene(view),
        what_rose(view),
        where_time_went(view),
        slow_log(view),
        refuted(view, judged),
        remains(view, judged),
        fix(view),
        cannot_tell(view, judged),
    ]
    return [section for section in found if section.sentences or section.points]


def the_scene(view: RunView) -> Section:
    """The scenario, server and load of the run."""
    facts, phases = view.facts, view.run.phases
    keys = [phase.keys for phase in phases]
    events, reads, probe = (facts.load.get(f"{name}_per_second") for name in ("events", "reads", "probe"))
    few, many = count(min(keys)), count(max(keys))
    keys_held = few if few == many else f"{few} to {many}"
    events_asked = f"{sig(events)} events and " if events else ""
    lines = [
        _who(view),
        f"It measured {len(phases)} phases in {count(view.length)} s, with {keys_held} keys on the server. The "
        f"storefront was asked for {events_asked}{sig(reads)} reads a second; beside it a bystander sent {sig(probe)} "
        "GETs a second on schedule, and waited for nobody.",
    ]
    used = list(dict.fromkeys(phase.strategy for phase in phases))
    if events:
        lines.append(f"An event invalidated what was cached for its user by {', then by '.join(used)}.")
    if facts.refutes:
        lines.append("It is a control: load and phases of the incident, without its cause.")
    return Section("The scene", lines, [])


def _who(view: RunView) -> str:
    facts = view.facts
    where = f"{facts.server} {facts.server_version}".strip() or "an unknown server"
    return f"{facts.scenario} ({facts.title}) on {where}, {facts.stack} stack, pace {facts.pace}, seed {facts.seed}."


def what_rose(view: RunView) -> Section:
    """The bystander's p99 over the whole run, and what changed where something was raised step by step."""
    worst, best = view.worst, view.best
    high, low = view.p99(worst), view.p99(best)
    if not worst or not best or high is None or low is None:
        return Section("What rose with what", ["The bystander recorded nothing, so no p99 is known."], [])
    apart = _apart(view)
    if apart < APART:
        lines = [
            f"Nothing rose: the p99 of a bystander's GET stayed between {ms(low)} and {ms(high)} through all phases "
            f"({times(apart)}), so there is nothing to explain."
        ]
    else:
        lines = [
            f"The p99 of a bystander's GET was {ms(low)} at its best (“{view.name(best)}”) and {ms(high)} at its "
            f"worst (“{view.name(worst)}”): {times(apart)}."
        ]
    return Section("What rose with what", lines, [_row(view, row) for row in evidence.rows(view)])


def _apart(view: RunView) -> float:
    """The bystander's worst p99 as a multiple of its best."""
    return ratio(view.p99(view.worst), view.p99(view.best)) or 1.0


def _row(view: RunView, row: evidence.Trend) -> str:
    titles = {view.title(phase) for phase in row.phases}
    named = f"“{titles.pop() if len(titles) == 1 else view.group(row.phases[0])}”"
    if row.first:
        by = f"{times(row.last / row.first)}, {row.raised.text(row.first)} → {row.raised.text(row.last)}"
    else:
        by = f"{row.raised.text(row.first)} → {row.raised.text(row.last)}"
    head = f"{len(row.phases)} phases of {named}, {row.raised.label} raised ({by}): "
    return head + "; ".join(map(_change, row.changes)) + "."


def _change(change: evidence.Change) -> str:
    text = change.quantity.text
    span = f"{text(change.first)} → {text(change.last)}"
    if change.direction == "":
        return f"{change.quantity.label} went up and down ({span}, rank correlation {change.rank:.2f})"
    if change.direction == "level":
        return f"{change.quantity.label} stayed level ({span})"
    factor = change.factor
    known = (
        ""
        if factor in (0.0, float("inf"))
        else f"{times(factor)}, "
        if factor > 1
        else f"÷ {sig(1 / factor)}, "
    )
    return f"{change.quantity.label} {change.direction} ({known}{span}, rank correlation {change.rank:.2f})"


def where_time_went(view: RunView) -> Section:
    """Execution, network and waiting in the bystander's worst phase, and the command that kept the server busy."""
    worst = view.worst
    if not worst:
        return Section("Where the time went", [], [])
    part, lines = parts(view, worst), []
    if part.waiting is None:
        lines.append(
            f"In “{view.name(worst)}” a GET's p99 was {ms(part.p99)}; it cannot be split, because "
            + (
                "the server did not count GETs' execution."
                if part.execution is None
                else "no idle PING was measured."
            )
        )
    else:
        queue = (part.share or 0.0) > 0.5 and _apart(view) >= APART
        late = f"{ms(part.late)} the probe's own lateness, " if part.late > LATE * (part.p99 or 0.0) else ""
        lines.append(
            f"In “{view.name(worst)}” a GET's p99 was {ms(part.p99)}: {ms(part.execution)} of it execution on the "
            f"server, {ms(part.floor)} the network floor (an idle PING), {late}and {ms(part.waiting)} waiting "
            f"({share(part.share)})." + (" The time went into a queue, not into the GET." if queue else "")
        )
    if reason := view.facts.cannot.get(EXECUTION):
        lines.append(f"What is called execution here is more than that: {reason.rstrip('.')}.")
    if worst.utilisation is not None:
        lines.append(f"The server's main thread was busy {percent(worst.utilisation)} of that phase.")
    lines += _other_clock(view)
    if culprit := evidence.busiest(worst):
        name, part_of = culprit
        lines.append(
            f"{percent(part_of)} of the execution time went to {name}: {short(worst.rate(name))} calls a second of "
            f"{us(worst.execution_us(name))} each on average."
        )
    return Section("Where the time went", lines, [])


def _other_clock(view: RunView) -> list[str]:
    """A line on the phase in which the server's own clock and its CPU time disagree most on how busy it was."""
    found = [(off, phase) for phase in view.run.phases if (off := _clocks_off(phase)) is not None]
    off, phase = max(found, key=lambda each: abs(each[0]), default=(0.0, None))
    if phase is None or abs(off) <= DISAGREE:
        return []
    why = (
        "it was at work for longer than it had a core, as where other programs take the core or a page fault waits"
        if off > 0
        else "that clock counts a round of the event loop when it is over, and one that finds no work not at all"
    )
    return [
        f"By its own clock it was at work {percent(phase.active)} of “{view.name(phase)}”, by its CPU time "
        f"{percent(phase.utilisation)}: {why}."
    ]


def _clocks_off(phase: PhaseRecord) -> float | None:
    """By how much the server's own clock says more than its CPU time, as a share of that; None if they cannot be
    compared: one is missing, the thread is hardly busy, or the server was throttled.
    """
    if phase.utilisation is None or phase.active is None or phase.utilisation < LITTLE:
        return None
    if phase.processes.get("store", phase.utilisation) < THROTTLED_BELOW * phase.utilisation:
        return None
    return phase.active / phase.utilisation - 1


def slow_log(view: RunView) -> Section:
    """The commands in the slow log, and whether it could have named the commands that waited."""
    threshold = view.facts.slowlog_threshold_us
    entries = view.run.slow_commands(view.run.phases)
    at = f"threshold {setting(threshold)}"
    named = ", ".join(f"{count(n)} × {name}" for name, n in entries.most_common(5))
    lines = [f"In the measured phases it recorded {named} ({at})." if entries else f"It stayed empty ({at})."]
    worst = view.worst
    executed = worst.execution_us("GET") if worst else None
    reason = view.facts.cannot.get(SLOW_LOG)
    few = entries[BYSTANDER] * ONE_IN <= entries.total()
    if (victims := entries.get(BYSTANDER)) and few and not reason:
        lines.append(
            f"{count(victims)} of {count(entries.total())} entries are {BYSTANDER}: so few may be calls that the "
            "machine took off their core half-way, since the log times by the wall clock."
        )
    elif victims:
        lines.append(
            f"{count(victims)} of {count(entries.total())} entries are {BYSTANDER}, all that a bystander sends: "
            + (f"{reason.rstrip('.')}." if reason else "those took long to execute, not only to wait.")
        )
    elif reason:
        lines.append(f"Whether it could name a victim is open: {reason.rstrip('.')}.")
    elif worst and executed and (view.p99(worst) or 0.0) * 1000 > threshold:
        lines.append(
            f"It cannot name a victim: it times execution, and a GET that took the client {ms(view.p99(worst))} at "
            f"p99 was executed in {us(executed)}, 1/{count(threshold / executed)} of the threshold. "
            "Waiting is not in it."
        )
    culprit = evidence.busiest(worst) if worst else None
    if worst and culprit and culprit[0] not in (BYSTANDER, *entries) and (worst.utilisation or 0.0) >= BUSY:
        lines.append(
            f"Nor is {culprit[0]} in it, which kept the server busy: a call took {us(worst.execution_us(culprit[0]))} "
            f"on average. Many short calls saturate a server without one entry."
        )
    return Section("What the slow log shows", lines, [])


def fix(view: RunView) -> Section:
    """p99, main thread and the costliest command before and after the fix."""
    pairs = view.scenario.fixes if view.scenario else ()
    points = []
    for before_id, after_id in pairs:
        before, after = _last(view, before_id), _last(view, after_id)
        if before and after:
            points.append(_turn(view, before, after))
    lines = [] if points or not pairs else ["The run ended before the fix was measured."]
    return Section("What the fix changed", lines, points)


def _last(view: RunView, name: str) -> PhaseRecord | None:
    arm = view.run.arm(name)
    return arm[-1] if arm else view.run.phase(name)


def _turn(view: RunView, before: PhaseRecord, after: PhaseRecord) -> str:
    one, two = view.p99(before), view.p99(after)
    factor = ratio(one, two)
    outcome = (
        "no p99 to compare"
        if factor is None
        else f"a bystander's p99 fell, {ms(one)} → {ms(two)} (÷ {sig(factor)})"
        if factor >= ALIKE
        else f"a bystander's p99 stayed about the same, {ms(one)} → {ms(two)}"
        if factor > 1 / ALIKE
        else f"a bystander's p99 rose, {ms(one)} → {ms(two)}"
    )
    clauses = [
        outcome,
        f"the main thread was busy {percent(before.utilisation)} → {percent(after.utilisation)}",
    ]
    culprit = evidence.busiest(before)
    name = culprit[0] if culprit else ""
    if name and not 1 / ALIKE < (ratio(after.rate(name), before.rate(name)) or 0.0) < ALIKE:
        clauses.append(
            f"{name} was called {short(before.rate(name))} → {short(after.rate(name))} times a second"
        )
    return (
        f"From “{view.name(before)}” to “{view.name(after)}” ({count(before.keys)} and {count(after.keys)} keys): "
        + "; ".join(clauses).replace(UNKNOWN, "unknown")
        + "."
    )
