"""Puts the page together: figures, sentences, tables, and everything they need in one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import vl_convert

from lab.explain.conclusions import Judged
from lab.explain.story import tell
from lab.report import charts, general, look, parts, shapes, story, tables, timeline
from lab.report.scene import Scene
from lab.templates import templates

HERE = Path(__file__).parent
VEGA_LITE = "6.4"
PARTS = "The p99 of each phase split into execution, round trip and waiting."
EYES = "The p99 of each phase as seen by the probe, the application and Locust."
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Drawing:
    """A chart: its name in the page, and its Vega-Lite document as JSON."""

    id: str
    spec: str


def render(scene: Scene) -> str:
    """The whole page as HTML."""
    drawings = {name: draw(name, make(scene), description) for name, make, description in pictures(scene)}
    return fill(
        "page.html.j2",
        drawings,
        scene=scene,
        facts=scene.facts,
        story=story,
        told=story if scene.main else general,
        tables=tables,
        words=tell(scene, Judged.read(scene.result)) if scene.result else [],
    )


def fill(template: str, drawings: dict[str, Drawing], **more: Any) -> str:
    """A page from a template; the library for drawings is put in only where there are any."""
    style = (HERE / "page.css").read_text()
    return (
        templates(HERE)
        .get_template(template)
        .render(drawings=drawings, style=style, library=_library, **more)
    )


def pictures(scene: Scene) -> list[tuple[str, Callable[[Scene], look.Chart], str]]:
    """Every chart: name, how it is drawn, what it shows in words. Those of phases never measured are left out."""
    if not scene.run.phases:
        return []
    own = [
        (f"picture-{chart.id}", partial(charts.draw, chart=chart), charts.description(scene, chart))
        for chart in scene.charts
        if charts.has_data(scene, chart)
    ]
    return [*(_incident(scene) if scene.main else _general()), *own]


def _general() -> list[tuple[str, Callable[[Scene], look.Chart], str]]:
    return [
        ("timeline", timeline.timeline, "Key count and p99 of a GET over time, with phases and restarts."),
        ("stalls", parts.stalls, "The p99 and the longest wait of a bystander's GET in each phase."),
        ("rates", timeline.rates, "Calls a second of each command over time."),
        ("parts", parts.where_time_went, PARTS),
        ("eyes", parts.three_p99s, EYES),
    ]


def _incident(scene: Scene) -> list[tuple[str, Callable[[Scene], look.Chart], str]]:
    first, top = story.figures(scene)[:1], story.figures(scene)[1:2]
    told = f" From {first[0].value} to {top[0].value}." if first and top else ""
    return [
        (
            "timeline",
            timeline.timeline,
            "Key count and p99 of a GET over time, with phases, restarts and switches." + told,
        ),
        (
            "scatter",
            shapes.scatter,
            "p99 against the key count for each strategy, with fitted lines. " + story.knee(scene),
        ),
        (
            "percentiles",
            shapes.percentiles,
            "Latency at each percentile with few keys, with all keys, and after the fix.",
        ),
        ("rates", timeline.rates, "Calls a second of each command over time; SCAN ends with the fix."),
        ("parts", parts.where_time_went, PARTS),
        ("eyes", parts.three_p99s, EYES),
        (
            "utilisation",
            shapes.utilisation,
            "Demand on the server's main thread over the key count. " + story.knee(scene),
        ),
    ]


def draw(name: str, drawing: look.Chart, description: str) -> Drawing:
    """A chart as the page takes it."""
    return Drawing(name, _for_script(look.spec(drawing, description)))


def _for_script(document: dict[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(document, separators=(",", ":")).replace("</", "<\\/")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle(SNIPPET, vl_version=VEGA_LITE).replace("</script", "<\\/script")
