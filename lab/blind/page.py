"""The page to keep: the cause, its evidence, its look-alikes, the notes and the score. One file, opens offline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import log10
from pathlib import Path
from typing import Any

from lab.blind.cause import Cause
from lab.blind.causes import CAUSES
from lab.blind.journal import Journal
from lab.blind.readings import Readings, SessionSample, UserFigures
from lab.templates import templates

HERE = Path(__file__).parent
STYLE = HERE.parent / "report" / "page.css"
WIDTH, HEIGHT, LEFT, BOTTOM, NAMES = 1000, 260, 70, 40, 190
TOP_COMMANDS = 6


@dataclass(frozen=True)
class SessionFacts:
    """A session as the page describes it.

    `sealed`: the cause was hidden. `seed`: the number that chose it, None without one. `begun_at`: Unix seconds.
    `healthy`: figures of users when all was well; `now`: the readings before the reveal; `samples`: all samples, each
    with its seconds since the cause began (negative: while all was well).
    """

    causes: tuple[Cause, ...]
    sealed: bool
    seed: int | None
    begun_at: float
    healthy: UserFigures
    now: Readings
    samples: list[tuple[float, SessionSample]]
    journal: Journal


@dataclass(frozen=True)
class Curve:
    """A curve in the page's plot."""

    name: str
    points: str
    dash: str
    end: float


def write(facts: SessionFacts, path: Path) -> Path:
    """Write the page of a session; return its path."""
    journal, now = facts.journal, facts.now
    others = {
        cause.id: [(CAUSES[other], how, CAUSES[other].evidence(now)) for other, how in cause.alike.items()]
        for cause in facts.causes
    }
    spent = sorted(now.commands.items(), key=lambda item: -item[1].share)[:TOP_COMMANDS]
    text = (
        templates(HERE)
        .get_template("page.html.j2")
        .render(
            style=STYLE.read_text(),
            facts=facts,
            causes=facts.causes,
            findings={cause.id: cause.evidence(now) for cause in facts.causes},
            others=others,
            now=now,
            healthy=facts.healthy,
            journal=journal,
            began=datetime.fromtimestamp(facts.begun_at).strftime("%d %B %Y, %H:%M"),
            clock=lambda at: datetime.fromtimestamp(at).strftime("%H:%M:%S"),
            spent=spent,
            plot=plot(facts.samples),
        )
    )
    path.write_text(text)
    return path


def plot(samples: list[tuple[float, SessionSample]]) -> dict[str, Any]:
    """Return the plot of a page's and a GET's p99 on a logarithmic scale: two curves that differ by dash and name."""
    rows = [(at, sample.page_ms, sample.get_ms) for at, sample in samples]
    first, last = rows[0][0], max(rows[-1][0], rows[0][0] + 1)
    values = [value for _, *both in rows for value in both if value > 0] or [1.0]
    low, high = 0.1, 1.0
    while high < max(values):
        high *= 10
    while low * 10 < min(values):
        low *= 10
    steps = []
    tick = low
    while tick <= high * 1.001:
        steps.append((_y(tick, low, high), f"{tick:g} ms" if tick < 1000 else f"{tick / 1000:g} s"))
        tick *= 10

    def x_of(at: float) -> float:
        return LEFT + (at - first) / (last - first) * (WIDTH - LEFT - NAMES)

    lines = []
    for name, dash, column in (("a page", "", 1), ("a bystander's GET", "7 5", 2)):
        points = [f"{x_of(row[0]):.1f},{_y(max(row[column], low), low, high):.1f}" for row in rows]
        lines.append(Curve(name, " ".join(points), dash, float(points[-1].split(",")[1])))
    if abs(lines[0].end - lines[1].end) < 18:  # names must not cover each other
        lines[1] = Curve(lines[1].name, lines[1].points, lines[1].dash, lines[0].end + 20)
    return {"lines": lines, "steps": steps, "begun": x_of(0.0), "seconds": last - max(0.0, first)}


def _y(value: float, low: float, high: float) -> float:
    share = (log10(value) - log10(low)) / (log10(high) - log10(low))
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 16)
