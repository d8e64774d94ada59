"""The dials of the load (rates and population), and the tallies of its requests."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NoReturn

from loadtest.customers.metrics import Counts
from loadtest.customers.pacing import Pace, Slot
from loadtest.histogram import Histogram

AREAS = ("page", "cart", "offer")
FRAGMENTS_PER_USER = 20
EVENTS = ("order", "profile", "price")

MOST_PER_SECOND = 10_000
MOST_PEOPLE = 1_000_000_000
LONGEST_SHOWN = 1e300
"""Larger numbers are not repeated in a message: a whole number of any length may come in."""

READS, EVENTS_RATE, POPULATION = "reads_per_second", "events_per_second", "users_population"
READS_NAME, EVENTS_NAME = "reads", "events"
DEFAULTS: dict[str, float] = {READS: 50.0, EVENTS_RATE: 10.0, POPULATION: 10_000}
VARIABLES = {
    READS: "LOADTEST_READS_PER_SECOND",
    EVENTS_RATE: "LOADTEST_EVENTS_PER_SECOND",
    POPULATION: "LOADTEST_USERS",
}


PATIENCE, PATIENCE_S, LONGEST_S = "LOADTEST_TIMEOUT_SECONDS", 10.0, 3600.0
"""How long a customer waits for an answer: its variable, and the seconds without it and at the most."""


class BadLoad(ValueError):
    """An unknown dial, or a value that a dial cannot have; the text is a sentence for people."""


def fragment_name(number: int) -> str:
    """The name of a user's fragment, by the storefront's convention: page-0, cart-0, offer-0, page-1 ..."""
    return f"{AREAS[number % len(AREAS)]}-{number // len(AREAS)}"


@dataclass
class Tally:
    """The results of one kind of request since the last reset; latencies as Locust measured them."""

    count: int = 0
    failures: int = 0
    _latency_us: Histogram = field(default_factory=Histogram)

    def add(self, response_ms: float, failed: bool) -> None:
        """Count one finished request."""
        self.count += 1
        self.failures += failed
        self._latency_us.record(round(response_ms * 1000))

    def as_dict(self) -> dict[str, Any]:
        """For a message to another process."""
        return {"count": self.count, "failures": self.failures, "latency": self._latency_us.encode()}

    def include(self, other: Mapping[str, Any]) -> None:
        """Add another process's tally, in the form of `as_dict`."""
        self.count += other["count"]
        self.failures += other["failures"]
        self._latency_us.add(Histogram.decode(other["latency"]))

    def percentile_ms(self, percent: float) -> float | None:
        """The latency in ms that this share of the requests stayed at or below; None without requests."""
        if not self.count:
            return None
        return self._latency_us.percentile(percent) / 1000


@dataclass
class Result:
    """One kind of request since the last reset. `due`: turns that came; `missed`: turns that no user could take."""

    tally: Tally
    missed: int = 0
    due: int = 0


class Load:
    """How much to ask for now. All rates are those of the whole load, not per user or per process."""

    def __init__(self, values: Mapping[str, float] = DEFAULTS) -> None:
        self.on_change: Callable[[], None] = lambda: None  # called after every change of rates or population
        self.counts = {READS_NAME: Counts(), EVENTS_NAME: Counts()}  # since the process began, for Prometheus
        self._asked = dict(DEFAULTS)
        self._share = 1.0
        self.reads = Pace(0)
        self.events = Pace(0)
        self.change(values)
        self.reset()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Load:
        """Read the LOADTEST_* variables. A bad value ends the process: one line on stderr, exit code 2."""
        values: dict[str, float] = {}
        for dial, variable in VARIABLES.items():
            text = environment.get(variable, "").strip()
            try:
                values.update(check({dial: number(text)}) if text else {})
            except BadLoad as error:
                stop(f"{variable}: {error}")
        return cls(values)

    def change(self, values: Mapping[str, object]) -> None:
        """Set some dials; the new rates hold from the next turn on.

        Raises:
            BadLoad: a value is bad; nothing was changed.
        """
        self._asked.update(check(values))
        self._apply()

    @property
    def share(self) -> float:
        """The part of the asked load that is wanted now; shapes move it from 0 to 1."""
        return self._share

    @share.setter
    def share(self, value: float) -> None:
        if value != self._share:
            self._share = value
            self._apply()

    def _apply(self) -> None:
        self.reads.per_second = self._asked[READS] * self._share
        self.events.per_second = self._asked[EVENTS_RATE] * self._share
        self.on_change()

    def dials(self) -> dict[str, float]:
        """All that another process needs to follow this one."""
        return {**self._asked, "share": self._share}

    def follow(
        self,
        dials: Mapping[str, float],
        slots: Mapping[str, Slot],
        since: float,
        until: float,
        *,
        afresh: bool = False,
    ) -> None:
        """Adopt another process's dials, and give only these slots of the turns for that time, as `Pace.take` says."""
        self._asked.update({dial: dials[dial] for dial in DEFAULTS})
        self._share = dials["share"]
        for kind, dial, pace in ((READS_NAME, READS, self.reads), (EVENTS_NAME, EVENTS_RATE, self.events)):
            pace.take(slots[kind], self._asked[dial] * self._share, since, until, afresh=afresh)
        self.on_change()

    def count(self, kind: str, response_ms: float, failed: bool) -> None:
        """Count one finished request."""
        (self.read_tally if kind == READS_NAME else self.event_tally).add(response_ms, failed)
        self.counts[kind].add(response_ms / 1000, failed)

    def random_user(self) -> int:
        """A user id, uniform over the population."""
        return random.randint(1, max(1, round(self._asked[POPULATION] * self._share)))

    @staticmethod
    def random_fragment() -> str:
        """The name of one of a user's fragments, at random."""
        return fragment_name(random.randrange(FRAGMENTS_PER_USER))

    @staticmethod
    def random_event_type() -> str:
        """The type of an event, at random: mostly orders."""
        return random.choices(EVENTS, weights=(8, 1, 1))[0]

    def reset(self) -> None:
        """Start the tallies again from nothing."""
        self.read_tally = Tally()
        self.event_tally = Tally()
        self.counts[READS_NAME].missed += self.reads.missed
        self.counts[EVENTS_NAME].missed += self.events.missed
        self.reads.missed = self.events.missed = self.reads.due = self.events.due = 0
        self._since = monotonic()

    def results(self) -> dict[str, Result]:
        """The results of this process's requests since the last reset."""
        return {
            READS_NAME: Result(self.read_tally, self.reads.missed, self.reads.due),
            EVENTS_NAME: Result(self.event_tally, self.events.missed, self.events.due),
        }

    def counts_now(self) -> dict[str, Counts]:
        """The counts of this process's requests since it began."""
        return {
            kind: self.counts[kind].plus(Counts(missed=now.missed)) for kind, now in self.results().items()
        }

    def begin(self) -> None:
        """Called when a test starts: forget the turns that were owed in the one before."""
        self.reads.begin()
        self.events.begin()

    def end(self) -> None:
        """Called when a test ends: set the share back to 1, so that the next test begins with the whole load."""
        self.share = 1.0

    def describe(self, users: int, results: Mapping[str, Result] | None = None) -> dict[str, object]:
        """The dials, and the tallies since the last reset, as `GET /load` answers them.

        `results` are those of several processes together; without them, this one's own.
        """
        return {
            READS: self._asked[READS],
            EVENTS_RATE: self._asked[EVENTS_RATE],
            POPULATION: int(self._asked[POPULATION]),
            "share": self._share,
            "users": users,
            "seconds": round(monotonic() - self._since, 3),
            **{kind: _describe(result) for kind, result in (results or self.results()).items()},
        }


def check(values: Mapping[str, object]) -> dict[str, float]:
    """The same values as numbers.

    Raises:
        BadLoad: an unknown dial, or a value outside its range.
    """
    checked: dict[str, float] = {}
    for dial, value in values.items():
        if dial not in DEFAULTS:
            raise BadLoad(f"no such dial: {dial} (there are {', '.join(DEFAULTS)})")
        low, high = (1, MOST_PEOPLE) if dial == POPULATION else (0, MOST_PER_SECOND)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadLoad(f"not a number: {value}")
        checked[dial] = check_range(value, low, high)
        if dial == POPULATION and value != int(value):
            raise BadLoad(f"must be a whole number: {value:g}")
    return checked


def check_range(value: float, low: float, high: float) -> float:
    """Return the value unchanged.

    Raises:
        BadLoad: it is outside the range, or no number at all (NaN).
    """
    if not low <= value <= high:
        shown = f": {value:.10g}" if abs(value) < LONGEST_SHOWN else ""
        raise BadLoad(f"must be between {low:.10g} and {high:.10g}{shown}")
    return value


def _describe(result: Result) -> dict[str, object]:
    tally = result.tally
    return {
        "count": tally.count,
        "failures": tally.failures,
        "missed": result.missed,
        "due": result.due,
        "p50_ms": tally.percentile_ms(50),
        "p99_ms": tally.percentile_ms(99),
    }


def number(text: str) -> float:
    """Parse a number.

    Raises:
        BadLoad: the text is not a number.
    """
    try:
        return float(text)
    except ValueError:
        raise BadLoad(f"not a number: {text}") from None


def seconds_to_answer(environment: Mapping[str, str] = os.environ) -> float:
    """How long a customer waits for an answer, from LOADTEST_TIMEOUT_SECONDS. A bad value ends the process."""
    text = environment.get(PATIENCE, "").strip()
    try:
        return check_range(number(text), 0.1, LONGEST_S) if text else PATIENCE_S
    except BadLoad as error:
        stop(f"{PATIENCE}: {error}")


def stop(text: str) -> NoReturn:
    """End the process at its start: one line on stderr, exit code 2."""
    print(f"loadtest: {text}", file=sys.stderr, flush=True)
    sys.exit(2)
