"""Parts of a record as Markdown: facts, claims, phases, plots, and figures in a sentence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from docs.pages.records import USUAL_PACE, Records, nearest
from lab.claims.wording import outcome
from lab.errors import UsageError
from lab.report.axes import display_unit
from lab.report.conclusions import Judged, Section
from lab.report.picture import named
from lab.report.prose import sections
from lab.report.quantities import BYTES_IN, MS_IN, Quantity, quantity
from lab.report.view import RunView
from lab.results import numbers
from lab.results.folder import PhaseRecord, RunFacts

ONLY = "only="


def cell(text: str) -> str:
    """A text, escaped for a cell of a table."""
    return text.replace("|", "\\|")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], figures: Sequence[int] = ()) -> str:
    """A Markdown table; columns of `figures` are set to the right."""
    rule = "|".join("---:" if i in figures else "---" for i in range(len(headings)))
    head, *lines = [
        ("| " + " | ".join(map(cell, row)) + " |").replace("|  ", "| ") for row in (headings, *rows)
    ]
    return "\n".join([head, f"|{rule}|", *lines])


def machine(facts: RunFacts) -> str:
    """Return the machine and the server of a run."""
    return f"{facts.host['cores']} cores of {facts.host['processor']}, {facts.server} {facts.server_version}"


def facts(view: RunView, _: Sequence[str]) -> str:
    """Return a line with the run's command, machine, size, load and day."""
    about = view.facts
    day = datetime.fromisoformat(about.started)
    load = (
        f", {about.load['reads_per_second']:.0f} reads a second" if about.load.get("reads_per_second") else ""
    )
    if events := about.load.get("events_per_second"):
        load = f", {events:.1f} events{load.replace(',', ' and') or ' a second'}"
    size = f"{about.keys:,} keys" + (f", COUNT {view.count:,}" if view.count else "")
    return f"Measured by `{about.command}` on {machine(about)}, {size}{load} ({day.day} {day:%B %Y}):"


TYPED = re.compile(r"^(?!Measured by|You will wait).*?bin/lab run ([a-z-]+)(?: --pace (\w+))?", re.MULTILINE)
"""A run that a page asks its readers to make. Lines that this module makes name runs too, and are left out."""


def waiting(text: str, records: Records) -> str:
    """A sentence on how long the runs of a page take, by their records. A control takes as long as its scenario.

    A run counts as often as the page asks for it. Raises `UsageError` when the page asks for one that has no record.
    """
    runs_named = Counter((name, pace or "standard") for name, pace in TYPED.findall(text))
    parts, halves = [], 0
    for (name, pace), often in runs_named.items():
        whole = "key-growth" if name == "control" else name.removesuffix("-control")
        about = records.view(whole if pace == USUAL_PACE else f"{whole}-{pace}").facts
        seconds = about.phases[-1].t1 - datetime.fromisoformat(about.started).timestamp()
        each = max(1, math.ceil(seconds / 30))
        halves += often * each
        took = _minutes(each) if often == 1 else f"{often} times {_minutes(each)}"
        parts.append(f"`bin/lab run {name} --pace {pace}` {took}")
    runs = f" ({', '.join(parts)})" if runs_named.total() > 1 else ""
    return f"You will wait about {_minutes(halves)} for runs{runs}; the rest is yours."


def _minutes(halves: int) -> str:
    """A number of half minutes in words."""
    whole, half = divmod(halves, 2)
    text = f"{whole or ''}{'½' if half else ''}"
    return f"{text} minute{'s' if halves > 2 else ''}"


def claims(view: RunView, wanted: Sequence[str]) -> str:
    """Claims with bound, measurement and verdict: those asked for, or all."""
    chosen = [_claim(view, name) for name in wanted] or (view.result or {})["claims"]
    return table(
        ["claim", "bound", "measured", ""],
        [[c["statement"], c["bound"], c["measured"], outcome(c["holds"])] for c in chosen],
    )


def _claim(view: RunView, name: str) -> dict[str, Any]:
    known = {claim["id"]: claim for claim in (view.result or {})["claims"]}
    if name not in known:
        raise UsageError(f"{view.facts.scenario} has no claim {name!r}; {nearest(name, list(known))}")
    return dict(known[name])


def phases(view: RunView, words: Sequence[str]) -> str:
    """A table of figures by phase, with the units in the heads."""
    only = [part for word in words if word.startswith(ONLY) for part in word.removeprefix(ONLY).split(",")]
    shown = [_figure(view, word) for word in words if not word.startswith(ONLY)]
    if not shown:
        raise UsageError("which figures? Name some, such as p99, keys or utilisation.")
    names = [name for phase in view.run.phases for name in (phase.id, phase.arm)]
    for name in only:
        if name not in names:
            raise UsageError(f"{view.facts.scenario} has no phase or arm {name!r}; {nearest(name, names)}")
    rows = [phase for phase in view.run.phases if not only or phase.id in only or phase.arm in only]
    columns = [_column(view, what, rows) for what in shown]
    heads, cells = zip(*columns, strict=True)
    body = [[view.name(phase), *(column[i] for column in cells)] for i, phase in enumerate(rows)]
    return table(["phase", *heads], body, range(1, len(heads) + 1))


def _column(view: RunView, what: Quantity, rows: Sequence[PhaseRecord]) -> tuple[str, list[str]]:
    """Head and cells, all in one unit: the one that suits the largest value."""
    values = [what.read(phase, view.latencies) for phase in rows]
    known = [value for value in values if isinstance(value, int | float)]
    if what.unit in MS_IN and known:
        factor, unit = display_unit(max(known) * MS_IN[what.unit])
        factor *= MS_IN[what.unit]
    elif what.unit in BYTES_IN and known:
        factor, unit = BYTES_IN[what.unit] / 1e6, "MB"
        if max(known) * factor < 1:
            factor, unit = BYTES_IN[what.unit], "bytes"
    elif what.unit == "share":
        factor, unit = 100.0, "%"
    else:
        return what.axis, [what.text(value).removesuffix(f" {what.unit}") for value in values]
    cells = [
        _number(value * factor, unit) if isinstance(value, int | float) else numbers.UNKNOWN
        for value in values
    ]
    return f"{what.label}, {unit}", cells


def _number(value: float, unit: str) -> str:
    return numbers.count(value) if unit in ("%", "bytes") else numbers.sig(value)


def _figure(view: RunView, name: str) -> Quantity:
    """The quantity of that name: one of the report's, or a figure or param of the phases by its bare name."""
    measured = {figure for phase in view.run.phases for figure in phase.figures}
    given = {param for phase in view.run.phases for param in phase.params}
    commands = {f"{kind}:{name}" for p in view.run.phases for name in p.commands for kind in ("rate", "exec")}
    if name in measured:
        return quantity(f"figure:{name}")
    if name in given:
        return quantity(f"param:{name}")
    if ":" in name and name.split(":")[0] in ("rate", "exec") and name not in commands:
        raise UsageError(f"{view.facts.scenario} ran no {name!r}; {nearest(name, sorted(commands))}")
    try:
        return quantity(name)
    except ValueError:
        known = ["p99", "p50", "max", "keys", "utilisation", "demand", "memory", *measured, *given, *commands]
        raise UsageError(f"there is no figure {name!r}; {nearest(name, sorted(known))}") from None


def figure(view: RunView, words: Sequence[str]) -> str:
    """A figure in a sentence: a claim's measured text, one of its figures, a quantity of a phase, or a ratio of two."""
    if not words:
        raise UsageError("a mark `fig` needs a record and a claim, or a record, a phase and a quantity.")
    if phase := view.run.phase(words[0]):
        if len(words) != 2:
            raise UsageError(f"which figure of phase {phase.id!r}? Name one, such as p99 or keys.")
        what = _figure(view, words[1])
        value = what.read(phase, view.latencies)
        return f"{what.text(value)} a second" if what.unit == "/s" else what.text(value)
    pair = [view.run.phase(name) for name in words[0].split("/")]
    if len(pair) == len(words) == 2 and all(pair):
        over, under = (_figure(view, words[1]).read(phase, view.latencies) for phase in pair if phase)
        if not isinstance(over, int | float) or not isinstance(under, int | float) or not under:
            raise UsageError(f"there is no ratio of {words[1]} in {words[0]}.")
        return numbers.times(over / under)
    known = [claim["id"] for claim in (view.result or {})["claims"]]
    if words[0] not in known:
        both = [*known, *(phase.id for phase in view.run.phases)]
        raise UsageError(
            f"{view.facts.scenario} has no claim or phase {words[0]!r}; {nearest(words[0], both)}"
        )
    claim = next(claim for claim in (view.result or {})["claims"] if claim["id"] == words[0])
    if len(words) == 1:
        return cell(claim["measured"])
    if words[1] not in claim["figures"]:
        raise UsageError(
            f"claim {words[0]!r} has no figure {words[1]!r}; {nearest(words[1], list(claim['figures']))}"
        )
    return _worded(words[1], claim["figures"][words[1]])


def _worded(name: str, value: float) -> str:
    """Return a claim's figure with the unit that its name implies."""
    what = quantity(f"figure:{name}")
    if name == "ratio" or name.endswith("_ratio"):
        return numbers.times(value)
    return f"{what.text(value)} a second" if what.unit == "/s" else what.text(value)


def explained(view: RunView, words: Sequence[str]) -> str:
    """Return the text of `lab report --story`, or its parts whose headings begin with one of the words."""
    found = sections(view, Judged.read(view.result or {}))
    for word in words:
        if not any(_begins(part.heading, word) for part in found):
            raise UsageError(f"no part is called {word!r}; {nearest(word, [part.heading for part in found])}")
    chosen = [part for part in found if not words or any(_begins(part.heading, word) for word in words)]
    return "\n\n".join(_part(part) for part in chosen)


def _begins(heading: str, word: str) -> bool:
    return heading.lower().replace(" ", "-").startswith(word.lower())


def _part(part: Section) -> str:
    lines = [" ".join([f"**{part.heading}.**", *part.sentences])]
    return "\n".join([*lines, *([""] if part.points else []), *(f"- {point}" for point in part.points)])


def plot(view: RunView, words: Sequence[str]) -> tuple[str, str]:
    """A chart as SVG, and what it shows in words."""
    if len(words) != 1:
        raise UsageError("a plot needs the name of one chart.")
    return named(view, words[0])


KINDS: dict[str, Callable[[RunView, Sequence[str]], str]] = {
    "facts": facts,
    "claims": claims,
    "phases": phases,
    "explain": explained,
}
"""Kinds of block that are text alone. A plot writes a file as well."""
