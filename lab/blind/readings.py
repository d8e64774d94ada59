"""What can be measured of the scene from outside, over one stretch of time: the raw material of every evidence."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.blind.evidence import LEAST_GET_MS, TIMES_HEALTHY, Spent

LEAST_PAGE_MS, LEAST_OLDEST_S = 25.0, 2.0
"""As `LEAST_GET_MS`, of a page and of a change."""
RESTLESS_GET_MS, RESTLESS_PAGE_MS = 10.0, 50.0
"""A healthy p99 above this is the machine's doing more than the scene's."""
TIMES_RESTLESS = 1.5
"""This multiple of such a healthy value is a symptom, where it is `TIMES_HEALTHY` of the bound above, too."""


def plainly_slower(now_ms: float, healthy_ms: float, least_ms: float, restless_ms: float) -> bool:
    """Whether users would say that something became slow (all values: p99 in ms)."""
    usual = TIMES_HEALTHY * min(healthy_ms, restless_ms)
    return now_ms >= max(usual, TIMES_RESTLESS * healthy_ms, least_ms)


@dataclass(frozen=True)
class Seen:
    """What users see: p99 of a page and of a bystander's GET (ms), and the age of the oldest pending change (s)."""

    page_ms: float
    get_ms: float
    oldest_s: float


@dataclass(frozen=True)
class Readings:
    """One stretch of `seconds`; `healthy` is what users saw before the cause began.

    `busy` is the share of the store's main thread, `waited` the share of the time it was ready to run and did not get
    a core (None where the system does not tell), `neighbours` the cores that programs of other teams used.
    `slow` holds, by command, how many entries the slow log got and the longest (ms). `memory` is the largest share of
    maxmemory in use, `link_ms` and `direct_ms` are medians of a PING through the storefront's link and past it,
    `past_cache_per_s` pages for which the storefront did not get to its cache.
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
    keys: int
    commands: dict[str, Spent] = field(default_factory=dict)
    slow: dict[str, tuple[int, float]] = field(default_factory=dict)

    def spent(self, command: str) -> Spent:
        """What a command cost; nothing where it was not called."""
        return self.commands.get(command, Spent(0.0, 0.0, 0.0))

    @property
    def slow_pages(self) -> bool:
        """Whether pages are plainly slower than when all was well."""
        return plainly_slower(self.seen.page_ms, self.healthy.page_ms, LEAST_PAGE_MS, RESTLESS_PAGE_MS)

    @property
    def slow_gets(self) -> bool:
        """Whether a bystander's GETs are."""
        return plainly_slower(self.seen.get_ms, self.healthy.get_ms, LEAST_GET_MS, RESTLESS_GET_MS)

    @property
    def stale(self) -> bool:
        """Whether changes wait plainly longer."""
        return self.seen.oldest_s >= max(TIMES_HEALTHY * self.healthy.oldest_s, LEAST_OLDEST_S)

    @property
    def symptom(self) -> bool:
        """Whether users have something to complain of."""
        return self.slow_pages or self.slow_gets or self.stale

    @property
    def pages_text(self) -> str:
        """What became of pages, in words."""
        return f"p99 of a page {_became(self.healthy.page_ms, self.seen.page_ms)}"

    @property
    def gets_text(self) -> str:
        """What became of a bystander's GETs, in words."""
        return f"p99 of a bystander's GET {_became(self.healthy.get_ms, self.seen.get_ms)}"

    @property
    def changes_text(self) -> str:
        """What became of changes, in words."""
        return f"the oldest change waited {self.healthy.oldest_s:.1f} → {self.seen.oldest_s:.1f} s"


def _became(healthy: float, now: float) -> str:
    times = f"{now / healthy:.1f} ×" if healthy > 0 else "many times"
    return f"{healthy:.1f} → {now:.1f} ms ({times})"


@dataclass(frozen=True)
class Finding:
    """Whether the evidence of a cause is in the readings, and the figures that say so."""

    found: bool
    text: str
