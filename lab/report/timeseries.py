"""A phase over time, from the lines that its loads printed: a panel for each quantity, on one time axis.

No other charts look inside a phase. An incident that comes and goes in seconds shows in no figure of a whole phase.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import altair as alt

from lab.report import style
from lab.report.quantities import words
from lab.report.view import RunView
from lab.results.numbers import number
from lab.scenarios.model import Chart

HEIGHT, WIDTH = 104, style.WIDTH - 120
LEVELS = ("_ms", "_mb", "in_flight", "away", "keys", "busy")
"""Fields (or ends of their names) that are levels; all others count what happened since the line before."""


def lines(view: RunView, chart: Chart) -> list[dict[str, Any]]:
    """The lines of the chart's phase that give their time and the length of their interval."""
    given = [line for line in view.run.loads if line.get("phase") == chart.x]
    timed = [line for line in given if _known(line.get("t")) and (_known(line.get("interval_s")) or 0) > 0]
    # After a stall a line may follow the one before at once: a rate over a few milliseconds means nothing.
    least = statistics.median(line["interval_s"] for line in timed) / 2 if timed else 0.0
    return [line for line in timed if line["interval_s"] >= least]


def _known(value: object) -> float | None:
    return number(str(value)) if isinstance(value, int | float) else None


def _value(line: dict[str, Any], field: str) -> float | None:
    found = _known(line.get(field))
    return found if found is None or field.endswith(LEVELS) else found / float(line["interval_s"])


def _label(field: str) -> str:
    name, unit = words(field)
    if field.endswith(LEVELS):
        return f"{name}, {unit}" if unit else name
    return f"{name} a second"


def _spans(given: Sequence[dict[str, Any]], field: str, began: float) -> list[style.Row]:
    """Stretches in which a field is above zero; adjacent ones are merged."""
    spans: list[style.Row] = []
    for line in given:
        if not _known(line.get(field)):
            continue
        start, end = line["t"] - line["interval_s"] - began, line["t"] - began
        if spans and start - spans[-1]["end"] < line["interval_s"] / 2:
            spans[-1]["end"] = end
        else:
            spans.append({"start": start, "end": end})
    return spans


def timeseries(view: RunView, chart: Chart) -> style.Chart:
    """Draw the fields that `chart.y` names, separated by blanks; shade stretches in which `chart.by` is above zero."""
    given = lines(view, chart)
    began = given[0]["t"] - given[0]["interval_s"] if given else 0.0
    length = given[-1]["t"] - began if given else 1.0
    spans = _spans(given, chart.by, began) if chart.by else []
    fields = chart.y.split()
    panels: list[style.Chart] = []
    for i, field in enumerate(fields):
        labels = i == len(fields) - 1
        along = alt.Axis(title="seconds since the phase began", tickCount=12, grid=False) if labels else None
        scale = alt.Scale(domain=[0, length], nice=False)
        rows = [{"t": line["t"] - began, "value": _value(line, field)} for line in given]
        known = [row["value"] for row in rows if row["value"] is not None]
        steady = field.endswith(LEVELS) and min(known, default=0.0) > max(known, default=0.0) / 2
        heights = (
            alt.Scale(zero=False) if steady else alt.Scale(domainMin=0)
        )  # so that the changes of a level that stays high are visible
        axis = alt.Axis(title=None, tickCount=3, format=",~r")
        if field.endswith(
            "_ms"
        ):  # a stall is a thousand times longer: on a plain axis nothing else would be seen
            heights = style.log_scale(known)
            axis = style.latency_axis("", heights)
        shade = (
            style.chart(spans)
            .mark_rect(color=style.AREA)
            .encode(x=alt.X("start:Q", axis=along, scale=scale), x2=alt.X2("end:Q"))
        )
        line = (
            style.chart(rows)
            .mark_line(color=style.CAUSE, strokeWidth=2)
            .encode(
                x=alt.X("t:Q", axis=along, scale=scale),
                y=alt.Y("value:Q", axis=axis, scale=heights),
                tooltip=[
                    alt.Tooltip("t:Q", format=".1f", title="second"),
                    alt.Tooltip("value:Q", format=",.3~r"),
                ],
            )
        )
        name = style.chart([{"name": _label(field)}]).mark_text(
            align="left", baseline="bottom", fontWeight="bold"
        )
        title = name.encode(x=style.x_at(0), y=style.y_at(-5), text=alt.Text("name:N"))
        panels.append(alt.layer(shade, line, title).properties(width=WIDTH, height=HEIGHT))
    stacked: style.Chart = alt.vconcat(*panels, spacing=30).resolve_scale(x="shared")
    return stacked


def description(view: RunView, chart: Chart) -> str:
    """Describe the chart in words."""
    given = lines(view, chart)
    began = given[0]["t"] - given[0]["interval_s"] if given else 0.0
    names = ", ".join(map(_label, chart.y.split()))
    words_ = f"{chart.title}. {names}, over the seconds of the phase."
    if chart.by:
        words_ += (
            f" {chart.by.capitalize()} in {len(_spans(given, chart.by, began))} stretches, which are shaded."
        )
    return words_
