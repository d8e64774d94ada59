"""The picture for the README: the run's timeline, legible at 900 pixels."""

from __future__ import annotations

import vl_convert

from lab.errors import UsageError
from lab.report import look, timeline
from lab.report.page import VEGA_LITE
from lab.report.scene import Scene

WIDTH = 780


def draw(scene: Scene, ending: str) -> bytes:
    """The picture as SVG or PNG (twice as dense, for sharp screens). Another ending raises `UsageError`."""
    document = look.spec(timeline.timeline(scene, WIDTH), "Key count and p99 of a GET over time.")
    if ending == ".svg":
        return vl_convert.vegalite_to_svg(document, vl_version=VEGA_LITE).encode()
    if ending == ".png":
        return vl_convert.vegalite_to_png(document, vl_version=VEGA_LITE, scale=2)
    raise UsageError(f"a picture ends in .svg or .png, not {ending or 'in nothing'!r}.")
