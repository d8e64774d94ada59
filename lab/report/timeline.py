"""Charts along the time axis: keys and p99 with the run's phases, and command rates."""

from __future__ import annotations

import altair as alt

from lab.report import look
from lab.report.look import Chart, Row
from lab.report.numbers import number
from lab.report.scene import Scene

LABEL_PX = 8.6
COMMANDS = (
    ("scan", "SCAN"),
    ("keys", "KEYS"),
    ("sscan", "SSCAN"),
    ("unlink", "UNLINK"),
    ("get", "GET"),
    ("set", "SET"),
)


def timeline(scene: Scene, width: int = look.WIDTH) -> Chart:
    """Keys and p99, one above the other on one time axis, under the phases and the switches."""
    keys = _panel(
        scene,
        alt.Y("value:Q", axis=look.keys_axis("keys"), scale=alt.Scale(domainMin=0)),
        {"height": 170, "width": width},
        look.chart(_keys(scene)).mark_area(color="#cfd8e3", line={"color": look.INK, "strokeWidth": 2.5}),
        x_labels=False,
    )
    p99s = _p99s(scene)
    latency = _panel(
        scene,
        alt.Y(
            "value:Q",
            axis=look.latency_axis("p99 of a GET"),
            scale=look.log_scale([row["value"] for row in p99s]),
        ),
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
    shown = [(column, name) for column, name in COMMANDS if column != "keys" or _rate_top(scene, column) > 0]
    for i, (column, name) in enumerate(shown):
        rows = _rates(scene, column)
        # Filling writes tens of thousands of SETs a second: on a plain axis nothing else would be seen.
        busy = column == "set"
        scale = alt.Scale(type="symlog", constant=10, domainMin=0) if busy else alt.Scale(domainMin=0)
        axis = (
            alt.Axis(title=None, values=[0, 100, 10_000], format="~s")
            if busy
            else alt.Axis(title=None, tickCount=3, format="~s")
        )
        panels.append(
            _panel(
                scene,
                alt.Y("value:Q", axis=axis, scale=scale),
                {"height": 84, "width": look.WIDTH - 96},
                look.chart(rows).mark_area(color="#d5d5d5", line={"color": look.INK, "strokeWidth": 2}),
                x_labels=i == len(shown) - 1,
                name=name + (" (log)" if busy else ""),
            )
        )
    stacked: Chart = alt.vconcat(_lanes(scene, look.WIDTH - 96), *panels, spacing=8).resolve_scale(x="shared")
    return stacked


def _x(scene: Scene, labels: bool, column: str = "t") -> alt.X:
    axis = alt.Axis(title="seconds since the run began", grid=False) if labels else None
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
        look.chart(shades).mark_rect(color="#f1f1f1").encode(x=_x(scene, x_labels, "start"), x2="end:Q")
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
        rules.encode(x=_x(scene, x_labels)),
        switches.encode(x=_x(scene, x_labels)),
        mark.encode(x=_x(scene, x_labels), y=y, tooltip=tooltip),
    ]
    if name:
        label = look.chart([{"name": name}]).mark_text(align="left", fontWeight="bold", fontSize=look.SIZE)
        layers.append(
            label.encode(x=alt.value(size["width"] + 10), y=alt.value(size["height"] / 2), text="name:N")
        )
    return alt.layer(*layers).properties(**size)


def _lanes(scene: Scene, width: int) -> Chart:
    """Three lanes above the plots: phases by name, restarts and switches by symbol."""
    scale = alt.Scale(domain=[0, scene.length], nice=False)
    px = width / scene.length
    wide: list[Row] = []
    narrow: list[Row] = []
    for band in scene.bands:
        row = {
            "start": band.start,
            "end": band.end,
            "middle": (band.start + band.end) / 2,
            "label": band.label,
        }
        fits = (band.end - band.start) * px > len(band.label) * LABEL_PX + 10
        (wide if fits else narrow).append({**row, "shade": band.number % 2})
    height = 40 + (max((len(row["label"]) for row in narrow), default=0) * LABEL_PX if narrow else 0)
    top = max(34.0, height - 12)
    x = alt.X("start:Q", scale=scale, axis=None)
    boxes = (
        look.chart(wide + narrow)
        .mark_rect(stroke="#777777", strokeWidth=1)
        .encode(
            x=x,
            x2="end:Q",
            y=alt.value(0),
            y2=alt.value(top),
            color=alt.Color(
                "shade:N", scale=alt.Scale(domain=[0, 1], range=["#ffffff", "#ececec"]), legend=None
            ),
        )
    )
    middle = alt.X("middle:Q", scale=scale, axis=None)
    flat = look.chart(wide).mark_text(fontSize=look.SIZE, fontWeight="bold", baseline="middle")
    upright = look.chart(narrow).mark_text(
        fontSize=look.SIZE, fontWeight="bold", angle=270, align="center", baseline="middle"
    )
    layers = [
        boxes,
        flat.encode(x=middle, y=alt.value(top / 2), text="label:N"),
        upright.encode(x=middle, y=alt.value(top / 2), text="label:N"),
    ]
    for lane, (kind, sign) in enumerate((("restart", "▼"), ("switch", "◆"))):
        marks = [{**mark, "text": f"{sign} {mark['text']}"} for mark in _marks(scene) if mark["kind"] == kind]
        y = alt.value(top + 14 + 22 * lane)
        for side in ("left", "right"):  # a label near the right edge is written to the left of its moment
            near = [m for m in marks if (m["t"] > 0.86 * scene.length) == (side == "right")]
            text = look.chart(near).mark_text(
                align="left" if side == "left" else "right",
                dx=-7 if side == "left" else 7,
                fontSize=look.SIZE - 1,
            )
            layers.append(text.encode(x=alt.X("t:Q", scale=scale, axis=None), y=y, text="text:N"))
    return alt.layer(*layers).properties(width=width, height=top + 48, view=alt.ViewConfig(stroke=None))


def _marks(scene: Scene) -> list[Row]:
    """Restarts and switches; of several within a moment the last one counts."""
    found: list[Row] = []
    for mark in scene.facts.marks:
        kind = "restart" if mark["kind"] == "restart" else "switch"
        text = str(mark["text"]).removeprefix("strategy ")
        if kind == "restart":
            text = "emptied" if text in ("emptied", "calibration ends") else "restart"
        t = float(mark["t"]) - scene.origin
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


def _rate_top(scene: Scene, column: str) -> float:
    return max((row["value"] or 0.0 for row in _rates(scene, column)), default=0.0)


def _p99s(scene: Scene) -> list[Row]:
    return [
        {"t": round(second.t - scene.origin, 3), "value": second.p99_ms}
        for second in scene.latencies.seconds()
        if second.t - scene.origin <= scene.length
    ]
