"""A link that stands still now and then."""

from __future__ import annotations

from lab.blind import evidence as shown
from lab.blind.cause import PAGES_ONLY, Cause
from lab.blind.readings import Finding, Readings, Seen
from lab.blind.sizing import LINK, Measured, Orders

EVERY_S = 2.5
"""Shorter than a sample, so that every sample has a stall."""
LONGEST_S = 1.0
"""Well below the storefront's time-out: a page waits for the cache, and does not go past it."""


def evidence(of: Readings) -> Finding:
    """Found if pages are slow, and PINGs through the link are quick except for some that wait very long."""
    stalls = shown.stalls(of, of.link_most_ms, max(of.direct_most_ms, of.web_most_ms))
    return Finding(
        of.slow_pages and stalls and of.link_most_ms >= shown.STALL_TIMES * of.link_ms,
        f"PINGs through the storefront's link took {of.link_ms:.2f} ms in the median and {of.link_most_ms:.0f} ms at "
        f"most, {of.direct_most_ms:.0f} ms at most past it, and a page that needs no cache {of.web_most_ms:.0f} ms; "
        f"{of.pages_text}; {of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Let the link stand still for several times a healthy page's p99, every few seconds."""
    stall_s = min(LONGEST_S, strength * max(0.4, 8 * of.healthy.page_ms / 1000))
    return {LINK: {"delay_s": 0.0, "stall_s": stall_s, "every_s": EVERY_S}}


CAUSE = Cause(
    id="stalling-link",
    title="A stalling link",
    line="the way between storefront and server lets nothing through for a moment, again and again",
    mechanism="Nearly always the way is as short as ever. But every few seconds nothing gets through for a moment, as "
    "on a network that loses packets and sends them again. Whatever is asked then waits for the rest of that moment; "
    "medians and a few PINGs do not see it.",
    story=PAGES_ONLY,
    evidence=evidence,
    orders=orders,
    typical={"seen": Seen(350.0, 1.0, 0.3), "link_most_ms": 390.0},
    alike={
        "slow-network": "Most PINGs through the link are as quick as past it; only now and then one waits long.",
        "exhausted-pool": "No page goes past the cache, and a PING on a connection of your own stalls, too.",
        "stalling-storefront": "A page that needs no cache is always quick: the storefront itself never stands still.",
        "nothing": "p99 of a page against its healthy value: the median of a page tells nothing.",
    },
    cures={
        "link standby": "The storefront's commands take a way that never stands still.",
    },
    tempting={
        "restart storefront": "Its connections are new, but they take the same way.",
    },
    hints=(
        "Most pages are as quick as ever. What do the slow ones have in common, and when do they come?",
        "One measurement is not enough for something that happens now and then. Ask each part of the way many "
        "times, and look at the longest wait, not at the median (bin/lab blind look waits).",
        "PINGs through the link are quick, but every few seconds one waits for hundreds of milliseconds, while "
        "those past it never do: the link stalls.",
    ),
    words=("stalling-link", "stalling link", "link stalls", "packet loss"),
)
