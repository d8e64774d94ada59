"""Readings: figures that can be measured of a scene from outside over a span of time. All evidence comes from them.

`READINGS` is the table of them: the name that evidence uses, the unit, the command that shows it to a participant, the
healthy value, and the function that computes it from the samples of a span. A new reading is a row there and a field of
`Readings`, and a field of `SessionSample` unless INFO reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from lab.server.figures import LEAST_GET_MS, TIMES_HEALTHY, Figures, Spent
from lab.server.window import InfoSnapshot, Window
from loadtest.histogram import Histogram

LEAST_PAGE_MS, LEAST_OLDEST_S = 25.0, 2.0
"""Like `LEAST_GET_MS`, for the p99 of a page and for the age of the oldest change."""
RESTLESS_GET_MS, RESTLESS_PAGE_MS = 10.0, 50.0
"""A healthy p99 above this is due to the machine more than to the scene."""
TIMES_RESTLESS = 1.5
"""This multiple of such a healthy value is a symptom if it is also `TIMES_HEALTHY` times the bound above."""
SLOWER = 1.5
"""Users complain of slow pages from this multiple of the healthy p99 on, if other users of the server complain, too.

The storefront needs some milliseconds for a page, and the waits of its reads are added to them. On a fast machine a
wait that makes a bystander's GET ten times as long makes a page twice as long.
"""
STALL_MS, STALL_TIMES = 100.0, 4.0
"""A wait of this length is a stall, if it is this many times the longest wait on the other routes."""
TOLERANCE, TAIL_TOLERANCE = 1.5, 3.0
"""Factor by which two observers of the same minutes may differ: for a mean, rate or median; for a p99 or a maximum,
which depends on a few calls."""
FLOOR = {"ms": 0.3, "s": 1.0, "%": 10.0, "/s": 3.0, "cores": 0.3, "MB/s": 1.0}
"""Unit → difference that two observers may have in addition, whatever the size of the value."""


def slow_from(healthy_ms: float, least_ms: float, restless_ms: float) -> float:
    """Return the p99 in ms from which users would complain."""
    return max(TIMES_HEALTHY * min(healthy_ms, restless_ms), TIMES_RESTLESS * healthy_ms, least_ms)


@dataclass(frozen=True)
class UserFigures:
    """Figures that users see: p99 of a page and of a bystander's GET (ms), age of the oldest pending change (s)."""

    page_ms: float
    get_ms: float
    oldest_s: float

    @property
    def text(self) -> str:
        """The three figures in a sentence."""
        return (
            f"p99 of a page {self.page_ms:.1f} ms; p99 of a bystander's GET {self.get_ms:.1f} ms; the oldest change "
            f"waited {self.oldest_s:.1f} s"
        )


@dataclass(frozen=True)
class SessionSample:
    """The server's counters at one moment (`info`), and figures of the scene since the sample before.

    `waited_s`, `neighbours_s` and `past_cache` count since the beginning: seconds that the server's main thread was
    ready but had no core (None if the system does not report it), CPU seconds of other teams' programs, and pages for
    which the storefront did not reach its cache. `page_ms` is the p99 of a page, `gets` are the probe's GETs (µs).
    `*_most_ms` are the longest of many waits (`lab.blind.routes.WaitSampler`). `slow` has the new entries of the slow
    log (command, µs).

    `pages` and `events_accepted` count since the sample before. `events_done` counts since the beginning,
    `events_pending` events wait now. `changes_put` price changes were put into their list so far, the server refused
    `changes_refused`, and `changes_queued` are in the list now.
    """

    info: InfoSnapshot
    waited_s: float | None
    neighbours_s: float
    past_cache: float
    page_ms: float
    oldest_s: float
    memory: float
    link_ms: float
    direct_ms: float
    gets: Histogram
    link_most_ms: float = 0.0
    direct_most_ms: float = 0.0
    web_most_ms: float = 0.0
    slow: tuple[tuple[str, int], ...] = ()
    pages: int = 0
    events_accepted: int = 0
    events_done: float = 0.0
    events_pending: float = 0.0
    changes_put: int = 0
    changes_refused: int = 0
    changes_queued: int = 0

    @property
    def at(self) -> float:
        """Time of the sample (unix seconds)."""
        return self.info.at

    @property
    def get_ms(self) -> float:
        """p99 of the probe's GETs since the sample before."""
        return p99(self.gets)

    @property
    def user_figures(self) -> UserFigures:
        """The figures that users saw."""
        return UserFigures(self.page_ms, self.get_ms, self.oldest_s)


def p99(histogram: Histogram) -> float:
    """Return the p99 in ms of a histogram in µs."""
    return histogram.percentile(99) / 1000


def mean_ms(histogram: Histogram) -> float:
    """Return the mean in ms of a histogram in µs; 0 for an empty one."""
    return sum(most * count for most, count in histogram.buckets()) / max(1, histogram.total) / 1000


@dataclass(frozen=True)
class SampleSpan:
    """The samples of a span of time, and the sample before them."""

    before: SessionSample
    samples: Sequence[SessionSample]

    @cached_property
    def window(self) -> Window:
        """The server's counters over the span, as a diagnosis computes with them."""
        return Window("", "", "", [each.info for each in (self.before, *self.samples)], ())

    @cached_property
    def gets(self) -> Histogram:
        """All GETs of the probe."""
        total = Histogram()
        for each in self.samples:
            total.add(each.gets)
        return total

    def median(self, name: str) -> float:
        """Return the median of a field of the samples. A single long wait hardly changes it."""
        return float(sorted(getattr(each, name) for each in self.samples)[len(self.samples) // 2])

    def most(self, name: str) -> float:
        """Return the largest value of a field of the samples."""
        return float(max(getattr(each, name) for each in self.samples))

    def per_s(self, name: str) -> float | None:
        """Return the rise a second of a field that counts; None if it is unknown."""
        first, last = getattr(self.before, name), getattr(self.samples[-1], name)
        return None if first is None or last is None else float(last - first) / self.window.seconds


@dataclass(frozen=True)
class Reading:
    """A figure that can be measured.

    `field` is the field of `Readings` with its value, in `unit`, or from 0 to 1 for a percentage. `usual` is the value
    where nothing is wrong; None: the value that users saw before the cause began. `measure` computes it from a span of
    samples; it returns None if this machine does not report it. A figure of one command has no field, but `read`,
    which gets it from readings. `tolerance` is the factor by which two observers may differ.
    """

    name: str
    unit: str
    meaning: str = ""
    shown_by: str = ""
    field: str = ""
    usual: float | None = None
    measure: Callable[[SampleSpan], float | None] = lambda _span: None
    tolerance: float = TOLERANCE
    read: Callable[[Readings], float] | None = None

    @property
    def factor(self) -> float:
        """The factor from the field's value to `unit`."""
        return 100.0 if self.unit == "%" else 1.0

    def value_in(self, readings: Readings) -> float | None:
        """Return the value in `unit`; None if this machine does not report it."""
        if self.read:
            return self.read(readings)
        value = getattr(readings, self.field)
        return None if value is None else self.factor * value

    def agrees(self, value: float, lowest: float, highest: float) -> bool:
        """Return whether `value` agrees with the lab's own measurements, which lie from `lowest` to `highest`."""
        slack = FLOOR[self.unit]
        return lowest / self.tolerance - slack <= value <= highest * self.tolerance + slack


READINGS: dict[str, Reading] = {
    row.name: row
    for row in (
        Reading("page.p99", "ms", "p99 of a page", "look users", "page_ms", None,
                lambda span: span.median("page_ms"), TAIL_TOLERANCE),
        Reading("get.p99", "ms", "p99 of a bystander's GET", "look users", "get_ms", None,
                lambda span: p99(span.gets), TAIL_TOLERANCE),
        Reading("change.oldest", "s", "age of the oldest price change", "look users", "oldest_s", None,
                lambda span: span.most("oldest_s"), TAIL_TOLERANCE),
        Reading("server.busy", "%", "busy share of the main thread", "look commands", "busy", 0.1,
                lambda span: span.window.busy),
        Reading("server.waited", "%", "share of the time that the main thread was ready and without a core",
                "look processes", "waited", 0.0, lambda span: span.per_s("waited_s")),
        Reading("server.p50", "ms", "median of a PING to the server", "look ping", "direct_ms", 0.1,
                lambda span: span.median("direct_ms")),
        Reading("link.p50", "ms", "median of a PING through the storefront's link", "look ping", "link_ms", 0.1,
                lambda span: span.median("link_ms")),
        Reading("server.max", "ms", "longest of many PINGs to the server", "look waits", "direct_most_ms", 5.0,
                lambda span: span.median("direct_most_ms"), TAIL_TOLERANCE),
        Reading("link.max", "ms", "longest of many PINGs through the storefront's link", "look waits", "link_most_ms",
                5.0, lambda span: span.median("link_most_ms"), TAIL_TOLERANCE),
        Reading("storefront.max", "ms", "longest wait for a page that needs no cache", "look waits", "web_most_ms",
                10.0, lambda span: span.median("web_most_ms"), TAIL_TOLERANCE),
        Reading("server.connects", "/s", "connections that the server accepted", "look memory", "connects_per_s", 3.0,
                lambda span: span.window.connects_per_s),
        Reading("server.sent", "MB/s", "what the server sent to its clients", "look memory", "sent_mb_per_s", 0.2,
                lambda span: span.window.sent_mb_per_s),
        Reading("memory.used", "%", "largest share of maxmemory in use", "look memory", "memory", 0.6,
                lambda span: span.most("memory")),
        Reading("memory.evicted", "/s", "entries evicted", "look memory", "evicted_per_s", 0.0,
                lambda span: span.window.evicted_per_s, TAIL_TOLERANCE),
        Reading("memory.expired", "/s", "entries whose time to live was over", "look memory", "expired_per_s", 0.0,
                lambda span: span.window.expired_per_s, TAIL_TOLERANCE),
        Reading("programs.cores", "cores", "cores that programs of other teams used", "look processes", "others", 0.0,
                lambda span: span.per_s("neighbours_s")),
        Reading("pages.past", "/s", "pages that went past the cache", "the storefront's /metrics", "past_cache_per_s",
                0.0, lambda span: span.per_s("past_cache")),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Readings(Figures):
    """Readings over `seconds`; `healthy` has the figures that users saw before the cause began.

    The fields are those of `READINGS`. `wait_ms` is the mean wait of a bystander's GETs, `commands` has the cost of
    each command, and `slow` maps a command to the number of its new slow log entries and the longest (ms).
    """

    seconds: float = field()
    healthy: UserFigures = field()
    cores: int = field()
    keys: int = field()
    page_ms: float = field()
    get_ms: float = field()
    wait_ms: float = field()
    oldest_s: float = field()
    busy: float = field()
    waited: float | None = field()
    direct_ms: float = field()
    link_ms: float = field()
    direct_most_ms: float = field()
    link_most_ms: float = field()
    web_most_ms: float = field()
    connects_per_s: float = field()
    sent_mb_per_s: float = field()
    memory: float = field()
    evicted_per_s: float = field()
    expired_per_s: float = field()
    others: float = field()
    past_cache_per_s: float = field()
    commands: dict[str, Spent] = field(default_factory=dict)
    slow: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def user_figures(self) -> UserFigures:
        """The figures that users see."""
        return UserFigures(self.page_ms, self.get_ms, self.oldest_s)

    def with_user_figures(self, figures: UserFigures) -> Readings:
        """Return a copy in which users see these figures."""
        return replace(self, **asdict(figures))

    def as_healthy(self) -> Readings:
        """Return a copy as if nothing were wrong with the scene."""
        usual = {row.field: row.usual for row in READINGS.values() if row.usual is not None}
        if self.waited is None:
            del usual["waited"]
        return replace(self.with_user_figures(self.healthy), commands={}, slow={}, **usual)  # type: ignore[arg-type]

    @property
    def interrupted(self) -> bool:
        """True if the system does not report how long the thread had no core: then the other figures decide."""
        return self.waited is None

    @property
    def slow_from_ms(self) -> float:
        """The p99 from which a bystander's GETs are plainly slower than when all was well."""
        return slow_from(self.healthy.get_ms, LEAST_GET_MS, RESTLESS_GET_MS)

    @property
    def slow_pages(self) -> bool:
        """True if pages are plainly slower than when all was well."""
        return self.page_ms >= slow_from(self.healthy.page_ms, LEAST_PAGE_MS, RESTLESS_PAGE_MS)

    @property
    def slower_pages(self) -> bool:
        """True if pages are slower than when all was well, if not as plainly as for `slow_pages`."""
        return self.slow_pages or self.page_ms >= SLOWER * self.healthy.page_ms

    @property
    def stale(self) -> bool:
        """True if changes wait plainly longer than when all was well."""
        return self.oldest_s >= max(TIMES_HEALTHY * self.healthy.oldest_s, LEAST_OLDEST_S)

    @property
    def symptom(self) -> bool:
        """True if pages, GETs or changes are plainly slower than when all was well."""
        return self.slow_pages or self.slow_gets or self.stale

    def stalls(self, most_ms: float, elsewhere_ms: float) -> bool:
        """Return whether the longest wait on a route is a stall: GETs and other routes wait far less."""
        return most_ms >= max(STALL_MS, STALL_TIMES * elsewhere_ms, STALL_TIMES * self.get_ms)

    @property
    def pages_text(self) -> str:
        """The p99 of a page, healthy and now."""
        return f"p99 of a page {_change(self.healthy.page_ms, self.page_ms)}"

    @property
    def p99_text(self) -> str:
        """The p99 of a bystander's GET, healthy and now."""
        return f"p99 of a bystander's GET {_change(self.healthy.get_ms, self.get_ms)}"

    @property
    def changes_text(self) -> str:
        """The age of the oldest change, healthy and now."""
        return f"the oldest change waited {self.healthy.oldest_s:.1f} → {self.oldest_s:.1f} s"


def _change(healthy: float, now: float) -> str:
    times = f"{now / healthy:.1f} ×" if healthy > 0 else "many times"
    return f"{healthy:.1f} → {now:.1f} ms ({times})"


def compute_readings(
    before: SessionSample, samples: Sequence[SessionSample], healthy: UserFigures, cores: int
) -> Readings:
    """Compute the readings from the sample `before` to the last of `samples`, which followed it."""
    span = SampleSpan(before, samples)
    measured: dict[str, Any] = {row.field: row.measure(span) for row in READINGS.values()}
    slow: dict[str, tuple[int, float]] = {}
    for name, duration in (entry for sample in samples for entry in sample.slow):
        count, longest = slow.get(name, (0, 0.0))
        slow[name] = count + 1, max(longest, duration / 1000)
    return Readings(
        seconds=span.window.seconds, healthy=healthy, cores=cores, keys=span.window.keys, commands=span.window.commands,
        wait_ms=mean_ms(span.gets), slow=slow, **measured,
    )  # fmt: skip
