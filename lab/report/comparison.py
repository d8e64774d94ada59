"""Runs side by side, such as one for each server: tables for the terminal, and the page with charts.

Without spoilers phases have neutral names, and other parts that reveal the cause are folded in the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from lab.claims.wording import signed
from lab.report import charts, style
from lab.report.page import Drawing, draw, fill
from lab.report.quantities import Quantity, quantity
from lab.report.story import heading, mood, verdict
from lab.report.tables import Table
from lab.report.view import RunView
from lab.results import numbers
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import UNKNOWN, count, ms, percent, ratio, sig, times
from lab.scenarios.model import Chart

SERVER = Quantity("server", "server", "", lambda phase, _: None)
NOT_JUDGED = "not judged"
NAMELESS = "a setting of the incident"
"""The name of SCAN's COUNT where the cause stays hidden."""


@dataclass(frozen=True)
class Side:
    """A run of the comparison, and its name."""

    name: str
    view: RunView

    @cached_property
    def claims(self) -> dict[str, dict[str, Any]]:
        """Judged claims by id."""
        return {claim["id"]: claim for claim in (self.view.result or {}).get("claims", [])}


def sides(runs: Sequence[Run], spoilers: bool = False) -> list[Side]:
    """The runs with distinct names: the server's, with the scenario, the folder or a number added where needed."""
    names = [f"{run.facts.server} {run.facts.server_version}".strip() or UNKNOWN for run in runs]
    if len({run.facts.scenario for run in runs}) > 1:
        names = [f"{name}, {run.facts.scenario}" for name, run in zip(names, runs, strict=True)]
    if len(set(names)) < len(names):
        names = [
            name if names.count(name) == 1 else f"{name} ({run.folder.resolve().name})"
            for name, run in zip(names, runs, strict=True)
        ]
    if len(set(names)) < len(names):
        names = [f"{name}, run {i}" for i, name in enumerate(names, start=1)]
    return [Side(name, RunView(run, spoilers)) for name, run in zip(names, runs, strict=True)]


def growth(view: RunView) -> tuple[PhaseRecord, PhaseRecord] | None:
    """The phases between which a bystander's p99 grew: few and all keys, or else the best and the worst of all."""
    low, high = view.first(view.arms.rising), view.top(view.arms.rising)
    if low is None or low is high:
        low, high = view.best, view.worst
    return (low, high) if low and high and low is not high else None


def overview(found: Sequence[Side]) -> Table:
    """Return a row for each server: growth of p99, knee, entries of the slow log, cost of a visited key, verdict."""
    headings = [
        "server",
        "p99 of a bystander",
        "growth",
        "knee, keys",
        "slow log",
        "a visited key",
        "verdict",
    ]
    rows = []
    for side in found:
        view, grown = side.view, growth(side.view)
        p99s = [view.p99(phase) for phase in grown] if grown else []
        cost = view.facts.calibration.get("cost_us_per_key")
        rows.append(
            [
                side.name,
                f"{ms(p99s[0])} → {ms(p99s[1])}" if p99s else UNKNOWN,
                times(ratio(p99s[1], p99s[0])) if p99s else UNKNOWN,
                _knee(view),
                f"{count(entries)} entries" if (entries := len(_slow(view))) else "empty",
                f"{sig(float(cost))} µs" if cost is not None else UNKNOWN,
                verdict(view),
            ]
        )
    return Table("One row for each run", headings, rows, frozenset((2, 3, 5)))


def _knee(view: RunView) -> str:
    if view.observed_knee is None and view.predicted_knee is None:
        return UNKNOWN
    observed = count(view.observed_knee) if view.observed_knee else "none"
    return f"{observed} (predicted {count(view.predicted_knee)})"


def slow_logs(found: Sequence[Side]) -> Table:
    """The commands in each server's slow log, by their share of it."""
    rows = []
    for side in found:
        named = _slow(side.view)
        shares = [f"{name} {percent(n / len(named))}" for name, n in Counter(named).most_common(4)]
        rows.append([side.name, ", ".join(shares) or UNKNOWN])
    return Table("Commands in the slow log", ["server", "share of its entries"], rows)


def _slow(view: RunView) -> list[str]:
    """The command of each entry of the slow log."""
    return [row["command"] for row in view.run.slowlog if row.get("command")]


def outcomes(found: Sequence[Side]) -> Table:
    """Return a row for each claim, by its number, with its outcome on each server."""
    rows = [
        [
            f"claim {number}",
            *(
                signed(side.claims[name]["holds"], side.view.control) if name in side.claims else NOT_JUDGED
                for side in found
            ),
        ]
        for number, name in enumerate(_claimed(found), 1)
    ]
    return Table("Claims on each server", ["claim", *(side.name for side in found)], rows)


def claims(found: Sequence[Side]) -> Table:
    """Return a row for each claim, with its outcome and measurement on each server."""
    rows = []
    for claim_id in _claimed(found):
        any_claim = next(side.claims[claim_id] for side in found if claim_id in side.claims)
        cells = [_judged(side.claims.get(claim_id), side.view.control) for side in found]
        rows.append([f"{any_claim['statement']} ({any_claim['bound']})", *cells])
    return Table("Claims on each server", ["claim", *(side.name for side in found)], rows)


def _claimed(found: Sequence[Side]) -> list[str]:
    """The ids of all claims, in their order."""
    return list(dict.fromkeys(claim for side in found for claim in side.claims))


def _judged(claim: dict[str, Any] | None, control: bool) -> str:
    if claim is None:
        return NOT_JUDGED
    if claim["holds"] is None:  # the measured text says "not applicable", and why
        return f"– {claim['measured']}"
    return f"{signed(claim['holds'], control)}: {claim['measured']}"


def phases(found: Sequence[Side]) -> Table:
    """p99 of a bystander by phase and server."""
    rows = []
    for phase_id, name in phase_names(found).items():
        pair = [(side.view, side.view.run.phase(phase_id)) for side in found]
        rows.append([name, *(ms(view.p99(phase)) for view, phase in pair)])
    headings = ["phase", *(side.name for side in found)]
    return Table("p99 of a bystander's GET", headings, rows, frozenset(range(1, len(headings))))


def phase_names(found: Sequence[Side]) -> dict[str, str]:
    """Phase id → a name for all runs: the title. Where titles are alike with the id, without spoilers with a number."""
    titles = {phase.id: side.view.title(phase) for side in reversed(found) for phase in side.view.run.phases}
    order = list(dict.fromkeys(phase.id for side in found for phase in side.view.run.phases))
    alike = {title: [i for i in order if titles[i] == title] for title in titles.values()}
    names = {}
    for i in order:
        same = alike[titles[i]]
        mark = i if found[0].view.spoilers else same.index(i) + 1
        names[i] = titles[i] if len(same) == 1 else f"{titles[i]} ({mark})"
    return names


def meanings(found: Sequence[Side]) -> Table:
    """Return the titles of the phases that have neutral names in the page."""
    names = phase_names(found)
    rows = {
        phase.id: [names[phase.id], phase.title, phase.strategy]
        for side in reversed(found)
        for phase in side.view.run.phases
        if side.view.title(phase) != phase.title
    }
    return Table("What the phases were", ["in this page", "what it was", "strategy"], list(rows.values()))


def differences(found: Sequence[Side]) -> list[str]:
    """Conditions, other than the server, that make the figures hard to compare."""
    lines = []
    scanned = "COUNT" if found[0].view.spoilers else NAMELESS
    for what, read in (
        ("scenario", lambda facts: facts.scenario),
        ("pace", lambda facts: facts.pace),
        ("keys", lambda facts: count(facts.keys)),
        ("processor", lambda facts: f"{facts.host.get('processor')}, {facts.host.get('cores')} cores"),
        ("stack", lambda facts: facts.stack),
        (scanned, lambda facts: count(facts.scan_count)),
    ):
        values = dict.fromkeys(read(side.view.facts) for side in found)
        if len(values) > 1:
            lines.append(f"{what}: {'; '.join(values)}")
    return lines


def _over_keys(found: Sequence[Side]) -> list[charts.Point]:
    return [
        charts.Point(f"{side.name}: {side.view.name(phase)}", phase.keys, p99, side.name)
        for side in found
        for phase in side.view.run.arm(side.view.arms.rising)
        if (p99 := side.view.p99(phase)) is not None
    ]


def _by_phase(found: Sequence[Side]) -> list[charts.Point]:
    return [
        charts.Point(name, name, p99, side.name)
        for phase_id, name in phase_names(found).items()
        for side in found
        if (p99 := side.view.p99(side.view.run.phase(phase_id))) is not None
    ]


def side_by_side(console: Console, runs: Sequence[Run], spoilers: bool = False) -> None:
    """Print a row for each run (growth of p99, knee, verdict), p99 by phase, every claim, and where conditions differ.

    A partial run has dashes for what it lacks. Without spoilers nothing reveals the cause.
    """
    found = sides(runs, spoilers)
    claim_tables = [slow_logs(found), claims(found)] if spoilers else [outcomes(found)]
    for table in (overview(found), phases(found), *claim_tables):
        drawn = Drawn(title=table.caption, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for i, column in enumerate(table.headings):
            drawn.add_column(column, overflow="fold", justify="right" if i in table.figures else "left")
        for row in table.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)
        console.print()
    for line in differences(found):
        console.print(f"Not alike: {line}", highlight=False, markup=False)
    if not spoilers:
        console.print(
            "Claims, slow logs and phases by name: without --quiet-cause, or unfolded in the page.\n"
        )


def render(runs: Sequence[Run], spoilers: bool = False) -> str:
    """The page as HTML."""
    found = sides(runs, spoilers)
    stories = list({side.view.facts.scenario: side.view for side in found}.values())
    drawings: dict[str, Drawing] = {}

    def add(name: str, drawing: style.Chart, description: str) -> None:
        drawings[name] = draw(name, drawing, description)

    p99 = quantity("p99")
    if grown := _over_keys(found):
        add("growth", charts.lines(quantity("keys"), p99, SERVER, grown), "p99 over keys, by server.")
    if every := _by_phase(found):
        add("phases", charts.dots(p99, SERVER, every), "p99 of a bystander in each phase, by server.")
    own: list[tuple[Chart, list[tuple[str, str]]]] = []
    for chart in found[0].view.charts:
        drawn = []
        for i, side in enumerate(found):
            if charts.has_data(side.view, chart):
                add(f"{chart.id}-{i}", charts.draw(side.view, chart), charts.description(side.view, chart))
                drawn.append((f"{chart.id}-{i}", side.name))
        own.append((chart, drawn))
    return fill(
        "compare.html.j2",
        drawings,
        title=heading(stories[0]) if len(stories) == 1 else f"Runs of {len(stories)} scenarios",
        scenario=", ".join(view.facts.scenario for view in stories),
        stories=stories,
        meanings=meanings(found),
        spoilers=spoilers,
        sides=found,
        mood=mood,
        verdict=verdict,
        overview=overview(found),
        slow_logs=slow_logs(found),
        claims=claims(found),
        phases=phases(found),
        differences=differences(found),
        own=own,
        numbers=numbers,
    )
