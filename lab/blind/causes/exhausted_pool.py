"""An exhausted connection pool."""

from __future__ import annotations

from lab.blind.readings import Readings
from lab.blind.sizing import READS_PER_S, WEB, Measurements, Orders
from lab.server.figures import Evidence


def evidence(readings: Readings) -> Evidence:
    """Found if pages are slow and go past the cache, while a PING through the link and a bystander's GET are fast."""
    return Evidence(
        readings.slow_pages
        and not readings.slow_gets
        and readings.link_ms < 5
        and readings.past_cache_per_s >= 1,
        f"{readings.pages_text}; {readings.p99_text}; a PING on a connection of one's own took "
        f"{readings.link_ms:.2f} ms through the link; {readings.past_cache_per_s:.1f} pages a second went past the "
        "cache.",
    )


def orders(measured: Measurements, strength: float) -> Orders:
    """Give the storefront's pool two connections, each returned too late for the rate of pages."""
    size = 2
    wait_s = max(0.3, 6 * measured.healthy.page_ms / 1000)
    return {WEB: {"size": size, "hold_s": strength * 1.5 * size / READS_PER_S, "wait_s": wait_s}}
