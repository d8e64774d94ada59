"""Several runs of a scenario side by side, one for each server: tables, charts and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lab.claims.wording import signed
from lab.report import charts, style
from lab.report.page import Drawing, draw, fill
from lab.report.quantities import Quantity, quantity
from lab.report.story import mood, verdict
from lab.report.tables import Table
from lab.report.view import BEFORE, RunView
from lab.results import numbers
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import UNKNOWN, count, ms, percent, ratio, sig, times
from lab.scenarios.model import Chart

SERVER = Quantity("server", "server", "", lambda phase, seen: None)
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Side:
    """One run of the comparison, and what to call it."""

    name: str
    view: RunView

    @cached_property
    def claims(self) -> dict[str, dict[str, Any]]:
        """Judged claims by id."""
        return {claim["id"]: claim for claim in (self.view.result or {}).get("claims", [])}


def sides(runs: Sequence[Run]) -> list[Side]:
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
    return [Side(name, RunView(run)) for name, run in zip(names, runs, strict=True)]


def growth(view: RunView) -> tuple[PhaseRecord, PhaseRecord] | None:
    """The phases between which a bystander's p99 grew: few and all keys, or else the best and the worst of all."""
    low, high = view.first(BEFORE), view.top(BEFORE)
    if low is None or low is high:
        low, high = view.best, view.worst
    return (low, high) if low and high and low is not high else None


def overview(found: Sequence[Side]) -> Table:
    """One row for each server: growth of p99, knee, slow log, cost of a scanned key, verdict."""
    headings = [
        "server",
        "p99 of a bystander",
        "growth",
        "knee, keys",
        "slow log",
        "a scanned key",
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
                _slow(view),
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


def _slow(view: RunView) -> str:
    """Commands by their share of the slow log."""
    named = Counter(row["command"] for row in view.run.slowlog if row.get("command"))
    if not named:
        return "empty"
    whole = sum(named.values())
    shares = ", ".join(f"{name} {percent(n / whole)}" for name, n in named.most_common(4))
    return f"{shares} of {count(whole)}"


def claims(found: Sequence[Side]) -> Table:
    """One row for each claim, with its outcome and measurement on each server."""
    known = dict.fromkeys(claim for side in found for claim in side.claims)
    rows = []
    for claim_id in known:
        all_of_it = next(side.claims[claim_id] for side in found if claim_id in side.claims)
        cells = [_judged(side.claims.get(claim_id), side.view.control) for side in found]
        rows.append([f"{all_of_it['statement']} ({all_of_it['bound']})", *cells])
    return Table("Claims on each server", ["claim", *(side.name for side in found)], rows)


def _judged(claim: dict[str, Any] | None, control: bool) -> str:
    if claim is None:
        return NOT_JUDGED
    if claim["holds"] is None:  # the measured text says "not applicable", and why
        return f"– {claim['measured']}"
    return f"{signed(claim['holds'], control)}: {claim['measured']}"


def phases(found: Sequence[Side]) -> Table:
    """p99 of a bystander by phase and server."""
    rows = []
    for phase_id, name in _phase_names(found).items():
        pair = [(side.view, side.view.run.phase(phase_id)) for side in found]
        rows.append([name, *(ms(view.p99(phase)) for view, phase in pair)])
    headings = ["phase", *(side.name for side in found)]
    return Table("p99 of a bystander's GET", headings, rows, frozenset(range(1, len(headings))))


def _phase_names(found: Sequence[Side]) -> dict[str, str]:
    """Phase id → a name for all runs: the title, with the id added where titles are alike."""
    titles = {phase.id: phase.title for side in reversed(found) for phase in side.view.run.phases}
    order = dict.fromkeys(phase.id for side in found for phase in side.view.run.phases)
    several = Counter(titles.values())
    return {i: titles[i] if several[titles[i]] == 1 else f"{titles[i]} ({i})" for i in order}


def differences(found: Sequence[Side]) -> list[str]:
    """Conditions, other than the server, that make the figures hard to compare."""
    said = []
    for what, of in (
        ("scenario", lambda facts: facts.scenario),
        ("pace", lambda facts: facts.pace),
        ("keys", lambda facts: count(facts.keys)),
        ("processor", lambda facts: f"{facts.host.get('processor')}, {facts.host.get('cores')} cores"),
        ("stack", lambda facts: facts.stack),
        ("COUNT", lambda facts: count(facts.scan_count)),
    ):
        values = dict.fromkeys(of(side.view.facts) for side in found)
        if len(values) > 1:
            said.append(f"{what}: {'; '.join(values)}")
    return said


def _over_keys(found: Sequence[Side]) -> list[charts.Point]:
    return [
        charts.Point(f"{side.name}: {side.view.name(phase)}", phase.keys, p99, side.name)
        for side in found
        for phase in side.view.run.arm(BEFORE)
        if (p99 := side.view.p99(phase)) is not None
    ]


def _by_phase(found: Sequence[Side]) -> list[charts.Point]:
    return [
        charts.Point(name, name, p99, side.name)
        for phase_id, name in _phase_names(found).items()
        for side in found
        if (p99 := side.view.p99(side.view.run.phase(phase_id))) is not None
    ]


def render(runs: Sequence[Run]) -> str:
    """The page as HTML."""
    found = sides(runs)
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
        title=found[0].view.facts.title,
        scenario=found[0].view.facts.scenario,
        sides=found,
        mood=mood,
        verdict=verdict,
        overview=overview(found),
        claims=claims(found),
        phases=phases(found),
        differences=differences(found),
        own=own,
        numbers=numbers,
    )
