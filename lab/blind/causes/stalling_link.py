"""A link that stands still now and then."""

from __future__ import annotations

from lab.blind.readings import STALL_TIMES, Readings
from lab.blind.sizing import LINK, Measurements, Orders
from lab.server.figures import Evidence

EVERY_S = 2.5
"""Shorter than a sample, so that every sample has a stall."""
LONGEST_S = 1.0
"""Well below the storefront's time-out: a page waits for the cache, and does not go past it."""


def evidence(readings: Readings) -> Evidence:
    """Found if pages are slow, and PINGs through the link are quick except for some that wait very long."""
    stalls = readings.stalls(readings.link_most_ms, max(readings.direct_most_ms, readings.web_most_ms))
    return Evidence(
        readings.slow_pages and stalls and readings.link_most_ms >= STALL_TIMES * readings.link_ms,
        f"PINGs through the storefront's link took {readings.link_ms:.2f} ms in the median and "
        f"{readings.link_most_ms:.0f} ms at most, {readings.direct_most_ms:.0f} ms at most past it, and a page that "
        f"needs no cache {readings.web_most_ms:.0f} ms; {readings.pages_text}; {readings.p99_text}.",
    )


def orders(measured: Measurements, strength: float) -> Orders:
    """Let the link stand still for several times a healthy page's p99, every few seconds."""
    stall_s = min(LONGEST_S, strength * max(0.4, 8 * measured.healthy.page_ms / 1000))
    return {LINK: {"delay_s": 0.0, "stall_s": stall_s, "every_s": EVERY_S}}
