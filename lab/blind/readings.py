"""Readings: what can be measured of the scene from outside over one stretch of time. All evidence comes from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.blind.evidence import LEAST_GET_MS, TIMES_HEALTHY, Spent

LEAST_PAGE_MS, LEAST_OLDEST_S = 25.0, 2.0
"""Like `LEAST_GET_MS`, for the p99 of a page and for the age of the oldest change."""
RESTLESS_GET_MS, RESTLESS_PAGE_MS = 10.0, 50.0
"""A healthy p99 above this is due to the machine more than to the scene."""
TIMES_RESTLESS = 1.5
"""This multiple of such a healthy value is a symptom if it is also `TIMES_HEALTHY` times the bound above."""
SLOWER = 1.5
"""Users say that pages became slow from this multiple of the healthy p99 on, if others who use the server say so, too.

A page takes the storefront some milliseconds, and what a read waits is added to them. On a fast machine a wait that
makes a bystander's GET ten times as long makes a page twice as long.
"""


def plainly_slower(now_ms: float, healthy_ms: float, least_ms: float, restless_ms: float) -> bool:
    """Return whether users would say that something became slow (all values: p99 in ms)."""
    usual = TIMES_HEALTHY * min(healthy_ms, restless_ms)
    return now_ms >= max(usual, TIMES_RESTLESS * healthy_ms, least_ms)


@dataclass(frozen=True)
class Seen:
    """What users see: p99 of a page and of a bystander's GET (ms), and the age of the oldest pending change (s)."""

    page_ms: float
    get_ms: float
    oldest_s: float

    @property
    def text(self) -> str:
        """The three figures in words."""
        return (
            f"p99 of a page {self.page_ms:.1f} ms; p99 of a bystander's GET {self.get_ms:.1f} ms; the oldest change "
            f"waited {self.oldest_s:.1f} s"
        )


@dataclass(frozen=True)
class Readings:
    """Readings over one stretch of `seconds`; `healthy` is what users saw before the cause began.

    `busy` is the utilisation of the server's main thread. `waited` is the share of the time that this thread was ready
    to run but had no core (None if the system does not tell). `neighbours` counts the cores that programs of other
    teams used. `slow` maps a command to the number of its new slow log entries and the longest (ms). `memory` is the
    largest share of maxmemory in use. `link_ms` and `direct_ms` are medians of a PING through the storefront's link and
    past it. `past_cache_per_s` counts pages for which the storefront did not reach its cache.

    `link_most_ms`, `direct_most_ms` and `web_most_ms` are the longest of many waits: for a PING through the link, for a
    PING past it, and for a page of the storefront that needs no cache. If the stretch has several samples, they are the
    medians of the samples' longest waits, because one long wait may be the machine's doing. `expired_per_s` counts
    entries whose time to live was over, `connects_per_s` connections that the server accepted, and `sent_mb_per_s` is
    what it sent to its clients.
    """

    seconds: float
    seen: Seen
    healthy: Seen
    busy: float
    waited: float | None
    neighbours: float
    cores: int
    evicted_per_s: float
    memory: float
    link_ms: float
    direct_ms: float
    past_cache_per_s: float
    link_most_ms: float
    direct_most_ms: float
    web_most_ms: float
    expired_per_s: float
    sent_mb_per_s: float
    connects_per_s: float
    keys: int
    commands: dict[str, Spent] = field(default_factory=dict)
    slow: dict[str, tuple[int, float]] = field(default_factory=dict)

    def spent(self, command: str) -> Spent:
        """What a command cost; all zero if it was not called."""
        return self.commands.get(command, Spent(0.0, 0.0, 0.0))

    @property
    def get_ms(self) -> float:
        """The p99 of a bystander's GETs, in ms."""
        return self.seen.get_ms

    @property
    def slow_pages(self) -> bool:
        """True if pages are plainly slower than when all was well."""
        return plainly_slower(self.seen.page_ms, self.healthy.page_ms, LEAST_PAGE_MS, RESTLESS_PAGE_MS)

    @property
    def slower_pages(self) -> bool:
        """True if pages are slower than when all was well, if not as plainly as for `slow_pages`."""
        return self.slow_pages or self.seen.page_ms >= SLOWER * self.healthy.page_ms

    @property
    def slow_gets(self) -> bool:
        """True if a bystander's GETs are plainly slower than when all was well."""
        return plainly_slower(self.seen.get_ms, self.healthy.get_ms, LEAST_GET_MS, RESTLESS_GET_MS)

    @property
    def stale(self) -> bool:
        """True if changes wait plainly longer than when all was well."""
        return self.seen.oldest_s >= max(TIMES_HEALTHY * self.healthy.oldest_s, LEAST_OLDEST_S)

    @property
    def symptom(self) -> bool:
        """True if users have something to complain of: pages, GETs or changes."""
        return self.slow_pages or self.slow_gets or self.stale

    @property
    def pages_text(self) -> str:
        """The p99 of a page, healthy and now, in words."""
        return f"p99 of a page {_became(self.healthy.page_ms, self.seen.page_ms)}"

    @property
    def gets_text(self) -> str:
        """The p99 of a bystander's GET, healthy and now, in words."""
        return f"p99 of a bystander's GET {_became(self.healthy.get_ms, self.seen.get_ms)}"

    @property
    def changes_text(self) -> str:
        """The age of the oldest change, healthy and now, in words."""
        return f"the oldest change waited {self.healthy.oldest_s:.1f} → {self.seen.oldest_s:.1f} s"


def _became(healthy: float, now: float) -> str:
    times = f"{now / healthy:.1f} ×" if healthy > 0 else "many times"
    return f"{healthy:.1f} → {now:.1f} ms ({times})"


@dataclass(frozen=True)
class Finding:
    """`found`: the evidence of a cause is in the readings. `text`: the figures that decided it."""

    found: bool
    text: str
