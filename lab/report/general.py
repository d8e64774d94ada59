"""The story of any scenario: its claims, and what its phases and loads measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.report import story
from lab.report.numbers import UNKNOWN, count, ms, percent, ratio, setting, share, short, times, us
from lab.report.parts import parts
from lab.report.quantities import Quantity, quantity
from lab.report.scene import Scene
from lab.report.story import Figure
from lab.report.tables import Table, outcome

SHORT_CELL = 14
"""A cell with more characters than that is words, and not set to the right."""
WIDEST = 7
"""Columns of figures in one table; more of them make a second one."""


@dataclass(frozen=True)
class Claimed:
    """One claim as a sentence of the story."""

    sign: str
    statement: str
    bound: str
    outcome: str
    measured: str


def claims(scene: Scene) -> list[Claimed]:
    """Every claim with its outcome; none before the run was judged."""
    found = []
    for claim in (scene.result or {}).get("claims", []):
        sign, _, words = outcome(claim["holds"], scene.control).partition(" ")
        found.append(Claimed(sign, claim["statement"], claim["bound"], words, claim["measured"]))
    return found


def paragraph(scene: Scene) -> str:
    """The scenario's own story, and how far apart the bystander's p99s were."""
    worst, best = scene.worst, scene.best
    if not worst or not best or worst is best:
        return scene.facts.story
    apart = ratio(scene.p99(worst), scene.p99(best))
    return (
        f"{scene.facts.story} In this run 99 of 100 GETs of a bystander were answered within {ms(scene.p99(best))} "
        f"in “{scene.name(best)}”, and within {ms(scene.p99(worst))} in “{scene.name(worst)}”: {times(apart)}."
    )


def figures(scene: Scene) -> list[Figure]:
    """The headline claim's ratio, and the bystander's p99 at its worst and at its best."""
    found = []
    if headline := scene.headline:
        value = headline["figures"].get("ratio") if headline["figures"] else None
        if value is not None:
            found.append(Figure(times(value), headline["statement"], f"claimed: {headline['bound']}"))
    worst, best = scene.worst, scene.best
    if worst:
        found.append(Figure(ms(scene.p99(worst)), "p99 of a bystander at its worst", scene.name(worst)))
    if best and best is not worst:
        found.append(Figure(ms(scene.p99(best)), "p99 of a bystander at its best", scene.name(best)))
    return found


def time_went(scene: Scene) -> str:
    """Execution, round trip and waiting where the bystander waited longest."""
    worst = scene.worst
    if not worst:
        return "Nothing was measured."
    part = parts(scene, worst)
    if part.waiting is None:
        return "This server does not count execution time, so a p99 cannot be split here."
    return (
        f"In “{scene.name(worst)}” a GET with a p99 of {ms(part.p99)} was executed in {ms(part.execution)} and needed "
        f"{ms(part.floor)} for the bare round trip to an idle server. The rest, {share(part.share)} of it, it waited."
    )


def observers(scene: Scene) -> list[str]:
    """How far apart the probe's two clocks lie."""
    return story.clocks(scene)


def silence(scene: Scene) -> str:
    """What the slow log says, and by whom it is silent."""
    entries = [row.get("command", "") for row in scene.run.slowlog]
    threshold = setting(scene.facts.slowlog_threshold_us)
    p99 = f"a bystander's p99 reached {ms(scene.p99(scene.worst))}"
    if not entries:
        return f"The slow log stayed empty at its threshold of {threshold}, while {p99}."
    most = max(set(entries), key=entries.count)
    return (
        f"{count(len(entries))} entries at the threshold of {threshold}, {percent(entries.count(most) / len(entries))} "
        f"of them {most}, while {p99}. The slow log times execution, never the queue before it."
    )


def listings(scene: Scene) -> list[Table]:
    """The scenario's own tables; the first column is words, and so is each whose cells are long."""
    found = []
    for listing in scene.scenario.listings if scene.scenario else ():
        rows, headings = listing.rows(scene.run), list(listing.headings)
        short_ones = (i for i in range(1, len(headings)) if all(len(row[i]) <= SHORT_CELL for row in rows))
        found.append(Table(listing.caption, headings, rows, frozenset(short_ones)))
    return [table for table in found if table.rows]


def figures_by_phase(scene: Scene) -> list[Table]:
    """What tells the phases apart, the p99 in each, and what its loads measured."""
    params = _columns(scene, "param", [name for phase in scene.run.phases for name in phase.params])
    found = _columns(scene, "figure", [name for phase in scene.run.phases for name in phase.figures])
    fixed = [*params, quantity("keys"), quantity("p99"), quantity("utilisation")]
    tables = [_table("Each phase, and what a bystander met in it", scene, fixed)]
    for start in range(0, len(found), WIDEST):
        caption = "What the loads measured" + (f" ({start // WIDEST + 1})" if len(found) > WIDEST else "")
        some = found[start : start + WIDEST]
        tables.append(_table(caption, scene, [*params, *some], must=some))
    return tables


def _columns(scene: Scene, kind: str, names: Sequence[str]) -> list[Quantity]:
    return [quantity(f"{kind}:{name}") for name in dict.fromkeys(names)]


def _table(caption: str, scene: Scene, columns: Sequence[Quantity], must: Sequence[Quantity] = ()) -> Table:
    """A row for each phase; with `must`, only for phases that have one of those."""
    rows = []
    for phase in scene.run.phases:
        if must and all(column.of(phase, scene.latencies) is None for column in must):
            continue
        rows.append(
            [scene.name(phase), *(column.text(column.of(phase, scene.latencies)) for column in columns)]
        )
    headings = ["phase", *(column.label for column in columns)]
    return Table(caption, headings, rows, frozenset(range(1, len(headings))))


def commands(scene: Scene) -> Table:
    """Commands by their share of the server's execution time in all phases."""
    totals: dict[str, tuple[float, float]] = {}
    for phase in scene.run.phases:
        for name, counters in phase.commands.items():
            calls, usec = totals.get(name, (0.0, 0.0))
            totals[name] = (calls + counters["calls"], usec + counters["usec"])
    whole = sum(usec for _, usec in totals.values())
    rows = []
    for name, (calls, usec) in sorted(totals.items(), key=lambda item: -item[1][1]):
        busiest = max(scene.run.phases, key=lambda phase: phase.rate(name))
        rows.append(
            [
                name,
                count(calls),
                f"{short(busiest.rate(name))} ({scene.name(busiest)})",
                us(usec / calls) if calls else UNKNOWN,
                percent(usec / whole if whole else None),
            ]
        )
    headings = ["command", "calls", "most calls a second (in)", "mean execution", "share of all execution"]
    return Table("Commands that the server executed in all phases", headings, rows[:12], frozenset((1, 3, 4)))
