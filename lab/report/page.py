"""Puts the page together: figures, sentences, tables, and everything they need in one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import vl_convert

from lab.report import breakdown, charts, conclusions, prose, story, style, tables, timeline
from lab.report.conclusions import Judged
from lab.report.view import RunView
from lab.results.numbers import ms
from lab.templates import templates

FOLDER = Path(__file__).parent
VEGA_LITE = "6.4"
PARTS = "The p99 of each phase split into execution, round trip, the probe's own lateness and waiting."
BY_OBSERVER = "The p99 of each phase as seen by the probe, the application and Locust."
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Drawing:
    """A chart: its name in the page, and its Vega-Lite document as JSON."""

    id: str
    spec: str


def render(view: RunView) -> str:
    """The whole page as HTML."""
    drawings = {name: draw(name, make(view), description) for name, make, description in pictures(view)}
    return fill(
        "page.html.j2",
        drawings,
        view=view,
        spoilers=view.spoilers,
        facts=view.facts,
        story=story,
        prose=prose,
        tables=tables,
        remark=charts.remark,
        follows=_follows(view),
    )


def _follows(view: RunView) -> list[conclusions.Section]:
    """The conclusions from a judged run, section by section; empty sections are left out."""
    if view.result is None or not view.run.phases:
        return []
    judged = Judged.read(view.result)
    found = [
        conclusions.refuted(view, judged),
        conclusions.remains(view, judged),
        prose.fix(view),
        conclusions.cannot_tell(view, judged),
    ]
    return [section for section in found if section.sentences or section.points]


def fill(template: str, drawings: dict[str, Drawing], **more: Any) -> str:
    """A page from a template; the drawing library is included only if there are drawings."""
    style = (FOLDER / "page.css").read_text()
    return (
        templates(FOLDER)
        .get_template(template)
        .render(drawings=drawings, style=style, library=_library, **more)
    )


def pictures(view: RunView) -> list[tuple[str, Callable[[RunView], style.Chart], str]]:
    """Return every chart that has data: name, drawing function, and description."""
    if not view.run.phases:
        return []
    own = [
        (f"picture-{chart.id}", partial(charts.draw, chart=chart), charts.description(view, chart))
        for chart in view.charts
        if charts.has_data(view, chart)
    ]
    low, high = ms(view.p99(view.best)), ms(view.p99(view.worst))
    return [
        (
            "timeline",
            timeline.timeline,
            f"Key count and p99 of a GET over time, with phases and restarts. From {low} to {high}.",
        ),
        ("stalls", breakdown.stalls, "The p99 and the longest wait of a bystander's GET in each phase."),
        ("rates", timeline.rates, "Calls a second of each command over time."),
        ("parts", breakdown.where_time_went, PARTS),
        ("eyes", breakdown.three_p99s, BY_OBSERVER),
        *own,
    ]


def draw(name: str, drawing: style.Chart, description: str) -> Drawing:
    """A chart in the form that the page embeds."""
    return Drawing(name, _for_script(style.spec(drawing, description)))


def _for_script(document: dict[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(document, separators=(",", ":")).replace("</", "<\\/")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle(SNIPPET, vl_version=VEGA_LITE).replace("</script", "<\\/script")
