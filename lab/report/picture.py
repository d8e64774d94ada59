"""Charts of a run as pictures of their own, for pages that are not the report."""

from __future__ import annotations

import re
from difflib import get_close_matches

import vl_convert

from lab.errors import UsageError
from lab.report import style, timeline
from lab.report.page import VEGA_LITE, pictures
from lab.report.view import RunView

WIDTH = 780
"""Width of the timeline in pixels, legible on a page 900 pixels wide."""
OWN = "picture-"
"""Prefix of the names that a scenario's own charts have in the report."""
_DIGITS = re.compile(r"(\d+\.\d\d)\d+")


def named(view: RunView, name: str) -> tuple[str, str]:
    """Return a chart of the report by its name (a scenario's own by its id): SVG, and description.

    Raises `UsageError`, with the nearest name, when the run has no such chart.
    """
    known = {found.removeprefix(OWN): (drawn, description) for found, drawn, description in pictures(view)}
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known)}."
        raise UsageError(f"{view.facts.scenario} has no chart {name!r}; {hint}")
    drawn, description = known[name]
    chart = timeline.timeline(view, WIDTH) if name == "timeline" else drawn(view)
    if own := next((own for own in view.charts if own.id == name), None):
        chart = chart.properties(title=own.title)  # in the report the title stands above the chart
    return svg(chart, description), description


def svg(chart: style.Chart, description: str) -> str:
    """A chart as SVG, with its description for screen readers.

    Coordinates are cut to hundredths of a pixel: further digits are invisible and differ between machines.
    """
    drawn = vl_convert.vegalite_to_svg(style.spec(chart, description), vl_version=VEGA_LITE)
    return _DIGITS.sub(r"\1", drawn)
