"""Charts over the key count and over percentiles."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from lab.report import look, numbers
from lab.report.look import Chart, Row
from lab.report.scene import AFTER, BEFORE, Scene

HALF = 440
QUANTILES = (50, 75, 90, 95, 99, 99.5, 99.9)


def _styles(scene: Scene) -> tuple[alt.Scale, alt.Scale, alt.Scale]:
    """Shape, dash and colour of both sides."""
    return (
        alt.Scale(domain=scene.sides, range=["circle", "triangle-up"]),
        alt.Scale(domain=scene.sides, range=[[1, 0], [7, 5]]),
        alt.Scale(domain=scene.sides, range=[look.CAUSE, look.CURE]),
    )


def scatter(scene: Scene) -> Chart:
    """Keys against p99: below the knee on plain axes with the fitted lines, and everything on a log axis."""
    points = [
        {
            "keys": phase.keys,
            "p99": p99,
            "side": scene.side(phase),
            "phase": scene.name(phase),
            "below": scene.below_knee(phase) or phase.arm in (AFTER, "fix"),
            "grown": phase.arm in (BEFORE, AFTER),
        }
        for phase in scene.run.phases
        if (p99 := scene.p99(phase)) is not None
    ]
    left = _fits(scene, [p for p in points if p["below"] and p["grown"]])
    right = _whole(scene, points)
    return alt.hconcat(left, right, spacing=110, bounds="flush")


def _points(scene: Scene, rows: list[Row], y: alt.Y, x: alt.X) -> Chart:
    shape, _, colour = _styles(scene)
    encoded = {
        "x": x,
        "y": y,
        "shape": alt.Shape("side:N", scale=shape, legend=None),
        "color": alt.Color("side:N", scale=colour, legend=None),
        "tooltip": [
            alt.Tooltip("phase:N"),
            alt.Tooltip("keys:Q", format=",.0f"),
            alt.Tooltip("p99:Q", format=",.3~r", title="p99, ms"),
        ],
    }
    solid = look.chart([r for r in rows if r["grown"]]).mark_point(filled=True, opacity=1).encode(**encoded)
    hollow = look.chart([r for r in rows if not r["grown"]]).mark_point(opacity=1).encode(**encoded)
    return alt.layer(solid, hollow)


def _fits(scene: Scene, rows: list[Row]) -> Chart:
    lines: list[Row] = []
    labels: list[tuple[str, str]] = []
    for arm, side in ((BEFORE, scene.side_before), (AFTER, scene.side_after)):
        fit = scene.fit(arm)
        if fit is None:
            continue
        lines += [{"keys": k, "p99": fit.at(k), "side": side} for k in (fit.low, fit.high)]
        labels.append((side, _slope(fit.slope)))
    highest = max([r["p99"] for r in rows] + [r["p99"] for r in lines] + [1.0]) * 1.3
    x = alt.X("keys:Q", axis=look.keys_axis("keys, plateaus below the knee"), scale=alt.Scale(domainMin=0))
    y = alt.Y("p99:Q", axis=alt.Axis(title="p99, ms"), scale=alt.Scale(domain=[0, highest], nice=False))
    _, dash, colour = _styles(scene)
    drawn = (
        look.chart(lines)
        .mark_line(strokeWidth=3, clip=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("side:N", scale=colour),
            strokeDash=alt.StrokeDash("side:N", scale=dash, legend=None),
        )
    )
    drawing: Chart = alt.layer(
        drawn,
        _points(scene, rows, y, x),
        *_key(scene, dict(labels)),
        _heading("Below the knee: a line, and its slope"),
    ).properties(width=HALF, height=380)
    return drawing


def _heading(text: str) -> Chart:
    """A heading right above a plot. (A title keeps clear of the axis labels: not level with the next plot's.)"""
    words = look.chart([{"text": text}]).mark_text(align="left", fontWeight="bold", fontSize=look.SIZE + 1)
    heading: Chart = words.encode(x=alt.value(0), y=alt.value(-18), text="text:N")
    return heading


def _key(scene: Scene, more: dict[str, str] | None = None) -> list[Chart]:
    """Which sign is which side, written into the corner, where a projector's colours do not matter."""
    layers: list[Chart] = []
    seen = {scene.side(phase) for phase in scene.run.phases}
    sides = zip(scene.sides, ("circle", "triangle-up"), (look.CAUSE, look.CURE), strict=True)
    for line, (side, shape, colour) in enumerate(found for found in sides if found[0] in seen):
        said = f"{side}: {more[side]}" if more and side in more else side
        place = alt.value(22 + 24 * line)
        sign = look.chart([{}]).mark_point(shape=shape, filled=True, color=colour, opacity=1)
        text = look.chart([{"text": said}]).mark_text(align="left", fontWeight="bold")
        layers.append(sign.encode(x=alt.value(18), y=place))
        layers.append(text.encode(x=alt.value(32), y=place, text="text:N"))
    return layers


def _slope(per_key: float) -> str:
    value = per_key * 1e5
    return f"{'+' if value >= 0 else '−'}{numbers.sig(abs(value))} ms per 100,000 keys".replace(" ", "\u00a0")


def _whole(scene: Scene, rows: list[Row]) -> Chart:
    span = scene.span
    x = alt.X(
        "keys:Q", axis=look.keys_axis("keys, all phases"), scale=alt.Scale(domain=[0, span], nice=False)
    )
    scale = look.log_scale([row["p99"] for row in rows])
    y = alt.Y("p99:Q", axis=look.latency_axis("p99, log scale", scale), scale=scale)
    layers: list[Chart] = []
    layers += _knees(scene, x, 380, 0.11)
    layers += [_points(scene, rows, y, x), *_key(scene), _heading("All phases: the knee")]
    return alt.layer(*layers).properties(width=HALF, height=380)


def _knees(scene: Scene, x: alt.X, height: int, at: float) -> list[Chart]:
    """The predicted and the observed knee as rules, with their labels to the left of both."""
    found = [
        (what, knee, dash)
        for what, knee, dash in (
            ("knee predicted (dotted)", scene.predicted_knee, [2, 4]),
            ("knee observed (dashed)", scene.observed_knee, [10, 4]),
        )
        if knee is not None and knee <= scene.span
    ]
    layers: list[Chart] = []
    for line, (what, knee, dash) in enumerate(found):
        rule = look.chart([{"keys": knee}]).mark_rule(strokeDash=dash, strokeWidth=2.5, color=look.INK)
        label = {"keys": min(k for _, k, _ in found), "text": f"{what}: {knee / 1000:,.0f} k"}
        place = alt.value(height * (1 - at) + 24 * line)
        layers.append(rule.encode(x=x))
        halos: list[dict[str, Any]] = [{"stroke": "white", "strokeWidth": 5}, {}]
        for halo in halos:  # points may lie behind the words
            text = look.chart([label]).mark_text(align="right", dx=-9, fontWeight="bold", **halo)
            layers.append(text.encode(x=x, y=place, text="text:N"))
    return layers


def percentiles(scene: Scene) -> Chart:
    """Latency over percentile: few keys, the top before the fix, the top after it."""
    curves = [
        (f"{scene.side_before}, few keys", scene.first(BEFORE), [2, 4], look.FOURTH),
        (f"{scene.side_before}, all keys", scene.top(BEFORE), [1, 0], look.CAUSE),
        (f"{scene.side_after}, all keys", scene.top(AFTER), [9, 5], look.CURE),
    ]
    rows: list[Row] = []
    ends: list[Row] = []
    for name, phase, _, _ in curves:
        values = scene.latencies.phase(phase) if phase else np.array([])
        if not len(values):
            continue
        # A percentile needs at least one request beyond it; the last ones of a curve stand for very few.
        reach = min(1000.0, float(len(values)))
        for inverse in np.geomspace(2, max(reach, 2), 90):
            share = 1 - 1 / inverse
            latency = float(np.quantile(values, share)) / 1000
            rows.append({"x": float(inverse), "latency": latency, "curve": name, "percentile": 100 * share})
        ends.append({**rows[-1], "text": name})
    ends.sort(key=lambda row: row["latency"])
    scale = look.log_scale([row["latency"] for row in rows])
    ticks = [round(100 / (100 - q), 6) for q in QUANTILES]
    words = (
        " : ".join(f"datum.value < {t * 1.01:.4f} ? '{q:g}'" for t, q in zip(ticks, QUANTILES, strict=True))
        + " : ''"
    )
    x = alt.X(
        "x:Q",
        scale=alt.Scale(type="log", domain=[2, 1000], nice=False),
        axis=alt.Axis(title="percentile of the requests", values=ticks, labelExpr=words, labelOverlap=False),
    )
    y = alt.Y("latency:Q", axis=look.latency_axis("latency, log scale", scale), scale=scale)
    names = [name for name, _, _, _ in curves]
    drawn = (
        look.chart(rows)
        .mark_line(strokeWidth=3.5)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "curve:N", scale=alt.Scale(domain=names, range=[c[3] for c in curves]), legend=None
            ),
            strokeDash=alt.StrokeDash(
                "curve:N", scale=alt.Scale(domain=names, range=[c[2] for c in curves]), legend=None
            ),
            tooltip=[
                "curve:N",
                alt.Tooltip("percentile:Q", format=".4~r"),
                alt.Tooltip("latency:Q", format=",.3~r"),
            ],
        )
    )
    rule = look.chart([{"x": 100.0}]).mark_rule(strokeDash=[2, 3], color=look.SOFT).encode(x=x)
    texts = []
    taken = -1e9
    low, high = scale["domain"]
    for row in ends:
        # Labels at the right end of the curves, moved apart where the curves end close together.
        place = 380 * float(np.log(row["latency"] / low) / np.log(high / low))
        place = max(place, taken + 22)
        taken = place
        texts.append(
            look.chart([row])
            .mark_text(align="left", fontWeight="bold")
            .encode(x=alt.value(HALF * 2 - 60), y=alt.value(380 - place), text="text:N")
        )
    return alt.layer(rule, drawn, *texts).properties(width=HALF * 2 - 70, height=380)


def utilisation(scene: Scene) -> Chart:
    """Work that arrives, as a share of what the server can do, over the key count."""
    rows: list[Row] = [
        {
            "keys": phase.keys,
            "demand": demand,
            "busy": phase.utilisation,
            "side": scene.side(phase),
            "phase": scene.name(phase),
        }
        for phase in scene.run.phases
        if phase.arm in (BEFORE, AFTER) and (demand := scene.demand(phase)) is not None
    ]
    top = max([row["demand"] for row in rows] + [1.2]) * 1.06
    span = scene.span
    x = alt.X("keys:Q", axis=look.keys_axis(), scale=alt.Scale(domain=[0, span], nice=False))
    y = alt.Y(
        "demand:Q",
        axis=alt.Axis(title="share of the main thread", format="%", tickCount=6),
        scale=alt.Scale(domain=[0, top]),
    )
    shape, dash, colour = _styles(scene)
    lines = (
        look.chart(rows)
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=alt.Color("side:N", scale=colour, legend=None),
            strokeDash=alt.StrokeDash("side:N", scale=dash, legend=None),
        )
    )
    points = (
        look.chart(rows)
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape("side:N", scale=shape, legend=None),
            color=alt.Color("side:N", scale=colour, legend=None),
            tooltip=[
                alt.Tooltip("phase:N"),
                alt.Tooltip("demand:Q", format=".1%"),
                alt.Tooltip("busy:Q", format=".1%", title="busy"),
            ],
        )
    )
    level = look.chart([{"demand": 1.0}]).mark_rule(strokeWidth=2.5, color=look.INK).encode(y=y)
    said = look.chart([{"demand": 1.0, "text": "all that the server can do"}]).mark_text(
        align="right", dx=-8, dy=-12, fontWeight="bold"
    )
    layers: list[Chart] = [
        level,
        said.encode(x=alt.value(look.WIDTH * 0.62), y=y, text="text:N"),
        lines,
        points,
        *_key(scene),
    ]
    layers += _knees(scene, x, 360, 0.2)
    return alt.layer(*layers).properties(width=look.WIDTH - 90, height=360)
