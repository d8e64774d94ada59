"""How charts look: large type, black on white, and never a meaning in colour alone.

Series differ in dash, in shape and in a label at the line; colour only repeats that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

WIDTH = 1010
INK, SOFT, FAINT = "#111111", "#555555", "#d9d9d9"
CAUSE, CURE, THIRD, FOURTH = "#b3400a", "#0b4f8a", "#111111", "#6b6b6b"
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
SIZE = 16

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
    "title": {"fontSize": SIZE + 1, "anchor": "start", "color": INK, "fontWeight": "bold", "offset": 8},
    "text": {"fontSize": SIZE, "font": FONT, "color": INK},
    "line": {"strokeWidth": 3},
    "point": {"size": 130, "strokeWidth": 2.5, "filled": False},
    "concat": {"spacing": 14},
}


def chart(rows: Sequence[Row]) -> alt.Chart:
    """A chart of rows. An empty list is drawn as nothing."""
    return alt.Chart(alt.InlineData(values=list(rows)))


def spec(drawing: Chart, description: str) -> dict[str, Any]:
    """The Vega-Lite document of a chart, with what a screen reader says of it."""
    document: dict[str, Any] = drawing.properties(description=description).to_dict()
    document["config"] = CONFIG
    return document


def log_axis(title: str, **more: Any) -> alt.Axis:
    """An axis with a label at every power of ten, and grid lines there."""
    return alt.Axis(title=title, values=[10.0**n for n in range(-4, 7)], format="~,g", **more)


def latency_axis(title: str, **more: Any) -> alt.Axis:
    """A logarithmic axis of milliseconds, labelled in the unit that reads best."""
    words = (
        "datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' s' : "
        "datum.value >= 0.1 ? format(datum.value, '~g') + ' ms' : format(datum.value * 1000, '~g') + ' µs'"
    )
    return alt.Axis(title=title, values=[10.0**n for n in range(-4, 7)], labelExpr=words, **more)


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
    return alt.Axis(title=title, format="~s", tickCount=6)
