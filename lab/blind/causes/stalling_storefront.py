"""A storefront that stands still by itself."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.blind.sizing import HEALTHY_ORDERS, WEB, Measurements, Orders
from lab.server import signs
from lab.server.figures import Evidence

EVERY_S = 2.5
"""Shorter than a sample, so that every sample has a stall."""
LONGEST_S = 1.0


def evidence(readings: Readings) -> Evidence:
    """Found if pages are slow, even some that need no cache, while no PING waits as long.

    If other programs take the cores, the storefront waits for a core, which is another cause.
    """
    stalls = readings.stalls(readings.web_most_ms, max(readings.direct_most_ms, readings.link_most_ms))
    return Evidence(
        readings.slow_pages and stalls and readings.others < signs.OTHERS_CORES,
        f"a page that needs no cache took {readings.web_most_ms:.0f} ms at most, a PING "
        f"{readings.direct_most_ms:.0f} ms to the server and {readings.link_most_ms:.0f} ms through the storefront's "
        f"link; {readings.pages_text}; {readings.p99_text}.",
    )


def orders(measured: Measurements, strength: float) -> Orders:
    """Let the storefront compute in one piece for several times a healthy page's p99, every few seconds."""
    sum_s = min(LONGEST_S, strength * max(0.4, 8 * measured.healthy.page_ms / 1000))
    return {WEB: {**HEALTHY_ORDERS[WEB], "sum_s": sum_s, "every_s": EVERY_S}}
