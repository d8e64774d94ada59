"""A storefront that stands still by itself."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.blind.sizing import WEB, WELL, Measured, Orders
from lab.server import signs
from lab.server.figures import Evidence

EVERY_S = 2.5
"""Shorter than a sample, so that every sample has a stall."""
LONGEST_S = 1.0


def evidence(of: Readings) -> Evidence:
    """Found if pages are slow, and so are some that need no cache, while no PING waits as long.

    Where other programs take the cores, the storefront waits for one, which is another cause.
    """
    stalls = of.stalls(of.web_most_ms, max(of.direct_most_ms, of.link_most_ms))
    return Evidence(
        of.slow_pages and stalls and of.others < signs.OTHERS_CORES,
        f"a page that needs no cache took {of.web_most_ms:.0f} ms at most, a PING {of.direct_most_ms:.0f} ms to the "
        f"server and {of.link_most_ms:.0f} ms through the storefront's link; {of.pages_text}; {of.p99_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Let the storefront compute in one piece for several times a healthy page's p99, every few seconds."""
    sum_s = min(LONGEST_S, strength * max(0.4, 8 * of.healthy.page_ms / 1000))
    return {WEB: {**WELL[WEB], "sum_s": sum_s, "every_s": EVERY_S}}
