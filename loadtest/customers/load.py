"""The dials of the load (rates and population), and the tallies of its requests.

One process carries the load alone, or several share it, as Locust's `--processes` and `--worker` make them: each then
takes an equal part of every rate (`Load.follow`), and reports its results to the master (`Load.drain`).
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NoReturn

from loadtest.customers.arrivals import Arrivals
from loadtest.customers.metrics import Counts
from loadtest.customers.pacing import Pace
from loadtest.histogram import Histogram

AREAS = ("page", "cart", "offer")
FRAGMENTS_PER_USER = 20
EVENTS = ("order", "profile", "price")

MOST_PER_SECOND = 10_000
MOST_PEOPLE = 1_000_000_000
LONGEST_SHOWN = 1e300
"""Larger numbers are not repeated in a message: a whole number of any length may come in."""

READS, EVENTS_RATE, POPULATION = "reads_per_second", "events_per_second", "users_population"
VISITS = "visits_per_second"
READS_NAME, EVENTS_NAME, VISITS_NAME = "reads", "events", "visits"
RATES = {READS_NAME: READS, EVENTS_NAME: EVENTS_RATE, VISITS_NAME: VISITS}
"""Kind of request → the dial of its rate. Reads are of single fragments, visits of whole pages."""
DEFAULTS: dict[str, float] = {READS: 50.0, EVENTS_RATE: 10.0, VISITS: 0.0, POPULATION: 10_000}
VARIABLES = {
    READS: "LOADTEST_READS_PER_SECOND",
    EVENTS_RATE: "LOADTEST_EVENTS_PER_SECOND",
    POPULATION: "LOADTEST_USERS",
}

PATIENCE, PATIENCE_S, LONGEST_S = "LOADTEST_TIMEOUT_SECONDS", 10.0, 3600.0
"""The time that a customer waits for an answer: its variable, the default and the maximum in seconds."""
logger = logging.getLogger(__name__)


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
    latency_us: Histogram = field(default_factory=Histogram)

    def add(self, response_ms: float, failed: bool) -> None:
        """Count one finished request."""
        self.count += 1
        self.failures += failed
        self.latency_us.record(round(response_ms * 1000))

    def as_dict(self) -> dict[str, Any]:
        """For a message to another process."""
        return {"count": self.count, "failures": self.failures, "latency": self.latency_us.encode()}

    def include(self, other: Mapping[str, Any]) -> None:
        """Add another process's tally, in the form of `as_dict`."""
        self.count += other["count"]
        self.failures += other["failures"]
        self.latency_us.add(Histogram.decode(other["latency"]))

    def percentile_ms(self, percent: float) -> float | None:
        """Return the percentile of the latencies in ms; None without requests."""
        if not self.count:
            return None
        return self.latency_us.percentile(percent) / 1000


class Load:
    """The present load. All rates are those of the whole load, not per user or per process."""

    def __init__(self, values: Mapping[str, float] = DEFAULTS) -> None:
        self.on_change: Callable[[], None] = lambda: None  # called after every change of rates or population
        self._dials = dict(DEFAULTS)
        self._share = 1.0
        self._part = 0, 1
        self.reads, self.events, self.visits = Pace(0), Pace(0), Pace(0)
        self.paces = {READS_NAME: self.reads, EVENTS_NAME: self.events, VISITS_NAME: self.visits}
        self._arrivals = Arrivals(int(DEFAULTS[POPULATION]))
        self.tallies = {kind: Tally() for kind in RATES}
        self._counts = {kind: Counts() for kind in RATES}  # since the process began, for Prometheus
        self._since = monotonic()
        self._dials.update(check(values))
        self._apply()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Load:
        """Read the LOADTEST_* variables. A bad value ends the process: one line on stderr, exit code 2."""
        values: dict[str, float] = {}
        for dial, variable in VARIABLES.items():
            found = from_variable(environment, variable, partial(check_dial, dial))
            values.update({} if found is None else {dial: found})
        return cls(values)

    def change(self, values: Mapping[str, object]) -> None:
        """Set some dials; the new rates hold from the next turn on. Locust's log gets a line of what changed.

        Raises:
            BadLoad: a value is bad; nothing was changed.
        """
        new = check(values)
        changed = [
            f"{dial} {self._dials[dial]:g} -> {value:g}"
            for dial, value in new.items()
            if value != self._dials[dial]
        ]
        self._dials.update(new)
        if changed:
            logger.info("load: %s", ", ".join(changed))
        self._apply()

    @property
    def share(self) -> float:
        """The share of the set rates that is offered now; shapes move it from 0 to 1."""
        return self._share

    @share.setter
    def share(self, value: float) -> None:
        if value != self._share:
            self._share = value
            self._apply()

    def _apply(self) -> None:
        index, workers = self._part
        for kind, pace in self.paces.items():
            pace.per_second = self._dials[RATES[kind]] * self._share / workers if workers else 0.0
        self._arrivals.change(self._population(), index, max(workers, 1))
        self.on_change()

    def _population(self) -> int:
        return max(1, round(self._dials[POPULATION] * self._share))

    @property
    def visits_per_second(self) -> float:
        """The set rate of visits, of the whole load."""
        return self._dials[VISITS]

    @property
    def customers_seen(self) -> int:
        """The number of customers of the population who have visited so far."""
        return self._arrivals.seen

    @property
    def all_seen(self) -> bool:
        """True when every customer of the population has visited."""
        return self.customers_seen >= self._population()

    def orders(self) -> dict[str, Any]:
        """Return the message by which another process follows this one."""
        return {"dials": dict(self._dials), "share": self._share, "seen": self.customers_seen}

    def follow(self, orders: Mapping[str, Any], index: int, workers: int) -> None:
        """Carry a part of another process's load: number `index` of `workers` equal ones; none if that is 0."""
        self._dials.update({dial: orders["dials"][dial] for dial in DEFAULTS})
        self._share, self._part = orders["share"], (index, workers)
        self._arrivals.change(self._population(), index, max(workers, 1), orders["seen"])
        self._apply()

    def drain(self) -> dict[str, Any]:
        """Return the results of this process's requests since the last call, as a message to the master."""
        kinds = {
            kind: {
                **self.tallies[kind].as_dict(),
                "missed": pace.missed,
                "due": pace.due,
                "counts": asdict(self._counts[kind]),
            }
            for kind, pace in self.paces.items()
        }
        for kind, pace in self.paces.items():
            self.tallies[kind], self._counts[kind] = Tally(), Counts()
            pace.missed = pace.due = 0
        return {"kinds": kinds, "seen": self.customers_seen}

    def include(self, report: Mapping[str, Any]) -> None:
        """Add the report of another process's `drain`."""
        for kind, found in report["kinds"].items():
            self.tallies[kind].include(found)
            self._counts[kind] = self._counts[kind].plus(Counts(**found["counts"]))
            self.paces[kind].missed += found["missed"]
            self.paces[kind].due += found["due"]
        self._arrivals.change(self._population(), seen=report["seen"])

    def count(self, kind: str, response_ms: float, failed: bool) -> None:
        """Count one finished request."""
        self.tallies[kind].add(response_ms, failed)
        self._counts[kind].add(response_ms / 1000, failed)

    def next_customer(self) -> int:
        """The customer whose visit is due now: new ones until all have come, then the same ones again."""
        return self._arrivals.next()

    def random_user(self) -> int:
        """A user id, uniform over the population."""
        return random.randint(1, self._population())

    def random_customer(self) -> int:
        """Return a customer who has visited, at random; one of the whole population where there are no visits."""
        return random.randint(1, max(1, self.customers_seen)) if self._dials[VISITS] else self.random_user()

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
        for kind, pace in self.paces.items():
            self.tallies[kind] = Tally()
            self._counts[kind].missed += pace.missed
            pace.missed = pace.due = 0
        self._since = monotonic()

    def counts_now(self) -> dict[str, Counts]:
        """The counts of the requests since the process began."""
        return {
            kind: self._counts[kind].plus(Counts(missed=pace.missed)) for kind, pace in self.paces.items()
        }

    def begin(self) -> None:
        """Called when a test starts: forget the turns owed by the previous one, and all visits."""
        self._arrivals.begin()
        for pace in self.paces.values():
            pace.begin()

    def end(self) -> None:
        """Called when a test ends: set the share back to 1, so that the next test begins with the whole load."""
        self.share = 1.0

    def describe(self, users: int) -> dict[str, object]:
        """The dials, and the tallies since the last reset, as `GET /load` answers them."""
        return {
            **{dial: self._dials[dial] for dial in RATES.values()},
            POPULATION: int(self._dials[POPULATION]),
            "customers_seen": self.customers_seen,
            "share": self._share,
            "users": users,
            "seconds": round(monotonic() - self._since, 3),
            **{kind: _describe(self.tallies[kind], pace) for kind, pace in self.paces.items()},
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


def check_dial(dial: str, value: float) -> float:
    """The value of one dial. Raises `BadLoad` as `check`."""
    return check({dial: value})[dial]


def check_range(value: float, low: float, high: float) -> float:
    """Return the value unchanged.

    Raises:
        BadLoad: it is outside the range, or no number at all (NaN).
    """
    if not low <= value <= high:
        shown = f": {value:.10g}" if abs(value) < LONGEST_SHOWN else ""
        raise BadLoad(f"must be between {low:.10g} and {high:.10g}{shown}")
    return value


def _describe(tally: Tally, pace: Pace) -> dict[str, object]:
    return {
        "count": tally.count,
        "failures": tally.failures,
        "missed": pace.missed,
        "due": pace.due,
        "p50_ms": tally.percentile_ms(50),
        "p99_ms": tally.percentile_ms(99),
    }


def from_variable(
    environment: Mapping[str, str], variable: str, checked: Callable[[float], float]
) -> float | None:
    """The number in a variable, None where it is empty. One that is bad by `checked` ends the process."""
    text = environment.get(variable, "").strip()
    try:
        return checked(float(text)) if text else None
    except BadLoad as error:
        stop(f"{variable}: {error}")
    except ValueError:
        stop(f"{variable}: not a number: {text}")


def seconds_to_answer(environment: Mapping[str, str] = os.environ) -> float:
    """Return a customer's timeout in seconds, from LOADTEST_TIMEOUT_SECONDS. A bad value ends the process."""
    found = from_variable(environment, PATIENCE, lambda value: check_range(value, 0.1, LONGEST_S))
    return PATIENCE_S if found is None else found


def stop(text: str) -> NoReturn:
    """End the process at its start: one line on stderr, exit code 2."""
    print(f"loadtest: {text}", file=sys.stderr, flush=True)
    sys.exit(2)
