"""A prediction as a picture: p99 of a bystander, and utilisation, over the number of keys."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import altair as alt
import vl_convert

from lab.errors import StackError
from lab.report import style
from lab.report.page import VEGA_LITE
from lab.results.basis import Basis, Range
from lab.results.prediction import Prediction, predict

STEPS = 36
SIDES = ("at even distances", "at random moments")


def write_plot(basis: Basis, found: Prediction, path: Path) -> Path:
    """Draw the prediction over the keys, from few ones to beyond the knee, as PNG. Returns the path.

    Raises `StackError` when the file cannot be written.
    """
    spec = style.spec(
        _chart(basis, found), "p99 of a bystander and utilisation over the number of keys, predicted."
    )
    try:
        path.write_bytes(vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=1.5))
    except OSError as error:
        raise StackError(f"{path} cannot be written: {error.strerror}.") from None
    return path


def _chart(basis: Basis, found: Prediction) -> style.Chart:
    question = found.question
    top = 1.3 * max(question.keys, found.knee_keys.high if found.knee_keys else 0.0)
    least = max(1.0, min(question.keys, found.knee_keys.low if found.knee_keys else question.keys) / 30)
    waits: list[style.Row] = []
    busy: list[style.Row] = []
    for step in range(STEPS + 1):
        keys = least * (top / least) ** (step / STEPS)
        each = predict(basis, replace(question, keys=keys))
        busy.append({"keys": keys, **_ends("busy", each.utilisation)})
        for side, wait in zip(SIDES, (each.even_ms, each.random_ms), strict=True):
            waits.append({"keys": keys, "events": side, **_ends("p99", wait)})
    span = alt.Scale(type="log", domain=[least, top], nice=False)
    x = alt.X(
        "keys:Q", scale=span, axis=style.keys_axis("keys on all shards" if question.shards > 1 else "keys")
    )
    known = [row[name] for row in waits for name in ("p99_low", "p99_high")]
    scale = style.log_scale([*known, found.even_ms.low])
    y = alt.Y("p99_low:Q", scale=scale, axis=style.latency_axis("p99 of a bystander", scale))
    colour = alt.Color("events:N", scale=alt.Scale(domain=list(SIDES), range=[style.CURE, style.CAUSE]))
    dash = alt.StrokeDash("events:N", scale=alt.Scale(domain=list(SIDES), range=[[1, 0], [7, 5]]))
    drawn = style.chart([row for row in waits if row["p99"] is not None])
    banded = style.chart([row for row in waits if row["p99_high"] is not None])
    upper = alt.layer(
        banded.mark_area(opacity=0.2).encode(x=x, y=y, y2="p99_high:Q", color=colour),
        drawn.mark_line().encode(x=x, y=alt.Y("p99:Q", scale=scale), color=colour, strokeDash=dash),
        *_knee(found, x),
    ).properties(width=style.WIDTH - 330, height=300, title="Events at even distances, and at random moments")
    shares = alt.Scale(domain=[0, 1.5], clamp=True)
    axis = alt.Axis(title="utilisation", format="%")
    lower = alt.layer(
        style.chart(busy)
        .mark_area(opacity=0.2, color=style.INK)
        .encode(x=x, y=alt.Y("busy_low:Q", scale=shares, axis=axis), y2="busy_high:Q"),
        style.chart(busy).mark_line(color=style.INK).encode(x=x, y=alt.Y("busy:Q", scale=shares)),
        *_knee(found, x),
    ).properties(width=style.WIDTH - 330, height=180)
    drawing: style.Chart = alt.vconcat(upper, lower)
    return drawing


def _ends(name: str, range_: Range) -> style.Row:
    """A range as fields of a row; None where it has no limit."""
    ends = {f"{name}_low": range_.low, name: range_.likely, f"{name}_high": range_.high}
    return {key: value if math.isfinite(value) else None for key, value in ends.items()}


def _knee(found: Prediction, x: alt.X) -> list[alt.Chart]:
    """The likely knee as a rule with its name."""
    if found.knee_keys is None:
        return []
    rows = style.chart([{"keys": found.knee_keys.likely, "text": "knee"}])
    return [
        rows.mark_rule(strokeDash=[3, 3], color=style.INK).encode(x=x),
        rows.mark_text(align="right", dx=-8).encode(x=x, y=style.y_at(14), text=alt.Text("text:N")),
    ]
