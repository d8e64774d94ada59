"""What an event costs, as `bench.cost` kept it: tables, growth and plots from docs/cost.json; and the road to scale."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import altair as alt

from docs.pages.fromruns import table
from docs.pages.records import FOLDER
from lab.report import picture, style
from lab.results import numbers
from lab.results.basis import Range, of_run
from lab.results.folder import Run
from lab.results.prediction import Question, predict

FILE = Path("docs/cost.json")
NOT_YET = f"Not measured yet: `.venv/bin/python -m bench.cost --write {FILE}`."
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
"""How far the whole interval may lie from the promised power. Caches that run out make every key a little dearer."""
DECADES = 3
"""The powers of ten below the largest size that are fitted: fixed costs hide the growth among the smallest sizes."""
DRAWS = 1000
FEW = 10_000
"""Entries with which the largest size is compared: among fewer the calls themselves cost more than the visits."""
LEAST_US = 1.0
"""CPU time of an event in µs; less is none."""
PATTERNS = 3
"""Searches in one event: one for each area."""


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

    def said(self) -> str:
        """For a cell."""
        power, low, high = (f"{round(each, 2) + 0.0:.2f}" for each in (self.power, self.low, self.high))
        return f"{power} ({low} to {high})"


def parts(root: Path) -> dict[str, dict[str, Any]]:
    """What the benchmark kept, by its names."""
    path = root / FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def series(root: Path, name: str) -> dict[str, Any] | None:
    """The part with that series in which most strategies were measured."""
    found = [part for part in parts(root).values() if part["series"] == name]
    return max(found, key=lambda part: len({point["strategy"] for point in part["points"]}), default=None)


def growth(points: Sequence[dict[str, Any]], size: str, promised: int | None) -> Growth | None:
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
    return Growth(
        power(lambda rounds: rounds), drawn[round(0.025 * DRAWS)], drawn[round(0.975 * DRAWS) - 1], promised
    )


def by_strategy(part: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The points of each strategy, in the order in which they were measured."""
    for name in dict.fromkeys(point["strategy"] for point in part["points"]):
        yield name, [point for point in part["points"] if point["strategy"] == name]


def machine(part: dict[str, Any]) -> str:
    """The command of a part, where it was run and when."""
    return f"`{part['command']}`, {part['server']}, {part['machine']}; {part['date']}."


def growth_list(root: Path) -> str:
    """A row for each strategy: what an event costs at both ends of both series, and how it grows."""
    both = {name: series(root, name) for name in SERIES}
    rows: dict[str, list[str]] = {}
    heads = ["strategy"]
    for name, part in both.items():
        if part is None:
            return NOT_YET
        size = SERIES[name]
        ends = [pick(point[size] for point in part["points"]) for pick in (min, max)]
        who = "on the server" if name == "keys" else "of the user"
        heads += [*(f"{end:,} {who}" for end in ends), "power", "promised", "holds"]
        for strategy, points in by_strategy(part):
            found = growth(points, size, PROMISES[strategy][name])
            cells = [numbers.us(median(point["main_us"])) for point in (points[0], points[-1])]
            if found is None:
                cells += ["–", "–", "–"]
            else:
                holds = {True: "yes", False: "**no**", None: "–"}[found.holds]
                cells += [found.said(), "–" if found.promised is None else str(found.promised), holds]
            rows.setdefault(strategy, [f"`{strategy}`"]).extend(cells)
    said = " ".join(dict.fromkeys(machine(part) for part in both.values() if part))
    return f"{said}\n\n" + table(heads, list(rows.values()), range(1, len(heads)))


def freed_list(root: Path) -> str:
    """CPU time of the main thread and of the other threads for one event of the users with the most entries."""
    part = series(root, "entries")
    if part is None:
        return NOT_YET
    rows = []
    for strategy, points in by_strategy(part):
        last = points[-1]
        both = (
            numbers.us(took) if (took := median(last[threads])) >= LEAST_US else "–"
            for threads in ("main_us", "others_us")
        )
        rows.append([f"`{strategy}`", f"{last['own']:,}", *both])
    return table(["strategy", "entries of the user", "main thread", "other threads"], rows, range(1, 4))


def visits(part: dict[str, Any]) -> Iterator[tuple[str, int, float]]:
    """(strategy, entries on the server, ns of the main thread for each key visited), of the strategies that search.

    Each user has one key more than entries, the index set, and it is visited, too.
    """
    for strategy, points in by_strategy(part):
        if strategy in ("scan", "keys"):
            for point in points:
                ns = 1000 * median(point["main_us"]) / PATTERNS / point["keys"]
                yield strategy, point["entries"], ns


def visit_list(root: Path) -> str:
    """A visited key at each size, in every part that grew over keys, and how much dearer it became."""
    rows, said, grown = [], [], []
    for part in parts(root).values():
        if part["series"] != "keys":
            continue
        said.append(machine(part))
        found: dict[int, dict[str, float]] = {}
        for strategy, entries, ns in visits(part):
            found.setdefault(entries, {})[strategy] = ns
        many = max(found)
        grown += [
            f"A key among {many:,} entries costs `{name}` {numbers.times(found[many][name] / found[FEW][name])} "
            f"as much as among {FEW:,}."
            for name in ("scan", "keys")
            if name in found[many] and name in found.get(FEW, {})
        ]
        for entries, costs in found.items():
            cells = (f"{costs[name]:,.0f} ns" if name in costs else "–" for name in ("scan", "keys"))
            rows.append([f"{entries:,}", *cells])
    if not rows:
        return NOT_YET
    heads = ["entries", "`scan`, COUNT 1000", "`keys`"]
    return "\n\n".join([" ".join(dict.fromkeys(said)), table(heads, rows, range(3)), " ".join(grown)])


LARGEST = 50_000_000
"""Keys among which one event is timed under each strategy."""


def largest_list(root: Path) -> str:
    """One event among so many keys, under each strategy that was measured there: the median of its rounds."""
    kept = [part for part in parts(root).values() if part["series"] == "keys"]
    rows = [
        [f"`{strategy}`", f"{point['keys']:,}", numbers.us(median(point["main_us"])), f"`{part['command']}`"]
        for part in kept
        for strategy, points in by_strategy(part)
        for point in points
        if point["entries"] == LARGEST
    ]
    if not rows:
        return NOT_YET.replace("bench.cost", f"bench.cost --keys {LARGEST} --only keys")
    return table(["strategy", "keys", "server's time for one event", "command"], rows, (1, 2))


ROAD: tuple[tuple[str, float, int], ...] = (
    ("this laptop", 1e5, 1),
    ("five million", 5e6, 1),
    ("fifty million", 5e7, 1),
    ("fifty million", 5e7, 16),
    ("a billion", 1e9, 64),
    ("a billion", 1e9, 1000),
)
ROAD_RECORD = "key-growth-standard"
ROAD_EVENTS = 1.0


def road_list(root: Path) -> str:
    """From a laptop to a thousand shards: what `bin/lab predict` says of a search and of the index."""
    basis = of_run(Run(root / FOLDER / ROAD_RECORD))
    rows = []
    for name, keys, shards in ROAD:
        scan, index = (
            predict(basis, Question(keys, ROAD_EVENTS, basis.count, shards, strategy))
            for strategy in ("scan", "index")
        )
        assert scan.knee_keys is not None
        rows.append(
            [
                name,
                f"{keys:,.0f}",
                f"{shards:,}",
                _range(scan.event_s, lambda value: numbers.ms(1000 * value)),
                _range(scan.utilisation, numbers.percent),
                _range(scan.knee_events, numbers.sig),
                _range(index.knee_events, numbers.sig),
            ]
        )
    heads = [
        "",
        "keys in all",
        "shards",
        "`scan`: one event, on each shard",
        f"`scan`: demand at {ROAD_EVENTS:g} event a second",
        "`scan`: events a second that saturate",
        "`index`: events a second that saturate",
    ]
    command = (
        f"bin/lab predict docs/runs/{ROAD_RECORD} --keys N --events {ROAD_EVENTS:g} --shards N --strategy S"
    )
    return f"By `{command}`:\n\n" + table(heads, rows, range(1, len(heads)))


def _range(value: Range, said: Callable[[float], str]) -> str:
    return f"{said(value.low)} to {said(value.high)}"


LISTS: dict[str, Callable[[Path], str]] = {
    "growth": growth_list,
    "freed": freed_list,
    "visits": visit_list,
    "largest": largest_list,
    "road": road_list,
}

SHAPES = ["circle", "square", "triangle-up", "cross", "diamond", "triangle-down", "triangle-right"]


def cost_plot(root: Path) -> tuple[str, str] | None:
    """An event's cost over the keys on the server, and over the user's entries: SVG, and what it shows in words."""
    panels = []
    for name, title, axis in (
        ("keys", "20 entries of the user", "entries on the server"),
        ("entries", "100,000 entries of others", "entries of the user"),
    ):
        part = series(root, name)
        if part is None:
            return None
        rows: list[style.Row] = [
            {"strategy": strategy, "size": point[SERIES[name]], "ms": median(point["main_us"]) / 1000}
            for strategy, points in by_strategy(part)
            for point in points
            if median(point["main_us"]) > 0
        ]
        names = list(dict.fromkeys(str(row["strategy"]) for row in rows))
        colours = [style.CAUSE if PROMISES[each]["keys"] else style.CURE for each in names]
        across = style.log_scale([row["size"] for row in rows], floor=1)
        up = style.log_scale([row["ms"] for row in rows])
        shown = style.chart(rows).encode(
            x=alt.X("size:Q", scale=across, axis=_sizes(axis)),
            y=alt.Y("ms:Q", scale=up, axis=style.latency_axis("server's time for one event", up)),
            color=alt.Color("strategy:N", scale=alt.Scale(domain=names, range=colours), sort=names),
            shape=alt.Shape(
                "strategy:N", scale=alt.Scale(domain=names, range=SHAPES[: len(names)]), sort=names
            ),
        )
        panels.append(
            alt.layer(shown.mark_line(strokeWidth=1.5), shown.mark_point(size=70)).properties(
                width=(style.WIDTH - 260) // 2, height=330, title=title
            )
        )
    said = "The server's CPU time for one event under each strategy, over the entries on the server and of the user."
    drawing: style.Chart = alt.hconcat(*panels)
    return picture.svg(drawing, said), said


def visit_plot(root: Path) -> tuple[str, str] | None:
    """The time of a visited key over the keys on the server, with the caches of the machine: SVG, and words."""
    kept = [part for part in parts(root).values() if part["series"] == "keys"]
    if not kept:
        return None
    rows: list[style.Row] = [
        {"strategy": strategy, "keys": entries, "ns": ns, "series": number}
        for number, part in enumerate(kept)
        for strategy, entries, ns in visits(part)
    ]
    caches: list[style.Row] = [
        {"keys": size / kept[0]["key_bytes"], "text": f"{name} full"}
        for name, size in kept[0]["caches"].items()
        if size / kept[0]["key_bytes"] >= min(row["keys"] for row in rows)
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
    said = "The main thread's time for each visited key, over the entries on the server, with the machine's caches."
    return picture.svg(drawing, said), said


def _sizes(title: str) -> alt.Axis:
    words = (
        "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M' : "
        "datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' k' : format(datum.value, '~g')"
    )
    return alt.Axis(title=f"{title}, log scale", labelExpr=words, values=[10.0**n for n in range(9)])


PLOTS: dict[str, Callable[[Path], tuple[str, str] | None]] = {"cost": cost_plot, "visited key": visit_plot}
"""Pictures of a page that belong to no run; None where nothing was measured yet."""
