"""A slow network."""

from __future__ import annotations

from lab.blind.cause import PAGES_ONLY, Cause
from lab.blind.readings import Finding, Readings, Seen
from lab.blind.sizing import LINK, Measured, Orders


def evidence(of: Readings) -> Finding:
    """Found if pages are slow and a PING is slow through the link and fast past it."""
    return Finding(
        of.slow_pages and of.link_ms >= 10 and of.link_ms >= 5 * of.direct_ms,
        f"a PING took {of.link_ms:.2f} ms through the storefront's link, {of.direct_ms:.2f} ms past it; "
        f"{of.pages_text}; {of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Let the link delay each round trip by several times a healthy page's p99."""
    return {LINK: {"delay_s": strength * min(0.5, max(0.04, 6 * of.healthy.page_ms / 1000))}}


CAUSE = Cause(
    id="slow-network",
    title="A slow network",
    line="the way between storefront and server has become long",
    mechanism="Every command of the storefront takes one round trip more than the server needs. Server, slow log and "
    "bystanders on another way know nothing of it.",
    story=PAGES_ONLY,
    evidence=evidence,
    orders=orders,
    typical={"seen": Seen(45.0, 1.0, 0.3), "link_ms": 40.0},
    alike={
        "exhausted-pool": "A PING on a connection of your own through the same link is slow too, even when "
        "nobody else asks.",
        "noisy-neighbour": "A GET past the link is fast.",
        "scan-storm": "A GET past the link is fast, and the server has time.",
        "unpipelined-deletes": "Pages are slow; changes, which do not take the link, are not late.",
    },
    cures={
        "link standby": "The storefront's commands take a way that is not slow.",
    },
    tempting={
        "pool size 50": "More connections wait at the same time; each command takes as long as before.",
    },
    hints=(
        "Ask the server past the storefront, and compare it with a page. Whose time is it?",
        "Go the storefront's own way: it does not talk to the server directly. Measure each part of the way "
        "by itself, with one command and no load.",
        "redis-cli --latency on the link's port against the server's own port: the way is slow, the network.",
    ),
    words=("slow-network", "slow network", "slownetwork", "netem"),
)
