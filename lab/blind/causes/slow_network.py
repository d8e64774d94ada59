"""A slow network."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.blind.sizing import LINK, Measurements, Orders
from lab.server.figures import Evidence


def evidence(readings: Readings) -> Evidence:
    """Found if pages are slow and a PING is slow through the link and fast past it."""
    return Evidence(
        readings.slow_pages and readings.link_ms >= 10 and readings.link_ms >= 5 * readings.direct_ms,
        f"a PING took {readings.link_ms:.2f} ms through the storefront's link, {readings.direct_ms:.2f} ms past it; "
        f"{readings.pages_text}; {readings.p99_text}.",
    )


def orders(measured: Measurements, strength: float) -> Orders:
    """Let the link delay each round trip by several times a healthy page's p99."""
    return {LINK: {"delay_s": strength * min(0.5, max(0.04, 6 * measured.healthy.page_ms / 1000))}}
