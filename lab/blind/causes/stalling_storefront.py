"""A storefront that stands still by itself."""

from __future__ import annotations

from lab.blind import evidence as shown
from lab.blind.cause import PAGES_ONLY, Cause
from lab.blind.readings import Finding, Readings, Seen
from lab.blind.sizing import WEB, WELL, Measured, Orders

EVERY_S = 2.5
"""Shorter than a sample, so that every sample has a stall."""
LONGEST_S = 1.0


def evidence(of: Readings) -> Finding:
    """Found if pages are slow, and so are some that need no cache, while no PING waits as long.

    Where other programs take the cores, the storefront waits for one, which is another cause.
    """
    stalls = shown.stalls(of, of.web_most_ms, max(of.direct_most_ms, of.link_most_ms))
    return Finding(
        of.slow_pages and stalls and of.neighbours < shown.OTHERS_CORES,
        f"a page that needs no cache took {of.web_most_ms:.0f} ms at most, a PING {of.direct_most_ms:.0f} ms to the "
        f"server and {of.link_most_ms:.0f} ms through the storefront's link; {of.pages_text}; {of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Let the storefront compute in one piece for several times a healthy page's p99, every few seconds."""
    sum_s = min(LONGEST_S, strength * max(0.4, 8 * of.healthy.page_ms / 1000))
    return {WEB: {**WELL[WEB], "sum_s": sum_s, "every_s": EVERY_S}}


CAUSE = Cause(
    id="stalling-storefront",
    title="A stalling storefront",
    line="the storefront's own process stands still for a moment, again and again",
    mechanism="The storefront does something else beside the pages, in one piece and with the interpreter's lock, like "
    "a collection of garbage. None of its threads runs meanwhile. It books the wait under the command that it was "
    "about to send or to hear from, but server and network are innocent.",
    story=PAGES_ONLY,
    evidence=evidence,
    orders=orders,
    typical={"seen": Seen(350.0, 1.0, 0.3), "web_most_ms": 420.0},
    alike={
        "stalling-link": "A PING through the link is always quick; a page that needs no cache is not.",
        "exhausted-pool": "No page goes past the cache, and a page that needs no connection waits, too.",
        "slow-network": "A PING through the link is quick.",
        "nothing": "p99 of a page against its healthy value: the median of a page tells nothing.",
    },
    cures={
        "housekeeping off": "Nothing takes the interpreter from the pages any more.",
    },
    tempting={
        "restart storefront": "The process is new, and does the same as the old one within seconds.",
    },
    hints=(
        "Most pages are as quick as ever. What do the slow ones have in common, and when do they come?",
        "Which part of a page's way is innocent? Ask each part many times by itself, and look at the longest wait "
        "(bin/lab blind look waits).",
        "Even a page that needs no cache waits for hundreds of milliseconds every few seconds, and no PING does: the "
        "storefront stands still by itself. Its CPU time rises meanwhile.",
    ),
    words=("stalling-storefront", "stalling storefront", "storefront stalls", "garbage"),
)
