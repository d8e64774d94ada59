"""Charts along the time axis: keys and p99 with the run's phases, and command rates."""

from __future__ import annotations

from typing import Any

import altair as alt

from lab.report import style
from lab.report.style import Chart, Row
from lab.report.view import RunView
from lab.results.numbers import number

LABEL_PX = 8.2
DOT = {"color": style.INK, "size": 12}
"""A value between two gaps belongs to no line; a dot shows it."""
ORDER = ("scan", "keys", "sscan", "unlink", "get", "set")
"""Order of the commands' rows. Other commands follow in the order of the samples."""
WORTH_A_ROW = 0.01
"""Any other command gets a row if it took at least this share of the server's time in some second."""


def timeline(view: RunView, width: int = style.WIDTH) -> Chart:
    """Keys and p99, one above the other on one time axis, under the phases and the switches."""
    keys = _panel(
        view,
        alt.Y("value:Q", axis=style.keys_axis("keys"), scale=_from_zero(_keys(view))),
        {"height": 170, "width": width},
        style.chart(_keys(view)).mark_area(
            color=style.AREA, line={"color": style.INK, "strokeWidth": 2.5}, point=DOT
        ),
        x_labels=False,
    )
    p99s = _p99s(view)
    scale = style.log_scale([row["value"] for row in p99s])
    latency = _panel(
        view,
        alt.Y("value:Q", axis=style.latency_axis("p99 of a GET", scale), scale=scale),
        {"height": 260, "width": width},
        style.chart(p99s).mark_line(
            color=style.CAUSE, strokeWidth=2.5, point={"color": style.CAUSE, "size": 26}
        ),
        x_labels=True,
    )
    stacked: Chart = alt.vconcat(_lanes(view, width), keys, latency, spacing=6).resolve_scale(x="shared")
    return stacked


def rates(view: RunView) -> Chart:
    """Calls a second of each command, each in a row of its own."""
    panels = []
    shown = _commands(view)
    for i, column in enumerate(shown):
        rows = _rates(view, column)
        # Filling writes tens of thousands of SETs a second: on a plain axis nothing else would be seen.
        busy = column == "set"
        scale = alt.Scale(type="symlog", constant=10, domainMin=0) if busy else _from_zero(rows)
        axis = (
            alt.Axis(title=None, values=[0, 100, 10_000], format=",.0f")
            if busy
            else alt.Axis(title=None, tickCount=3, format=",~r")
        )
        panels.append(
            _panel(
                view,
                alt.Y("value:Q", axis=axis, scale=scale),
                {"height": 84, "width": style.WIDTH - 96},
                style.chart(rows).mark_area(
                    color=style.AREA, line={"color": style.INK, "strokeWidth": 2}, point=DOT
                ),
                x_labels=i == len(shown) - 1,
                name=column.upper() + (" (log)" if busy else ""),
            )
        )
    stacked: Chart = alt.vconcat(_lanes(view, style.WIDTH - 96), *panels, spacing=8).resolve_scale(x="shared")
    return stacked


def _x(view: RunView, labels: bool, column: str = "t") -> alt.X:
    axis = alt.Axis(title="seconds since the run began", grid=False, tickCount=12) if labels else None
    return alt.X(f"{column}:Q", axis=axis, scale=alt.Scale(domain=[0, view.length], nice=False))


def _panel(
    view: RunView,
    y: alt.Y,
    size: dict[str, int],
    mark: alt.Chart,
    *,
    x_labels: bool,
    name: str | None = None,
) -> Chart:
    shades = [{"start": b.start, "end": b.end} for b in view.bands if b.number % 2]
    background = (
        style.chart(shades)
        .mark_rect(color=style.SHADE)
        .encode(x=_x(view, x_labels, "start"), x2=alt.X2("end:Q"))
    )
    marks = [{"t": mark["t"], "kind": mark["kind"]} for mark in _marks(view)]
    rules = style.chart([m for m in marks if m["kind"] == "restart"]).mark_rule(
        strokeDash=[2, 4], strokeWidth=2
    )
    switches = style.chart([m for m in marks if m["kind"] != "restart"]).mark_rule(
        strokeDash=[9, 4], strokeWidth=2
    )
    tooltip = [alt.Tooltip("t:Q", format=".0f", title="second"), alt.Tooltip("value:Q", format=",.3~r")]
    layers: list[alt.Chart] = [
        background,
        mark.encode(x=_x(view, x_labels), y=y, tooltip=tooltip),
        rules.encode(x=_x(view, x_labels)),
        switches.encode(x=_x(view, x_labels)),
    ]
    if name:
        label = style.chart([{"name": name}]).mark_text(align="left", fontWeight="bold", fontSize=style.SIZE)
        layers.append(
            label.encode(
                x=style.x_at(size["width"] + 10), y=style.y_at(size["height"] / 2), text=alt.Text("name:N")
            )
        )
    return alt.layer(*layers).properties(**size)


def _from_zero(rows: list[Row]) -> alt.Scale:
    highest = max((row["value"] for row in rows if row["value"] is not None), default=0.0)
    return alt.Scale(domain=[0, highest * 1.12 or 1.0], nice=False)


def _lanes(view: RunView, width: int) -> Chart:
    """Three lanes above the plots: phases by name, restarts and switches by symbol."""
    scale = alt.Scale(domain=[0, view.length], nice=False)
    px = width / view.length
    flat: list[Row] = []
    upright: list[Row] = []
    for band in view.bands:
        one_line = band.label.replace("con-\nnections", "connections").replace("\n", " ")
        lines = band.label.split("\n")
        room = (band.end - band.start) * px
        row: Row = {
            "start": band.start,
            "end": band.end,
            "middle": (band.start + band.end) / 2,
            "shade": band.number % 2,
        }
        if room > len(one_line) * LABEL_PX + 8:
            flat.append({**row, "label": one_line})
        elif room > max(map(len, lines)) * LABEL_PX + 8:
            flat.append({**row, "label": band.label})
        elif room > len(lines) * (style.SIZE + 2):
            upright.append({**row, "label": band.label})
        else:
            upright.append({**row, "label": one_line if room > style.SIZE else ""})
    longest = max((len(line) for row in upright for line in row["label"].split("\n")), default=0)
    top = max(52.0 if any("\n" in row["label"] for row in flat) else 36.0, longest * LABEL_PX + 16)
    middle = alt.X("middle:Q", scale=scale, axis=None)
    boxes = style.chart(flat + upright).mark_rect(stroke="#777777", strokeWidth=1)
    lettering: dict[str, Any] = {
        "fontSize": style.SIZE,
        "fontWeight": "bold",
        "baseline": "middle",
        "align": "center",
        "lineBreak": "\n",
    }
    layers: list[Chart] = [
        boxes.encode(
            x=alt.X("start:Q", scale=scale, axis=None),
            x2=alt.X2("end:Q"),
            y=style.y_at(0),
            y2=alt.value(top),
            color=alt.Color(
                "shade:N", scale=alt.Scale(domain=[0, 1], range=["#ffffff", style.SHADE]), legend=None
            ),
        ),
    ]
    for row in flat + upright:  # text of several lines is not centred by itself
        dy = -row["label"].count("\n") * (style.SIZE + 2) / 2
        text = style.chart([row]).mark_text(**lettering, angle=270 if row in upright else 0, dy=dy)
        layers.append(text.encode(x=middle, y=style.y_at(top / 2), text=alt.Text("label:N")))
    for lane, (kind, shape) in enumerate((("restart", "triangle-down"), ("switch", "diamond"))):
        marks = [mark for mark in _marks(view) if mark["kind"] == kind]
        y = style.y_at(top + 14 + 22 * lane)
        signs = style.chart(marks).mark_point(shape=shape, filled=True, color=style.INK, size=110, opacity=1)
        layers.append(signs.encode(x=alt.X("t:Q", scale=scale, axis=None), y=y))
        for side in ("left", "right"):  # a label near the right edge is written to the left of its moment
            near = [m for m in marks if (m["t"] > 0.9 * view.length) == (side == "right")]
            text = style.chart(near).mark_text(
                align="left" if side == "left" else "right",
                dx=10 if side == "left" else -10,
                fontSize=style.SIZE - 1,
            )
            layers.append(text.encode(x=alt.X("t:Q", scale=scale, axis=None), y=y, text=alt.Text("text:N")))
    lanes: Chart = alt.layer(*layers).properties(
        width=width, height=top + 48, view=alt.ViewConfig(stroke=None)
    )
    return lanes


def _marks(view: RunView) -> list[Row]:
    """Restarts and switches on the time axis, with their labels."""
    found: list[Row] = []
    for mark in view.facts.marks:
        kind = "restart" if mark.kind == "restart" else "switch"
        text = mark.text.removeprefix("strategy ")
        if kind == "restart":
            text = "emptied" if text in ("emptied", "calibration ends") else "restart"
        elif not view.spoilers:
            text = "switch"
        t = mark.t - view.origin
        if 0 <= t <= view.length:
            found.append({"t": t, "kind": kind, "text": text})
    return found


def _keys(view: RunView) -> list[Row]:
    return _series(view, "keys")


def _series(view: RunView, column: str) -> list[Row]:
    """A column of the samples over time; an unanswered second is a gap, never a zero."""
    rows: list[Row] = []
    last = None
    for sample in view.run.samples:
        t = number(sample.get("t"))
        if t is None:
            continue
        if last is not None and t - last > 3.0:
            rows.append({"t": last - view.origin + 0.01, "value": None})
        rows.append({"t": round(t - view.origin, 3), "value": number(sample.get(column))})
        last = t
    return rows


def _rates(view: RunView, column: str) -> list[Row]:
    return _series(view, f"{column}_per_s")


def _commands(view: RunView) -> list[str]:
    """Commands whose rates were sampled and are worth a row."""
    sampled = [
        column.removesuffix("_per_s") for column in (view.run.samples or [{}])[0] if column.endswith("_per_s")
    ]
    known = [column for column in sampled if column != "events_finished"]
    wanted = [
        c for c in known if (_rate_top(view, c) > 0 if c in ORDER else _share_top(view, c) >= WORTH_A_ROW)
    ]
    return sorted(wanted or known[:1], key=lambda c: ORDER.index(c) if c in ORDER else len(ORDER))


def _rate_top(view: RunView, column: str) -> float:
    return max((row["value"] or 0.0 for row in _rates(view, column)), default=0.0)


def _share_top(view: RunView, column: str) -> float:
    """The largest share of the server's time that a command took in one second."""
    pairs = (
        (number(row.get(f"{column}_per_s")), number(row.get(f"{column}_exec_us"))) for row in view.run.samples
    )
    return max(((rate or 0.0) * (us or 0.0) / 1e6 for rate, us in pairs), default=0.0)


def _p99s(view: RunView) -> list[Row]:
    return [
        {"t": round(second.t - view.origin, 3), "value": second.p99_ms}
        for second in view.latencies.seconds()
        if second.t - view.origin <= view.length
    ]
