"""Charts along the time axis: keys and p99 with the run's phases, and command rates."""

from __future__ import annotations

from typing import Any

import altair as alt

from lab.report import look
from lab.report.look import Chart, Row
from lab.report.numbers import number
from lab.report.scene import Scene

LABEL_PX = 8.2
DOT = {"color": look.INK, "size": 12}
"""A second between two unanswered ones has no line to belong to: a dot shows it."""
ORDER = ("scan", "keys", "sscan", "unlink", "get", "set")
"""Of the commands' rows. Others follow, as the samples name them."""
ALWAYS = ("scan", "sscan", "unlink", "get", "set")
"""Shown in the main incident even where nothing called them: that is what its control is about."""


def timeline(scene: Scene, width: int = look.WIDTH) -> Chart:
    """Keys and p99, one above the other on one time axis, under the phases and the switches."""
    keys = _panel(
        scene,
        alt.Y("value:Q", axis=look.keys_axis("keys"), scale=_from_zero(_keys(scene))),
        {"height": 170, "width": width},
        look.chart(_keys(scene)).mark_area(
            color=look.AREA, line={"color": look.INK, "strokeWidth": 2.5}, point=DOT
        ),
        x_labels=False,
    )
    p99s = _p99s(scene)
    scale = look.log_scale([row["value"] for row in p99s])
    latency = _panel(
        scene,
        alt.Y("value:Q", axis=look.latency_axis("p99 of a GET", scale), scale=scale),
        {"height": 260, "width": width},
        look.chart(p99s).mark_line(
            color=look.CAUSE, strokeWidth=2.5, point={"color": look.CAUSE, "size": 26}
        ),
        x_labels=True,
    )
    stacked: Chart = alt.vconcat(_lanes(scene, width), keys, latency, spacing=6).resolve_scale(x="shared")
    return stacked


def rates(scene: Scene) -> Chart:
    """Calls a second of each command, each in a row of its own."""
    panels = []
    shown = _commands(scene)
    for i, column in enumerate(shown):
        rows = _rates(scene, column)
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
                scene,
                alt.Y("value:Q", axis=axis, scale=scale),
                {"height": 84, "width": look.WIDTH - 96},
                look.chart(rows).mark_area(
                    color=look.AREA, line={"color": look.INK, "strokeWidth": 2}, point=DOT
                ),
                x_labels=i == len(shown) - 1,
                name=column.upper() + (" (log)" if busy else ""),
            )
        )
    stacked: Chart = alt.vconcat(_lanes(scene, look.WIDTH - 96), *panels, spacing=8).resolve_scale(x="shared")
    return stacked


def _x(scene: Scene, labels: bool, column: str = "t") -> alt.X:
    axis = alt.Axis(title="seconds since the run began", grid=False, tickCount=12) if labels else None
    return alt.X(f"{column}:Q", axis=axis, scale=alt.Scale(domain=[0, scene.length], nice=False))


def _panel(
    scene: Scene,
    y: alt.Y,
    size: dict[str, int],
    mark: alt.Chart,
    *,
    x_labels: bool,
    name: str | None = None,
) -> Chart:
    shades = [{"start": b.start, "end": b.end} for b in scene.bands if b.number % 2]
    background = (
        look.chart(shades).mark_rect(color=look.SHADE).encode(x=_x(scene, x_labels, "start"), x2="end:Q")
    )
    marks = [{"t": mark["t"], "kind": mark["kind"]} for mark in _marks(scene)]
    rules = look.chart([m for m in marks if m["kind"] == "restart"]).mark_rule(
        strokeDash=[2, 4], strokeWidth=2
    )
    switches = look.chart([m for m in marks if m["kind"] != "restart"]).mark_rule(
        strokeDash=[9, 4], strokeWidth=2
    )
    tooltip = [alt.Tooltip("t:Q", format=".0f", title="second"), alt.Tooltip("value:Q", format=",.3~r")]
    layers: list[alt.Chart] = [
        background,
        mark.encode(x=_x(scene, x_labels), y=y, tooltip=tooltip),
        rules.encode(x=_x(scene, x_labels)),
        switches.encode(x=_x(scene, x_labels)),
    ]
    if name:
        label = look.chart([{"name": name}]).mark_text(align="left", fontWeight="bold", fontSize=look.SIZE)
        layers.append(
            label.encode(x=alt.value(size["width"] + 10), y=alt.value(size["height"] / 2), text="name:N")
        )
    return alt.layer(*layers).properties(**size)


def _from_zero(rows: list[Row]) -> alt.Scale:
    highest = max((row["value"] for row in rows if row["value"] is not None), default=0.0)
    return alt.Scale(domain=[0, highest * 1.12 or 1.0], nice=False)


def _lanes(scene: Scene, width: int) -> Chart:
    """Three lanes above the plots: phases by name, restarts and switches by symbol."""
    scale = alt.Scale(domain=[0, scene.length], nice=False)
    px = width / scene.length
    flat: list[Row] = []
    upright: list[Row] = []
    for band in scene.bands:
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
        elif room > len(lines) * (look.SIZE + 2):
            upright.append({**row, "label": band.label})
        else:
            upright.append({**row, "label": one_line if room > look.SIZE else ""})
    longest = max((len(line) for row in upright for line in row["label"].split("\n")), default=0)
    top = max(52.0 if any("\n" in row["label"] for row in flat) else 36.0, longest * LABEL_PX + 16)
    middle = alt.X("middle:Q", scale=scale, axis=None)
    boxes = look.chart(flat + upright).mark_rect(stroke="#777777", strokeWidth=1)
    style: dict[str, Any] = {
        "fontSize": look.SIZE,
        "fontWeight": "bold",
        "baseline": "middle",
        "align": "center",
        "lineBreak": "\n",
    }
    layers: list[Chart] = [
        boxes.encode(
            x=alt.X("start:Q", scale=scale, axis=None),
            x2="end:Q",
            y=alt.value(0),
            y2=alt.value(top),
            color=alt.Color(
                "shade:N", scale=alt.Scale(domain=[0, 1], range=["#ffffff", look.SHADE]), legend=None
            ),
        ),
    ]
    for row in flat + upright:  # text of several lines is not centred by itself
        dy = -row["label"].count("\n") * (look.SIZE + 2) / 2
        text = look.chart([row]).mark_text(**style, angle=270 if row in upright else 0, dy=dy)
        layers.append(text.encode(x=middle, y=alt.value(top / 2), text="label:N"))
    for lane, (kind, shape) in enumerate((("restart", "triangle-down"), ("switch", "diamond"))):
        marks = [mark for mark in _marks(scene) if mark["kind"] == kind]
        y = alt.value(top + 14 + 22 * lane)
        signs = look.chart(marks).mark_point(shape=shape, filled=True, color=look.INK, size=110, opacity=1)
        layers.append(signs.encode(x=alt.X("t:Q", scale=scale, axis=None), y=y))
        for side in ("left", "right"):  # a label near the right edge is written to the left of its moment
            near = [m for m in marks if (m["t"] > 0.9 * scene.length) == (side == "right")]
            text = look.chart(near).mark_text(
                align="left" if side == "left" else "right",
                dx=10 if side == "left" else -10,
                fontSize=look.SIZE - 1,
            )
            layers.append(text.encode(x=alt.X("t:Q", scale=scale, axis=None), y=y, text="text:N"))
    lanes: Chart = alt.layer(*layers).properties(
        width=width, height=top + 48, view=alt.ViewConfig(stroke=None)
    )
    return lanes


def _marks(scene: Scene) -> list[Row]:
    """Restarts and switches; of several within a moment the last one counts."""
    found: list[Row] = []
    for mark in scene.facts.marks:
        kind = "restart" if mark.kind == "restart" else "switch"
        text = mark.text.removeprefix("strategy ")
        if kind == "restart":
            text = "emptied" if text in ("emptied", "calibration ends") else "restart"
        t = mark.t - scene.origin
        if 0 <= t <= scene.length:
            found.append({"t": t, "kind": kind, "text": text})
    return found


def _keys(scene: Scene) -> list[Row]:
    return _series(scene, "keys")


def _series(scene: Scene, column: str) -> list[Row]:
    """A column of the samples over time; an unanswered second is a gap, never a zero."""
    rows: list[Row] = []
    last = None
    for sample in scene.run.samples:
        t = number(sample.get("t"))
        if t is None:
            continue
        if last is not None and t - last > 3.0:
            rows.append({"t": last - scene.origin + 0.01, "value": None})
        rows.append({"t": round(t - scene.origin, 3), "value": number(sample.get(column))})
        last = t
    return rows


def _rates(scene: Scene, column: str) -> list[Row]:
    return _series(scene, f"{column}_per_s")


def _commands(scene: Scene) -> list[str]:
    """Commands whose rates were sampled and are worth a row."""
    sampled = [
        column.removesuffix("_per_s")
        for column in (scene.run.samples or [{}])[0]
        if column.endswith("_per_s")
    ]
    known = [column for column in sampled if column != "events_finished"]
    wanted = [c for c in known if _rate_top(scene, c) > 0 or (scene.main and c in ALWAYS)]
    return sorted(wanted or known[:1], key=lambda c: ORDER.index(c) if c in ORDER else len(ORDER))


def _rate_top(scene: Scene, column: str) -> float:
    return max((row["value"] or 0.0 for row in _rates(scene, column)), default=0.0)


def _p99s(scene: Scene) -> list[Row]:
    return [
        {"t": round(second.t - scene.origin, 3), "value": second.p99_ms}
        for second in scene.latencies.seconds()
        if second.t - scene.origin <= scene.length
    ]
