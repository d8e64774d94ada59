"""Charts over the key count and over percentiles."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from lab.report import style
from lab.report.style import Chart, Row
from lab.report.view import RunView
from lab.results import numbers

HALF = 440
QUANTILES = (50, 75, 90, 95, 99, 99.5, 99.9)


def _styles(view: RunView) -> tuple[alt.Scale, alt.Scale, alt.Scale]:
    """Shape, dash and colour of both sides."""
    return (
        alt.Scale(domain=view.sides, range=["circle", "triangle-up"]),
        alt.Scale(domain=view.sides, range=[[1, 0], [7, 5]]),
        alt.Scale(domain=view.sides, range=[style.CAUSE, style.CURE]),
    )


def scatter(view: RunView) -> Chart:
    """Keys against p99: below the knee on plain axes with the fitted lines, and all phases on a log axis."""
    points = [
        {
            "keys": phase.keys,
            "p99": p99,
            "side": view.side(phase),
            "phase": view.name(phase),
            "below": view.below_knee(phase) or phase.arm in (view.arms.cured, "fix"),
            "grown": phase.arm in (view.arms.rising, view.arms.cured),
        }
        for phase in view.run.phases
        if (p99 := view.p99(phase)) is not None
    ]
    left = _fits(view, [p for p in points if p["below"] and p["grown"]])
    right = _all_phases(view, points)
    return alt.hconcat(left, right, spacing=110, bounds="flush")


def _points(view: RunView, rows: list[Row], y: alt.Y, x: alt.X) -> Chart:
    shape, _, colour = _styles(view)
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
    solid = style.chart([r for r in rows if r["grown"]]).mark_point(filled=True, opacity=1).encode(**encoded)
    hollow = style.chart([r for r in rows if not r["grown"]]).mark_point(opacity=1).encode(**encoded)
    return alt.layer(solid, hollow)


def _fits(view: RunView, rows: list[Row]) -> Chart:
    lines: list[Row] = []
    labels: list[tuple[str, str]] = []
    for arm, side in ((view.arms.rising, view.side_before), (view.arms.cured, view.side_after)):
        fit = view.fit(arm)
        if fit is None:
            continue
        lines += [{"keys": k, "p99": fit.at(k), "side": side} for k in (fit.low, fit.high)]
        labels.append((side, _slope(fit.slope)))
    highest = max([r["p99"] for r in rows] + [r["p99"] for r in lines] + [1.0]) * 1.3
    x = alt.X("keys:Q", axis=style.keys_axis("keys, plateaus below the knee"), scale=alt.Scale(domainMin=0))
    y = alt.Y("p99:Q", axis=alt.Axis(title="p99, ms"), scale=alt.Scale(domain=[0, highest], nice=False))
    _, dash, colour = _styles(view)
    drawn = (
        style.chart(lines)
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
        _points(view, rows, y, x),
        *_key(view, dict(labels)),
        _heading("Below the knee: a line, and its slope"),
    ).properties(width=HALF, height=380)
    return drawing


def _heading(text: str) -> Chart:
    """A heading right above a plot. (A chart's title moves with the axis labels, so two plots' would not be level.)"""
    words = style.chart([{"text": text}]).mark_text(align="left", fontWeight="bold", fontSize=style.SIZE + 1)
    heading: Chart = words.encode(x=style.x_at(0), y=style.y_at(-18), text=alt.Text("text:N"))
    return heading


def _key(view: RunView, more: dict[str, str] | None = None) -> list[Chart]:
    """The key in the corner of a plot: sign and name of each side, so that a projector's colours do not matter."""
    layers: list[Chart] = []
    seen = {view.side(phase) for phase in view.run.phases}
    sides = zip(view.sides, ("circle", "triangle-up"), (style.CAUSE, style.CURE), strict=True)
    for line, (side, shape, colour) in enumerate(found for found in sides if found[0] in seen):
        caption = f"{side}: {more[side]}" if more and side in more else side
        place = style.y_at(22 + 24 * line)
        sign = style.chart([{}]).mark_point(shape=shape, filled=True, color=colour, opacity=1)
        text = style.chart([{"text": caption}]).mark_text(align="left", fontWeight="bold")
        layers.append(sign.encode(x=style.x_at(18), y=place))
        layers.append(text.encode(x=style.x_at(32), y=place, text=alt.Text("text:N")))
    return layers


def _slope(per_key: float) -> str:
    value = per_key * 1e5
    return f"{'+' if value >= 0 else '−'}{numbers.sig(abs(value))} ms per 100,000 keys".replace(" ", "\u00a0")


def _all_phases(view: RunView, rows: list[Row]) -> Chart:
    span = view.span
    x = alt.X(
        "keys:Q", axis=style.keys_axis("keys, all phases"), scale=alt.Scale(domain=[0, span], nice=False)
    )
    scale = style.log_scale([row["p99"] for row in rows])
    y = alt.Y("p99:Q", axis=style.latency_axis("p99, log scale", scale), scale=scale)
    layers: list[Chart] = []
    layers += _knees(view, x, 380, 0.11)
    layers += [_points(view, rows, y, x), *_key(view), _heading("All phases: the knee")]
    return alt.layer(*layers).properties(width=HALF, height=380)


def _knees(view: RunView, x: alt.X, height: int, at: float) -> list[Chart]:
    """The predicted and the observed knee as rules, with their labels to the left of both."""
    found = [
        (what, knee, dash)
        for what, knee, dash in (
            ("knee predicted (dotted)", view.predicted_knee, [2, 4]),
            ("knee observed (dashed)", view.observed_knee, [10, 4]),
        )
        if knee is not None and knee <= view.span
    ]
    layers: list[Chart] = []
    for line, (what, knee, dash) in enumerate(found):
        rule = style.chart([{"keys": knee}]).mark_rule(strokeDash=dash, strokeWidth=2.5, color=style.INK)
        label = {"keys": min(k for _, k, _ in found), "text": f"{what}: {knee / 1000:,.0f} k"}
        place = style.y_at(height * (1 - at) + 24 * line)
        layers.append(rule.encode(x=x))
        halos: list[dict[str, Any]] = [{"stroke": "white", "strokeWidth": 5}, {}]
        for halo in halos:  # points may lie behind the words
            text = style.chart([label]).mark_text(align="right", dx=-9, fontWeight="bold", **halo)
            layers.append(text.encode(x=x, y=place, text=alt.Text("text:N")))
    return layers


def percentiles(view: RunView) -> Chart:
    """Latency over percentile: few keys, the top before the fix, the top after it."""
    curves = [
        (f"{view.side_before}, few keys", view.first(view.arms.rising), [2, 4], style.FOURTH),
        (f"{view.side_before}, all keys", view.top(view.arms.rising), [1, 0], style.CAUSE),
        (f"{view.side_after}, all keys", view.top(view.arms.cured), [9, 5], style.CURE),
    ]
    rows: list[Row] = []
    ends: list[Row] = []
    for name, phase, _, _ in curves:
        values = view.latencies.phase(phase) if phase else np.array([])
        if not len(values):
            continue
        # A percentile needs at least one request beyond it; the last ones of a curve stand for very few requests.
        reach = min(1000.0, float(len(values)))
        for inverse in np.geomspace(2, max(reach, 2), 90):
            share = 1 - 1 / inverse
            latency = float(np.quantile(values, share)) / 1000
            rows.append({"x": float(inverse), "latency": latency, "curve": name, "percentile": 100 * share})
        ends.append({**rows[-1], "text": name})
    ends.sort(key=lambda row: row["latency"])
    scale = style.log_scale([row["latency"] for row in rows])
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
    y = alt.Y("latency:Q", axis=style.latency_axis("latency, log scale", scale), scale=scale)
    names = [name for name, _, _, _ in curves]
    drawn = (
        style.chart(rows)
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
    rule = style.chart([{"x": 100.0}]).mark_rule(strokeDash=[2, 3], color=style.SOFT).encode(x=x)
    texts = []
    taken = -1e9
    low, high = scale["domain"]
    for row in ends:
        # Labels at the right end of the curves, moved apart where the curves end close together.
        place = 380 * float(np.log(row["latency"] / low) / np.log(high / low))
        place = max(place, taken + 22)
        taken = place
        texts.append(
            style.chart([row])
            .mark_text(align="left", fontWeight="bold")
            .encode(x=style.x_at(HALF * 2 - 60), y=style.y_at(380 - place), text=alt.Text("text:N"))
        )
    return alt.layer(rule, drawn, *texts).properties(width=HALF * 2 - 70, height=380)


def utilisation(view: RunView) -> Chart:
    """Draw arriving work as a share of the server's capacity, over the key count."""
    rows: list[Row] = [
        {
            "keys": phase.keys,
            "demand": demand,
            "busy": phase.utilisation,
            "side": view.side(phase),
            "phase": view.name(phase),
        }
        for phase in view.run.phases
        if phase.arm in (view.arms.rising, view.arms.cured) and (demand := view.demand(phase)) is not None
    ]
    top = max([row["demand"] for row in rows] + [1.2]) * 1.06
    span = view.span
    x = alt.X("keys:Q", axis=style.keys_axis(), scale=alt.Scale(domain=[0, span], nice=False))
    y = alt.Y(
        "demand:Q",
        axis=alt.Axis(title="share of the main thread", format="%", tickCount=6),
        scale=alt.Scale(domain=[0, top]),
    )
    shape, dash, colour = _styles(view)
    lines = (
        style.chart(rows)
        .mark_line()
        .encode(
            x=x,
            y=y,
            color=alt.Color("side:N", scale=colour, legend=None),
            strokeDash=alt.StrokeDash("side:N", scale=dash, legend=None),
        )
    )
    points = (
        style.chart(rows)
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
    level = style.chart([{"demand": 1.0}]).mark_rule(strokeWidth=2.5, color=style.INK).encode(y=y)
    caption = style.chart([{"demand": 1.0, "text": "all that the server can do"}]).mark_text(
        align="right", dx=-8, dy=-12, fontWeight="bold"
    )
    layers: list[Chart] = [
        level,
        caption.encode(x=style.x_at(style.WIDTH * 0.62), y=y, text=alt.Text("text:N")),
        lines,
        points,
        *_key(view),
    ]
    layers += _knees(view, x, 360, 0.2)
    return alt.layer(*layers).properties(width=style.WIDTH - 90, height=360)


def knee(view: RunView) -> str:
    """Return a sentence on the predicted and the observed knee."""
    predicted, observed = view.predicted_knee, view.observed_knee
    if predicted is None:
        return "Part of the load, before and after each plateau, predicted no saturation: there is no knee."
    caption = f"Part of the load, before and after each plateau, predicted the knee at {numbers.count(predicted)} keys"
    if observed is None:
        return f"{caption}; in this run the demand never reached the server's capacity."
    error = f"{(predicted / observed - 1) * 100:+.1f} %".replace("-", "−")
    return f"{caption}; it was observed at {numbers.count(observed)} ({error})."
