"""A slow network."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.blind.sizing import LINK, Measured, Orders
from lab.server.figures import Evidence


def evidence(of: Readings) -> Evidence:
    """Found if pages are slow and a PING is slow through the link and fast past it."""
    return Evidence(
        of.slow_pages and of.link_ms >= 10 and of.link_ms >= 5 * of.direct_ms,
        f"a PING took {of.link_ms:.2f} ms through the storefront's link, {of.direct_ms:.2f} ms past it; "
        f"{of.pages_text}; {of.p99_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Let the link delay each round trip by several times a healthy page's p99."""
    return {LINK: {"delay_s": strength * min(0.5, max(0.04, 6 * of.healthy.page_ms / 1000))}}
