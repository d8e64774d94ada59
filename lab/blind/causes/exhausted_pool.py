"""An exhausted connection pool."""

from __future__ import annotations

from lab.blind.cause import PAGES_ONLY, Cause
from lab.blind.readings import Finding, Readings, Seen
from lab.blind.sizing import READS_PER_S, WEB, Measured, Orders


def evidence(of: Readings) -> Finding:
    """Found if pages are slow and go past the cache, while a PING through the link and a bystander's GET are fast."""
    return Finding(
        of.slow_pages and not of.slow_gets and of.link_ms < 5 and of.past_cache_per_s >= 1,
        f"{of.pages_text}; {of.gets_text}; a PING on a connection of one's own took {of.link_ms:.2f} ms "
        f"through the link; {of.past_cache_per_s:.1f} pages a second went past the cache.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Give the storefront's pool two connections, each held for longer than the pages can spare."""
    size = 2
    wait_s = max(0.3, 6 * of.healthy.page_ms / 1000)
    return {WEB: {"size": size, "hold_s": strength * 1.5 * size / READS_PER_S, "wait_s": wait_s}}


CAUSE = Cause(
    id="exhausted-pool",
    title="An exhausted connection pool",
    line="the storefront has too few connections, and they are held too long",
    mechanism="A page waits for a connection, not for the server. With so few of them, held so long, more pages come "
    "than can be served; each waits until the pool gives up, and goes past the cache.",
    story=PAGES_ONLY,
    evidence=evidence,
    orders=orders,
    typical={"seen": Seen(300.0, 1.0, 0.3), "past_cache_per_s": 20.0},
    alike={
        "slow-network": "A PING on a connection of your own through the link is fast: there is no delay on the "
        "way.",
        "scan-storm": "A GET past the storefront is fast, and so is the server.",
        "noisy-neighbour": "A GET past the storefront is fast; only what goes through the storefront waits.",
        "nothing": "p99 of a page against its healthy value.",
    },
    cures={
        "pool size 20": "Connections held this long suffice for all pages once there are more of them.",
    },
    tempting={
        "restart storefront": "The pool is new, but as small as before, and is used up again at once.",
    },
    hints=(
        "Ask the server past the storefront, and compare it with a page. Whose time is it?",
        "The storefront counts pages that came from the cache, and those that did not, in its /metrics, and "
        "how long its own GETs took. Compare with a GET of your own on the very same way.",
        "Pages wait for a connection before anything is sent: a few connections, each held long after its "
        'answer came. The pool is exhausted, and the rest goes past the cache (result="bypass").',
    ),
    words=("exhausted-pool", "exhausted", "pool exhaustion", "starv"),
)
