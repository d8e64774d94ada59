"""The style of charts: large type, black on white, and never a meaning in colour alone.

Series differ in dash, in shape and in a label at the line; colour only repeats that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import altair as alt

WIDTH = 1010
INK, SOFT = "#111111", "#555555"
CAUSE, CURE, FOURTH = "#b3400a", "#0b4f8a", "#6b6b6b"
AREA, SHADE = "#c3cfdc", "#f1f1f1"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
SIZE = 16
LABEL = 400
"""Pixels that the name of a phase may take beside a plot; what is longer is cut."""

Row = dict[str, Any]
Chart = alt.LayerChart | alt.Chart | alt.VConcatChart | alt.HConcatChart | alt.FacetChart

CONFIG: dict[str, Any] = {
    "background": "white",
    "font": FONT,
    "view": {"stroke": "#999999"},
    "axis": {
        "labelFontSize": SIZE,
        "titleFontSize": SIZE,
        "titleFontWeight": "bold",
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": "#e4e4e4",
        "domainColor": INK,
        "tickColor": INK,
        "titlePadding": 10,
    },
    "legend": {
        "labelFontSize": SIZE,
        "titleFontSize": SIZE,
        "labelLimit": 420,
        "symbolSize": 160,
        "symbolStrokeWidth": 2.5,
        "orient": "top",
        "title": None,
        "columnPadding": 28,
        "labelColor": INK,
    },
    "title": {
        "fontSize": SIZE + 1,
        "anchor": "start",
        "color": INK,
        "fontWeight": "bold",
        "offset": 16,
        "frame": "group",
    },
    "text": {"fontSize": SIZE, "font": FONT, "color": INK},
    "line": {"strokeWidth": 3},
    "point": {"size": 130, "strokeWidth": 2.5, "filled": False},
    "concat": {"spacing": 14},
}


def chart(rows: Sequence[Row]) -> alt.Chart:
    """A chart of rows. An empty list is drawn as nothing.

    The rows go in as text: Altair copies a chart deeply at every step, and would copy each row with it.
    """
    text = json.dumps(list(rows), allow_nan=False)
    return alt.Chart(alt.InlineData(values=text, format=alt.JsonDataFormat(type="json")))


def spec(drawing: Chart, description: str, validate: bool = False) -> dict[str, Any]:
    """The Vega-Lite document of a chart, with its description for screen readers. `validate`, for tests, takes 1 s."""
    document: dict[str, Any] = drawing.properties(description=description).to_dict(validate=validate)
    document["config"] = CONFIG
    return document


def x_at(pixels: float) -> alt.XValue:
    """A fixed place from the left of a plot. (Altair looks a bare `alt.value` up in all its classes: 7 ms each.)"""
    return alt.XValue(pixels)  # type: ignore[no-untyped-call]


def y_at(pixels: float) -> alt.YValue:
    """A fixed place from the top of a plot."""
    return alt.YValue(pixels)  # type: ignore[no-untyped-call]


def latency_axis(title: str, scale: alt.Scale, **more: Any) -> alt.Axis:
    """A logarithmic axis of milliseconds: a label at every power of ten, or every other where they are many."""
    low, high = (round(math.log10(end)) for end in scale["domain"])
    step = 1 if high - low <= 5 else 2
    words = (
        "datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' s' : "
        "datum.value >= 0.1 ? format(datum.value, '~g') + ' ms' : format(datum.value * 1000, '~g') + ' µs'"
    )
    return alt.Axis(
        title=title, values=[10.0**n for n in range(low, high + 1, step)], labelExpr=words, **more
    )


def log_scale(values: Sequence[float | None], floor: float = 1e-4) -> alt.Scale:
    """A logarithmic scale around the values, ending on powers of ten."""
    known = [value for value in values if value is not None and value > 0]
    low, high = min(known, default=1.0), max(known, default=10.0)
    return alt.Scale(type="log", domain=[_power_below(max(low, floor)), _power_above(high)])


def _power_below(value: float) -> float:
    exponent = 0
    while 10.0**exponent > value:
        exponent -= 1
    while 10.0 ** (exponent + 1) <= value:
        exponent += 1
    return 10.0**exponent


def _power_above(value: float) -> float:
    below = _power_below(value)
    return below if below == value else below * 10


def keys_axis(title: str = "keys") -> alt.Axis:
    """An axis of key counts."""
    words = (
        "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M' : "
        "datum.value > 0 ? format(datum.value / 1000, '~g') + ' k' : '0'"
    )
    return alt.Axis(title=title, labelExpr=words, tickCount=6)


def label_room(names: Sequence[str], size: int = SIZE) -> int:
    """Pixels that the longest of these names takes."""
    return min(LABEL, round(max(map(len, names), default=0) * size * 0.53) + 12)
