"""A link that stands still now and then."""

from __future__ import annotations

from lab.blind.readings import STALL_TIMES, Readings
from lab.blind.sizing import LINK, Measured, Orders
from lab.server.figures import Evidence

EVERY_S = 2.5
"""Shorter than a sample, so that every sample has a stall."""
LONGEST_S = 1.0
"""Well below the storefront's time-out: a page waits for the cache, and does not go past it."""


def evidence(of: Readings) -> Evidence:
    """Found if pages are slow, and PINGs through the link are quick except for some that wait very long."""
    stalls = of.stalls(of.link_most_ms, max(of.direct_most_ms, of.web_most_ms))
    return Evidence(
        of.slow_pages and stalls and of.link_most_ms >= STALL_TIMES * of.link_ms,
        f"PINGs through the storefront's link took {of.link_ms:.2f} ms in the median and {of.link_most_ms:.0f} ms at "
        f"most, {of.direct_most_ms:.0f} ms at most past it, and a page that needs no cache {of.web_most_ms:.0f} ms; "
        f"{of.pages_text}; {of.p99_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Let the link stand still for several times a healthy page's p99, every few seconds."""
    stall_s = min(LONGEST_S, strength * max(0.4, 8 * of.healthy.page_ms / 1000))
    return {LINK: {"delay_s": 0.0, "stall_s": stall_s, "every_s": EVERY_S}}
