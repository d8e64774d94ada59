"""The head and the tables of the report: verdict, claims, figures of phases and loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.claims import wording
from lab.claims.planned import SEARCHES
from lab.report.breakdown import p99_by_observer
from lab.report.quantities import Quantity, quantity
from lab.report.tables import Table
from lab.report.view import RunView
from lab.results.numbers import UNKNOWN, count, ms, percent, ratio, short, times, us

SHORT_CELL = 14
"""A cell with more characters counts as words, and is not set to the right."""
WIDEST = 7
"""The most columns of figures in one table; further columns make another table."""


@dataclass(frozen=True)
class Figure:
    """A large number at the head of the page."""

    value: str
    label: str
    note: str


@dataclass(frozen=True)
class Claimed:
    """A claim as a sentence of the story."""

    sign: str
    statement: str
    bound: str
    outcome: str
    measured: str


def heading(view: RunView) -> str:
    """Return the symptom; or the title, for a control and for a scenario that the lab no longer knows."""
    if view.scenario is None or view.facts.refutes or not view.scenario.symptom:
        return view.facts.title
    return f"What people saw: {view.scenario.symptom}"


def verdict(view: RunView) -> str:
    """The verdict in a sentence."""
    if view.result is None or view.facts.interrupted:
        return wording.unjudged(len(view.run.phases), view.facts.interrupted)
    return wording.sentence(view.result)


def mood(view: RunView) -> str:
    """A sign for the verdict: as promised, not as promised, or none."""
    judged = view.result and not view.facts.interrupted
    return wording.sign(view.result["holds"] if view.result and judged else None, unknown="?")


def claims(view: RunView) -> list[Claimed]:
    """Every claim with its outcome; none before the run was judged."""
    found = []
    for claim in (view.result or {}).get("claims", []):
        sign, _, words = wording.signed(claim["holds"], view.facts.refutes).partition(" ")
        found.append(Claimed(sign, claim["statement"], claim["bound"], words, claim["measured"]))
    return found


def paragraph(view: RunView) -> str:
    """The scenario's own story, and how far apart the bystander's p99s were."""
    worst, best = view.worst, view.best
    if not worst or not best or worst is best:
        return view.facts.story
    apart = ratio(view.p99(worst), view.p99(best))
    return (
        f"{view.facts.story} In this run 99 of 100 GETs of a bystander were answered within {ms(view.p99(best))} "
        f"in “{view.name(best)}”, and within {ms(view.p99(worst))} in “{view.name(worst)}”: {times(apart)}."
    )


def headline(view: RunView) -> list[Figure]:
    """The headline claim's ratio; none before the run was judged."""
    claim = view.headline
    value = claim["figures"].get("ratio") if claim and claim["figures"] else None
    if claim is None or value is None:
        return []
    return [Figure(times(value), claim["statement"], f"claimed: {claim['bound']}")]


def extremes(view: RunView) -> list[Figure]:
    """The bystander's p99 at its worst and at its best. Phases are not named: some titles reveal the cause."""
    worst, best = view.worst, view.best
    found = []
    if worst:
        found.append(Figure(ms(view.p99(worst)), "p99 of a bystander at its worst", ""))
    if best and best is not worst:
        found.append(Figure(ms(view.p99(best)), "p99 of a bystander at its best", ""))
    return found


def observers(view: RunView) -> list[str]:
    """The observers' p99s in the best and in the worst phase, and how far the probe's two clocks lie apart."""
    sentences = []
    for phase, where in ((view.best, "at its best"), (view.worst, "at its worst")):
        if phase and (phase is view.worst or view.best is not view.worst):
            probe, sent, app, locust = (ms(value) for value in p99_by_observer(view, phase))
            sentences.append(
                f"A bystander {where} (“{view.name(phase)}”): probe {probe} from the intended time and {sent} from "
                f"the send time, application {app}, Locust {locust}."
            )
    return [*sentences, *clocks(view)]


def clocks(view: RunView) -> list[str]:
    """Return a sentence on the difference of the probe's p99s from the intended time and from the send time."""
    apart = [
        (due - sent, phase)
        for phase in view.run.phases
        for due, sent in [p99_by_observer(view, phase)[:2]]
        if due is not None and sent is not None
    ]
    if not apart:
        return []
    late, phase = max(apart, key=lambda pair: pair[0])
    return [
        f"The probe's two clocks lie at most {ms(max(late, 0.0))} apart (in “{view.name(phase)}”): it sends on "
        "schedule and waits for nobody. In a client that awaits each answer before it sends again they would lie a "
        "whole stall apart."
    ]


def listings(view: RunView) -> list[Table]:
    """The scenario's own tables; the first column is words, and so is each whose cells are long."""
    found = []
    for listing in view.scenario.listings if view.scenario else ():
        rows, headings = listing.rows(view.run), list(listing.headings)
        short_ones = (i for i in range(1, len(headings)) if all(len(row[i]) <= SHORT_CELL for row in rows))
        found.append(Table(listing.caption, headings, rows, frozenset(short_ones)))
    return [table for table in found if table.rows]


def figures_by_phase(view: RunView) -> list[Table]:
    """Return tables of each phase's params, p99, time of a search, and its loads' figures."""
    params = _columns(view, "param", [name for phase in view.run.phases for name in phase.params])
    found = _columns(view, "figure", [name for phase in view.run.phases for name in phase.figures])
    measured = {column.label for column in found}
    params = [column for column in params if column.label not in measured]
    fixed = [*params, quantity("keys"), *_search(view), quantity("utilisation"), quantity("p99")]
    tables = [_table("Each phase, and what a bystander met in it", view, fixed)]
    for start in range(0, len(found), WIDEST):
        caption = "What the loads measured" + (f" ({start // WIDEST + 1})" if len(found) > WIDEST else "")
        some = found[start : start + WIDEST]
        tables.append(_table(caption, view, [*params, *some], must=some))
    return tables


def _search(view: RunView) -> list[Quantity]:
    """The mean execution time of the searching command that took most of the server's time; none if none did."""
    spent = {
        name: sum(phase.commands.get(name, {}).get("usec", 0.0) for phase in view.run.phases)
        for name in SEARCHES
    }
    busiest = max(SEARCHES, key=lambda name: spent[name])
    return [quantity(f"exec:{busiest}")] if spent[busiest] else []


def _columns(view: RunView, kind: str, names: Sequence[str]) -> list[Quantity]:
    return [quantity(f"{kind}:{name}") for name in dict.fromkeys(names)]


def _table(caption: str, view: RunView, columns: Sequence[Quantity], must: Sequence[Quantity] = ()) -> Table:
    """A row for each phase; with `must`, only for phases that have at least one of those quantities."""
    rows = []
    for phase in view.run.phases:
        if must and all(column.read(phase, view.latencies) is None for column in must):
            continue
        rows.append(
            [view.name(phase), *(column.text(column.read(phase, view.latencies)) for column in columns)]
        )
    headings = ["phase", *(column.label for column in columns)]
    return Table(caption, headings, rows, frozenset(range(1, len(headings))))


def commands(view: RunView) -> Table:
    """Commands by their share of the server's execution time in all phases."""
    totals: dict[str, tuple[float, float]] = {}
    for phase in view.run.phases:
        for name, counters in phase.commands.items():
            calls, usec = totals.get(name, (0.0, 0.0))
            totals[name] = (calls + counters["calls"], usec + counters["usec"])
    whole = sum(usec for _, usec in totals.values())
    rows = []
    for name, (calls, usec) in sorted(totals.items(), key=lambda item: -item[1][1]):
        busiest = max(view.run.phases, key=lambda phase: phase.rate(name))
        rows.append(
            [
                name,
                count(calls),
                f"{short(busiest.rate(name))} ({view.name(busiest)})",
                us(usec / calls) if calls else UNKNOWN,
                percent(usec / whole if whole else None),
            ]
        )
    headings = ["command", "calls", "most calls a second (in)", "mean execution", "share of all execution"]
    return Table("Commands that the server executed in all phases", headings, rows[:12], frozenset((1, 3, 4)))
