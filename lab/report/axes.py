"""Axes that fit their values: plain or logarithmic, in the unit that reads best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from lab.report import style
from lab.report.quantities import MS_IN, Quantity

DECADES = 100.0
"""Values that span more than this factor are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Axis:
    """A numeric axis made for its values. `factor` turns a quantity's value into what is drawn."""

    scale: alt.Scale
    axis: alt.Axis
    factor: float

    def share(self, value: float) -> float:
        """Return the place of a drawn value on the axis, from 0 to 1."""
        low, high = (float(end) for end in self.scale["domain"])
        if self.scale["type"] == "log":
            return math.log(value / low) / math.log(high / low)
        if self.scale["type"] == "symlog":
            constant = float(self.scale["constant"])
            return math.log1p(value / constant) / math.log1p(high / constant)
        return (value - low) / (high - low)


def numeric(what: Quantity, values: Sequence[float], places: bool = False) -> Axis:
    """An axis for these values. `places`: the values are few and chosen (an x axis), so they are the labels."""
    time = what.unit in MS_IN
    known = [value * MS_IN[what.unit] if time else value for value in values] or [1.0]
    low, high = min(known), max(known)
    positive = [value for value in known if value > 0]
    wide = bool(positive) and max(positive) / min(positive) > DECADES
    chosen = sorted(set(known)) if places and len(set(known)) <= 9 and what.name != "keys" else None
    if wide and low > 0:
        scale = style.log_scale(known, floor=1e-9)
        if time and not chosen:
            return Axis(scale, style.latency_axis(f"{what.label}, log scale", scale), MS_IN[what.unit])
        ticks = chosen or _powers(*scale["domain"])
        return Axis(scale, _axis(what, f"{what.axis}, log scale", ticks), MS_IN[what.unit] if time else 1.0)
    if wide and low == 0:
        first = min(positive)
        scale = alt.Scale(type="symlog", constant=first, domain=[0, high * 1.3], nice=False)
        ticks = [0, *_powers(10 ** math.floor(math.log10(first)), high * 1.3)]
        return Axis(scale, _axis(what, f"{what.axis}, log scale", ticks), MS_IN[what.unit] if time else 1.0)
    factor, unit = _unit(what, max(abs(low), abs(high)))
    top = max(high, 0.0) * factor * 1.12 or 1.0
    if what.unit == "share" and high > 0.5:
        top = max(top, 1.0)
    scale = alt.Scale(type="linear", domain=[min(low * factor * 1.12, 0.0), top], nice=False)
    title = f"{what.label}, {unit}" if unit else what.axis
    shown = [value * factor for value in chosen] if chosen else None
    return Axis(scale, _axis(what, title, shown), factor * (MS_IN[what.unit] if time else 1.0))


def _unit(what: Quantity, highest: float) -> tuple[float, str]:
    """For a plain axis of time (values in ms): factor and unit that read best."""
    if what.unit not in MS_IN:
        return 1.0, ""
    return display_unit(highest)


def display_unit(highest_ms: float) -> tuple[float, str]:
    """Factor and unit that read best for times in ms up to that one."""
    return (1e-3, "s") if highest_ms >= 2000 else (1.0, "ms") if highest_ms >= 0.5 else (1e3, "µs")


def _axis(what: Quantity, title: str, ticks: Sequence[float] | None) -> alt.Axis:
    if what.name == "keys":
        return style.keys_axis(title)
    form = "%" if what.unit == "share" else ",~r"  # never ~g: that writes 1e+2 where the ticks are hundreds
    more: dict[str, Any] = {"values": list(ticks)} if ticks else {"tickCount": 6}
    return alt.Axis(title=title, format=form, labelOverlap=True, **more)


def _powers(low: float, high: float) -> list[float]:
    exponents = range(round(math.log10(low)), math.floor(math.log10(high)) + 1)
    step = 1 if len(exponents) <= 7 else 2
    return [10.0**n for n in exponents][::step]
