"""The cost of an event from the figures of `bench.cost`: its growth, tables for docs/scale.md, and two plots."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import altair as alt

from bench.kit import Evidence
from docs.pages.fromruns import table
from lab.report import picture, style
from lab.results import numbers

SERIES = {"keys": "entries", "entries": "own"}
"""The series, and the size that grows in each."""
PROMISES: dict[str, dict[str, int | None]] = {
    "scan": {"keys": 1, "entries": None},
    "keys": {"keys": 1, "entries": None},
    "exact": {"keys": 0, "entries": 1},
    "index": {"keys": 0, "entries": 1},
    "index-naive": {"keys": 0, "entries": 1},
    "hash": {"keys": 0, "entries": 0},
    "generation": {"keys": 0, "entries": 0},
}
"""The power of the size with which the cost grows, as the docstring of each strategy says. None: it says no single one
(a search visits all keys, and then deletes what it found)."""
SLACK = 0.25
"""The largest distance of the interval from the promised power. When caches run out, every key costs a little more."""
DECADES = 3
"""The powers of ten below the largest size that are fitted: fixed costs hide the growth among the smallest sizes."""
DRAWS = 1000
FEW = 10_000
"""Entries with which the largest size is compared: among fewer the calls themselves cost more than the visits."""
LEAST_US = 1.0
"""CPU time of an event in µs; less is none."""
PATTERNS = 3
"""Searches in one event: one for each area."""
LARGEST = 50_000_000
"""Keys among which one event is timed under each strategy."""

Part = dict[str, Any]
Records = dict[str, Part]


@dataclass(frozen=True)
class Growth:
    """The power with which the cost grows with the size, with its 95 % interval, and what was promised."""

    power: float
    low: float
    high: float
    promised: int | None

    @property
    def holds(self) -> bool | None:
        """True if the whole interval lies near the promise; None without one."""
        if self.promised is None:
            return None
        return self.promised - SLACK <= self.low and self.high <= self.promised + SLACK

    def cells(self) -> list[str]:
        """The power with its interval, the promise, and whether it holds."""
        power, low, high = (f"{round(each, 2) + 0.0:.2f}" for each in (self.power, self.low, self.high))
        holds = {True: "yes", False: "**no**", None: "–"}[self.holds]
        return [f"{power} ({low} to {high})", "–" if self.promised is None else str(self.promised), holds]


def growth(points: Sequence[Part], size: str, promised: int | None) -> Growth | None:
    """Fit the logarithm of the cost over that of the size: a line through the medians of the rounds (least squares).

    The interval comes from a bootstrap that draws the rounds of each size. None with fewer than three sizes.
    """
    largest = max(point[size] for point in points)
    fitted = [point for point in points if point[size] * 10**DECADES >= largest * 0.99]
    if len(fitted) < 3:
        return None
    draw = random.Random(1)
    sizes = [math.log(point[size]) for point in fitted]

    def power(chosen: Callable[[list[float]], list[float]]) -> float:
        costs = [math.log(max(median(chosen(point["main_us"])), 0.1)) for point in fitted]
        middle, level = sum(sizes) / len(sizes), sum(costs) / len(costs)
        above = sum((x - middle) * (y - level) for x, y in zip(sizes, costs, strict=True))
        return above / sum((x - middle) ** 2 for x in sizes)

    drawn = sorted(power(lambda rounds: draw.choices(rounds, k=len(rounds))) for _ in range(DRAWS))
    low, high = drawn[round(0.025 * DRAWS)], drawn[round(0.975 * DRAWS) - 1]
    return Growth(power(lambda rounds: rounds), low, high, promised)


def series(records: Records, name: str) -> Part:
    """The part with that series in which most strategies were measured."""
    found = [part for part in records.values() if part["series"] == name]
    return max(found, key=lambda part: len(list(by_strategy(part))), default={"points": []})


def by_strategy(part: Part) -> Iterator[tuple[str, list[Part]]]:
    """The points of each strategy, in the order in which they were measured."""
    for name in dict.fromkeys(point["strategy"] for point in part["points"]):
        yield name, [point for point in part["points"] if point["strategy"] == name]


def _made_by(parts: Sequence[Part]) -> str:
    """The commands of some parts, where they were run and when."""
    sentences = [
        f"`{part['command']}`, {part['server']}, {part['machine']}; {part['date']}." for part in parts
    ]
    return " ".join(dict.fromkeys(sentences))


def growth_table(records: Records) -> str:
    """A row for each strategy: what an event costs at both ends of both series, and how it grows."""
    parts = {name: part for name in SERIES if (part := series(records, name))["points"]}
    rows: dict[str, list[str]] = {}
    heads = ["strategy"]
    for name, part in parts.items():
        size = SERIES[name]
        ends = [pick(point[size] for point in part["points"]) for pick in (min, max)]
        who = "on the server" if name == "keys" else "of the user"
        heads += [*(f"{end:,} {who}" for end in ends), "power", "promised", "holds"]
        for strategy, points in by_strategy(part):
            found = growth(points, size, PROMISES[strategy][name])
            costs = [numbers.us(median(point["main_us"])) for point in (points[0], points[-1])]
            row = rows.setdefault(strategy, [f"`{strategy}`"])
            row += [*costs, *(found.cells() if found else ["–"] * 3)]
    return f"{_made_by(list(parts.values()))}\n\n{table(heads, list(rows.values()), range(1, len(heads)))}"


def freed_table(records: Records) -> str:
    """CPU time of the main thread and of the other threads for one event of the users with the most entries."""
    rows = []
    for strategy, points in by_strategy(series(records, "entries")):
        took = [median(points[-1][threads]) for threads in ("main_us", "others_us")]
        both = (numbers.us(each) if each >= LEAST_US else "–" for each in took)
        rows.append([f"`{strategy}`", f"{points[-1]['own']:,}", *both])
    return table(["strategy", "entries of the user", "main thread", "other threads"], rows, range(1, 4))


def visits(part: Part) -> Iterator[tuple[str, int, float]]:
    """(strategy, entries on the server, ns of the main thread for each key visited), of the strategies that search.

    Each user has one key more than entries, the index set, and it is visited, too.
    """
    for strategy, points in by_strategy(part):
        if strategy in ("scan", "keys"):
            for point in points:
                yield strategy, point["entries"], 1000 * median(point["main_us"]) / PATTERNS / point["keys"]


def over_keys(records: Records) -> list[Part]:
    """The parts that grew over keys."""
    return [part for part in records.values() if part["series"] == "keys"]


def visit_sentences(records: Records) -> str:
    """Return sentences on the growth of a visited key's cost, for every part that grew over keys."""
    sentences = []
    for part in over_keys(records):
        found = {(strategy, entries): ns for strategy, entries, ns in visits(part)}
        many = max(entries for _, entries in found) if found else 0
        sentences += [
            f"A key among {many:,} entries costs `{name}` {found[name, many]:,.0f} ns, "
            f"{numbers.times(found[name, many] / found[name, FEW])} as much as among {FEW:,}."
            for name in ("scan", "keys")
            if (name, many) in found and (name, FEW) in found
        ]
    return "\n\n".join([_made_by(over_keys(records)), " ".join(sentences)])


def largest_table(records: Records) -> str:
    """Return a row for each strategy measured among `LARGEST` keys: the median cost of an event."""
    rows = [
        [f"`{strategy}`", f"{point['keys']:,}", numbers.us(median(point["main_us"])), f"`{part['command']}`"]
        for part in over_keys(records)
        for strategy, points in by_strategy(part)
        for point in points
        if point["entries"] == LARGEST
    ]
    return table(["strategy", "keys", "server's time for one event", "command"], rows, (1, 2))


SHAPES = ["circle", "square", "triangle-up", "cross", "diamond", "triangle-down", "triangle-right"]
COST_TEXT = (
    "The server's CPU time for one event under each strategy, over the entries on the server and of the user."
)
VISIT_TEXT = (
    "The main thread's time for each visited key, over the entries on the server, with the machine's caches."
)


def cost_plot(records: Records) -> str:
    """An event's cost over the keys on the server, and over the user's entries, as SVG."""
    panels = []
    for name, title, axis in (
        ("keys", "20 entries of the user", "entries on the server"),
        ("entries", "100,000 entries of others", "entries of the user"),
    ):
        rows: list[style.Row] = [
            {"strategy": strategy, "size": point[SERIES[name]], "ms": median(point["main_us"]) / 1000}
            for strategy, points in by_strategy(series(records, name))
            for point in points
            if median(point["main_us"]) > 0
        ]
        names = list(dict.fromkeys(str(row["strategy"]) for row in rows))
        colours = [style.CAUSE if PROMISES[each]["keys"] else style.CURE for each in names]
        across = style.log_scale([row["size"] for row in rows], floor=1)
        up = style.log_scale([row["ms"] for row in rows])
        scales = [
            alt.Scale(domain=names, range=colours),
            alt.Scale(domain=names, range=SHAPES[: len(names)]),
        ]
        shown = style.chart(rows).encode(
            x=alt.X("size:Q", scale=across, axis=_sizes(axis)),
            y=alt.Y("ms:Q", scale=up, axis=style.latency_axis("server's time for one event", up)),
            color=alt.Color("strategy:N", scale=scales[0], sort=names),
            shape=alt.Shape("strategy:N", scale=scales[1], sort=names),
        )
        lines = alt.layer(shown.mark_line(strokeWidth=1.5), shown.mark_point(size=70))
        panels.append(lines.properties(width=(style.WIDTH - 260) // 2, height=330, title=title))
    drawing: style.Chart = alt.hconcat(*panels)
    return picture.svg(drawing, COST_TEXT)


def visit_plot(records: Records) -> str:
    """The time of a visited key over the keys on the server, with the caches of the machine, as SVG."""
    parts = over_keys(records)
    rows: list[style.Row] = [
        {"strategy": strategy, "keys": entries, "ns": ns, "series": number}
        for number, part in enumerate(parts)
        for strategy, entries, ns in visits(part)
    ]
    caches: list[style.Row] = [
        {"keys": size / parts[0]["key_bytes"], "text": f"{name} full"}
        for name, size in parts[0]["caches"].items()
        if size / parts[0]["key_bytes"] >= min(row["keys"] for row in rows)
    ]
    across = style.log_scale([row["keys"] for row in rows], floor=1)
    x = alt.X("keys:Q", scale=across, axis=_sizes("entries on the server"))
    names = list(dict.fromkeys(str(row["strategy"]) for row in rows))
    shown = style.chart(rows).encode(
        x=x,
        y=alt.Y("ns:Q", scale=alt.Scale(domainMin=0), axis=alt.Axis(title="main thread, ns for each key")),
        detail=alt.Detail("series:N"),
        color=alt.Color("strategy:N", scale=alt.Scale(domain=names, range=[style.CAUSE, style.CURE])),
        shape=alt.Shape("strategy:N", scale=alt.Scale(domain=names, range=SHAPES[: len(names)])),
    )
    marks = style.chart(caches)
    drawing: style.Chart = alt.layer(
        marks.mark_rule(strokeDash=[3, 3], color=style.INK).encode(x=x),
        marks.mark_text(align="left", dx=6).encode(x=x, y=style.y_at(14), text=alt.Text("text:N")),
        shown.mark_line(strokeWidth=1.5),
        shown.mark_point(size=90),
    ).properties(width=style.WIDTH - 260, height=330)
    return picture.svg(drawing, VISIT_TEXT)


def _sizes(title: str) -> alt.Axis:
    words = (
        "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M' : "
        "datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' k' : format(datum.value, '~g')"
    )
    return alt.Axis(title=f"{title}, log scale", labelExpr=words, values=[10.0**n for n in range(9)])


PLOTS: dict[str, Callable[[Records], str]] = {"cost": cost_plot, "visited-key": visit_plot}
EVIDENCE = Evidence(
    "docs/cost.json",
    {
        "docs/scale.md": {
            "growth": growth_table,
            "freed": freed_table,
            "visits": visit_sentences,
            "largest": largest_table,
        }
    },
)


def draw(evidence: Evidence) -> None:
    """Draw the plots of a page again, where both series were measured."""
    records = evidence.records()
    if all(series(records, name)["points"] for name in SERIES):
        for name, plot in PLOTS.items():
            (evidence.root / "docs/plots" / f"{name}.svg").write_text(plot(records))
