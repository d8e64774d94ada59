"""Puts the page together: figures, sentences, tables, and everything they need in one file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from lab.report import look, parts, shapes, story, tables, timeline
from lab.report.scene import Scene

HERE = Path(__file__).parent
VEGA_LITE = "6.4"
SNIPPET = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Drawing:
    """A chart: its name in the page, and its Vega-Lite document as JSON."""

    id: str
    spec: str


def render(scene: Scene) -> str:
    """The whole page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    drawings = {name: _draw(name, make, scene, description) for name, make, description in _charts(scene)}
    return environment.get_template("page.html.j2").render(
        scene=scene,
        facts=scene.facts,
        story=story,
        tables=tables,
        drawings=drawings,
        style=(HERE / "page.css").read_text(),
        library=_library(),
    )


def _charts(scene: Scene) -> list[tuple[str, Callable[[Scene], look.Chart], str]]:
    """Every chart with its description; those of phases that were never measured are left out."""
    if not scene.run.phases:
        return []
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
        (
            "parts",
            parts.where_time_went,
            "The p99 of each phase split into execution, round trip and waiting.",
        ),
        ("eyes", parts.three_p99s, "The p99 of each phase as seen by the probe, the application and Locust."),
        (
            "utilisation",
            shapes.utilisation,
            "Demand on the server's main thread over the key count. " + story.knee(scene),
        ),
    ]


def _draw(name: str, make: Callable[[Scene], look.Chart], scene: Scene, description: str) -> Drawing:
    return Drawing(name, _for_script(look.spec(make(scene), description)))


def _for_script(document: dict[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(document, separators=(",", ":")).replace("</", "<\\/")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle(SNIPPET, vl_version=VEGA_LITE).replace("</script", "<\\/script")
