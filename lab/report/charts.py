"""A scenario's own charts: lines, bars and heat maps of its phases' quantities.

An axis is logarithmic if its values span more than two decades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from lab.report import curves, style, timeseries
from lab.report.axes import DECADES, Axis, numeric
from lab.report.quantities import Quantity, Value, quantity
from lab.report.style import Row
from lab.report.view import RunView
from lab.scenarios.model import Chart

HEIGHT, WIDTH, STEP = 380, style.WIDTH - 330, 36
SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left",
)  # fmt: skip
DASHES = ([1, 0], [10, 4], [3, 3], [14, 3, 3, 3], [6, 6], [2, 6], [18, 5], [8, 2, 2, 2])
COLOURS = (style.CAUSE, style.CURE, style.INK, "#00704f", "#8b3f86", "#8a6d00", style.FOURTH, "#2f87c4")
"""Distinct with any kind of colour blindness, and dark enough for a projector. Shape and dash repeat the meaning."""


GROWTH = {"plateaus": curves.scatter, "percentiles": curves.percentiles, "demand": curves.utilisation}
"""Charts of a run whose keys grow before the cure and after it."""


@dataclass(frozen=True)
class Point:
    """A phase in a chart: its name, its place, and the series it belongs to."""

    phase: str
    x: Value
    y: float
    by: Value


def points(view: RunView, chart: Chart) -> list[Point]:
    """Return a chart's points: one for each measured phase that has all of its quantities."""
    x, y = quantity(chart.x), quantity(chart.y)
    by = quantity(chart.by) if chart.by else None
    found = []
    for phase in view.run.phases:
        if chart.arm and phase.arm != chart.arm:
            continue
        at, value = x.read(phase, view.latencies), y.read(phase, view.latencies)
        series = by.read(phase, view.latencies) if by else ""
        if at is None or series is None or not isinstance(value, int | float):
            continue
        if math.isfinite(value):
            found.append(Point(view.name(phase), at, float(value), series))
    return found


def draw(view: RunView, chart: Chart) -> style.Chart:
    """Draw the chart; without any point it is empty axes. Raises `ValueError` for an unknown kind."""
    if chart.kind == "moments":
        return timeseries.timeseries(view, chart)
    if chart.kind in GROWTH:
        return GROWTH[chart.kind](view)
    kinds = {"lines": lines, "bars": bars, "heat": heat}
    if chart.kind not in kinds:
        raise ValueError(f"chart {chart.id}: there is no kind {chart.kind!r}")
    by = quantity(chart.by) if chart.by else None
    return kinds[chart.kind](quantity(chart.x), quantity(chart.y), by, points(view, chart))


def description(view: RunView, chart: Chart) -> str:
    """Describe a chart in words."""
    if chart.kind == "moments":
        return timeseries.description(view, chart)
    if chart.kind in GROWTH:
        return f"{chart.title}. {remark(view, chart)}".rstrip()
    x, y = quantity(chart.x), quantity(chart.y)
    each = f", for each {quantity(chart.by).axis}" if chart.by else ""
    text = f"{chart.title}. {y.axis} over {x.axis}{each}."
    found = points(view, chart)
    if found:
        low, high = min(found, key=lambda p: p.y), max(found, key=lambda p: p.y)
        text += f" From {y.text(low.y)} ({low.phase}) to {y.text(high.y)} ({high.phase})."
    return text


def has_data(view: RunView, chart: Chart) -> bool:
    """True if the run measured anything that the chart shows."""
    if chart.kind in GROWTH:
        return bool(view.run.phases)
    return bool(timeseries.lines(view, chart) if chart.kind == "moments" else points(view, chart))


def remark(view: RunView, chart: Chart) -> str:
    """A sentence about what this run's chart shows; empty for charts that need none."""
    return curves.knee(view) if chart.kind in ("plateaus", "demand") else ""


def _order(values: Sequence[Value]) -> list[Value]:
    """Distinct values: numbers by size, words in the order of the run."""
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in distinct):
        return sorted(distinct, key=lambda value: float(value or 0.0))
    return distinct


def _floats(values: Sequence[Value]) -> list[float] | None:
    numbers = [value for value in values if isinstance(value, int | float)]
    return [float(value) for value in numbers] if len(numbers) == len(values) else None


def _styles(series: list[str]) -> dict[str, alt.Scale]:
    n = len(series)
    return {
        "shape": alt.Scale(domain=series, range=[SHAPES[i % len(SHAPES)] for i in range(n)]),
        "dash": alt.Scale(domain=series, range=[list(DASHES[i % len(DASHES)]) for i in range(n)]),
        "color": alt.Scale(domain=series, range=[COLOURS[i % len(COLOURS)] for i in range(n)]),
    }


def lines(x: Quantity, y: Quantity, by: Quantity | None, found: list[Point]) -> style.Chart:
    """y over x, one line for each value of `by`; the names of the lines stand to the right of their ends."""
    up = numeric(y, [point.y for point in found])
    xs = _floats([point.x for point in found])
    along = numeric(x, xs, places=True) if xs is not None else None
    series = [by.text(value) if by else "" for value in _order([point.by for point in found])]
    rows: list[Row] = []
    for i, point in enumerate(found):
        at = xs[i] * along.factor if xs is not None and along else x.text(point.x)
        rows.append(
            {
                "x": at,
                "y": point.y * up.factor,
                "by": by.text(point.by) if by else "",
                "phase": point.phase,
                "said": y.text(point.y),
            }
        )
    places = alt.X(
        f"x:{'Q' if along else 'O'}",
        scale=along.scale if along else alt.Scale(),
        sort=None if along else [x.text(value) for value in _order([point.x for point in found])],
        axis=along.axis if along else alt.Axis(title=x.axis, labelAngle=0, labelLimit=150),
    )
    heights = alt.Y("y:Q", scale=up.scale, axis=up.axis)
    signs = _styles(series)
    colour = alt.Color("by:N", scale=signs["color"], legend=None)
    drawn = (
        style.chart(rows)
        .mark_line(strokeWidth=3)
        .encode(
            x=places,
            y=heights,
            color=colour,
            strokeDash=alt.StrokeDash("by:N", scale=signs["dash"], legend=None),
            **({"order": "x:Q"} if along else {}),
        )
    )
    dots = (
        style.chart(rows)
        .mark_point(filled=True, opacity=1, size=130)
        .encode(
            x=places,
            y=heights,
            color=colour,
            shape=alt.Shape("by:N", scale=signs["shape"], legend=None),
            tooltip=[alt.Tooltip("phase:N"), alt.Tooltip("said:N", title=y.label)],
        )
    )
    layers: list[style.Chart] = [drawn, dots]
    if by and series:
        layers += _names_at_ends(rows, series, by.axis, up)
    whole: style.Chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return whole


def _names_at_ends(rows: list[Row], series: list[str], title: str, up: Axis) -> list[style.Chart]:
    """The key: sign and name of each series at the height at which it ends, moved apart where they are close."""
    ends = [[row for row in rows if row["by"] == name][-1] for name in series]
    heights = sorted((up.share(row["y"]) * HEIGHT, i) for i, row in enumerate(ends))
    room, place = 24.0, -1e9
    placed = []
    for height, i in heights:
        place = max(height, place + room)
        placed.append((place, i))
    over = max(0.0, placed[-1][0] - (HEIGHT - 8))
    layers: list[style.Chart] = []
    ceiling = 1e9
    for place, i in reversed(placed):  # push down what was pushed out at the top
        ceiling = min(place, ceiling - room) if over else place
        ceiling = min(ceiling, HEIGHT - 8)
        down = style.y_at(HEIGHT - ceiling)
        sign = style.chart([{}]).mark_point(
            shape=SHAPES[i % len(SHAPES)], filled=True, opacity=1, color=COLOURS[i % len(COLOURS)]
        )
        name = style.chart([{"text": series[i]}]).mark_text(align="left", fontWeight="bold")
        layers.append(sign.encode(x=style.x_at(WIDTH + 20), y=down))
        layers.append(name.encode(x=style.x_at(WIDTH + 34), y=down, text=alt.Text("text:N")))
    head = style.chart([{"text": f"{title}:"}]).mark_text(align="left", limit=310)
    layers.append(head.encode(x=style.x_at(WIDTH + 12), y=style.y_at(-14), text=alt.Text("text:N")))
    return layers


def bars(x: Quantity, y: Quantity, by: Quantity | None, found: list[Point]) -> style.Chart:
    """y for each phase: bars to scale, or points on a log axis (a bar on a log axis has no length)."""
    across = numeric(y, [point.y for point in found])
    names = [point.phase if x.name == "title" else x.text(point.x) for point in found]
    series = [by.text(value) if by else "" for value in _order([point.by for point in found])]
    rows: list[Row] = [
        {
            "name": name,
            "y": point.y * across.factor,
            "by": by.text(point.by) if by else "",
            "said": y.text(point.y),
        }
        for name, point in zip(names, found, strict=True)
    ]
    signs = _styles(series)
    places = alt.Y(
        "name:N",
        sort=list(dict.fromkeys(names)),
        title=None,
        axis=alt.Axis(labelLimit=style.LABEL, grid=True),
    )
    lengths = alt.X("y:Q", scale=across.scale, axis=across.axis)
    legend = alt.Legend(title=by.axis, columns=4) if by else None
    colour = alt.Color("by:N", scale=signs["color"], legend=legend)
    tooltip = [alt.Tooltip("name:N", title="phase"), alt.Tooltip("said:N", title=y.label)]
    base = style.chart(rows)
    layers: list[style.Chart]
    if across.scale["type"] == "linear":
        fill = {"color": colour} if by else {"color": alt.value(style.AREA)}
        drawn = base.mark_bar(stroke=style.INK, strokeWidth=1, height=20)
        layers = [drawn.encode(x=lengths, y=places, tooltip=tooltip, **fill)]
    else:
        shape = alt.Shape("by:N", scale=signs["shape"], legend=legend)
        drawn = base.mark_point(filled=True, opacity=1, size=150)
        layers = [drawn.encode(x=lengths, y=places, color=colour, shape=shape, tooltip=tooltip)]
    labels = base.mark_text(align="left", dx=9, fontWeight="bold").encode(
        x=lengths, y=places, text=alt.Text("said:N")
    )
    height = STEP * max(1, len(set(names)))
    width = style.WIDTH - style.label_room(names) - 110
    drawing: style.Chart = alt.layer(*layers, labels).properties(width=width, height=height)
    return drawing


def dots(y: Quantity, by: Quantity, found: list[Point]) -> style.Chart:
    """A row for each phase, and in it a sign for each value of `by`."""
    across = numeric(y, [point.y for point in found])
    rows: list[Row] = [
        {"name": p.phase, "y": p.y * across.factor, "by": by.text(p.by), "said": y.text(p.y)} for p in found
    ]
    names = list(dict.fromkeys(point.phase for point in found))
    signs = _styles([by.text(value) for value in _order([point.by for point in found])])
    legend = alt.Legend(title=None, columns=2)
    drawn: style.Chart = (
        style.chart(rows)
        .mark_point(opacity=1, size=150, strokeWidth=2.5)
        .encode(
            x=alt.X("y:Q", scale=across.scale, axis=across.axis),
            y=alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=style.LABEL, grid=True)),
            color=alt.Color("by:N", scale=signs["color"], legend=legend),
            shape=alt.Shape("by:N", scale=signs["shape"], legend=legend),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("by:N"), alt.Tooltip("said:N", title=y.label)],
        )
        .properties(width=style.WIDTH - style.label_room(names) - 40, height=STEP * max(1, len(names)))
    )
    return drawn


def heat(x: Quantity, y: Quantity, by: Quantity | None, found: list[Point]) -> style.Chart:
    """A cell for each pair of x and `by`: darker for larger figures, with the figure written in it."""
    by = by or quantity("title")
    low, high = (end([p.y for p in found], default=1.0) for end in (min, max))
    wide = low > 0 and high / low > DECADES
    kind: Any = "log" if wide else "linear"
    rows: list[Row] = []
    for point in found:
        depth = (point.y - low) / (high - low) if high > low else 0.0
        if wide:
            depth = math.log(point.y / low) / math.log(high / low)
        rows.append(
            {
                "x": x.text(point.x),
                "by": by.text(point.by),
                "y": point.y,
                "said": y.text(point.y),
                "ink": "white" if depth > 0.5 else style.INK,
                "phase": point.phase,
            }
        )
    columns = [x.text(value) for value in _order([point.x for point in found])]
    lanes = [by.text(value) for value in _order([point.by for point in found])][::-1]
    width = min(150, (style.WIDTH - 240) // max(1, len(columns)))
    places = alt.X("x:O", sort=columns, axis=alt.Axis(title=x.axis, labelAngle=0))
    heights = alt.Y("by:O", sort=lanes, axis=alt.Axis(title=by.axis))
    shade = alt.Scale(type=kind, domain=[low, high if high > low else low + 1], range=["#f3efe6", "#0b3d6b"])
    tooltip = [alt.Tooltip("phase:N"), alt.Tooltip("said:N", title=y.label)]
    cells = (
        style.chart(rows)
        .mark_rect(stroke="white", strokeWidth=3)
        .encode(x=places, y=heights, color=alt.Color("y:Q", scale=shade, legend=None), tooltip=tooltip)
    )
    labels = [
        style.chart([row for row in rows if row["ink"] == ink])
        .mark_text(fontWeight="bold", fontSize=style.SIZE + 1, color=ink)
        .encode(x=places, y=heights, text=alt.Text("said:N"))
        for ink in ("white", style.INK)
    ]
    drawing: style.Chart = alt.layer(cells, *labels).properties(
        width=width * max(1, len(columns)), height=58 * max(1, len(lanes))
    )
    return drawing
