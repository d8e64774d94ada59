"""The common part of the scenarios: arguments, course in time, and the table at the end.

Customers come at a constant rate until there are `--keys` keys, which takes `--growth-seconds`; then the same ones come
again, for `--hold-seconds` under each strategy of the scenario. Visits and events a second are the same from the first
second to the last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar

import gevent  # type: ignore[import-untyped] # no type information in the package
from gevent.event import Event  # type: ignore[import-untyped] # the same
from locust import LoadTestShape
from locust.event import Events
from locust.runners import WorkerRunner

from loadtest.arguments import number
from loadtest.customers.load import (
    EVENTS_NAME,
    EVENTS_RATE,
    FRAGMENTS_PER_USER,
    MOST_PER_SECOND,
    POPULATION,
    READS,
    VISITS,
    VISITS_NAME,
    BadLoad,
    check_range,
    stop,
)
from loadtest.customers.routes import Controls
from loadtest.customers.shapes import SPAWN_RATE, USERS
from loadtest.customers.shop import ANSWER_S, Buckets, NoAnswer, Shop, between
from loadtest.customers.table import WindowRow, lines
from loadtest.customers.users import load

MOST_KEYS, LONGEST_S = 100_000_000, 86_400
LONGEST_WINDOW_S, WINDOWS = 10.0, 12
"""A window of the table is at most this long, and there are at least so many while keys grow."""
USUAL_VISITS = 25.0
"""Visits a second that the usual number of users can carry."""
logger = logging.getLogger(__name__)


def add_argument(parser: Any, name: str, kind: Callable[[str], float], default: float, text: str) -> None:
    """Add an argument to Locust's parser, with its variable, LOADTEST_NAME. `text`: its help."""
    variable = "LOADTEST_" + name.upper().replace("-", "_")
    help_text = f"{text} ({default:.10g})"
    parser.add_argument(f"--{name}", type=kind, default=default, env_var=variable, help=help_text)


def add_arguments(parser: Any) -> None:
    """The arguments of every scenario. Bad ones end the process: one line, exit code 2."""
    parser.error = stop
    keys, seconds = number(0, MOST_KEYS, int), number(1, LONGEST_S)
    add_argument(parser, "keys", keys, 120_000, "keys to grow to; 0: nobody comes until PUT /load says so")
    add_argument(parser, "growth-seconds", seconds, 240.0, "how long that takes")
    add_argument(
        parser, "events-per-second", number(0, MOST_PER_SECOND), 1.0, "events a second, all the time"
    )
    add_argument(parser, "hold-seconds", seconds, 60.0, "how long it then goes on, under each strategy")


class Growing(LoadTestShape):
    """The course of a scenario. `strategies`: those that it sets, one after another; none: it leaves the storefront's.

    With `--headless` it ends by itself, and prints its table; so does, without, one that sets a strategy. Whatever it
    set is put back at the end.
    """

    abstract = True
    use_common_options = True  # --users, --spawn-rate and --run-time keep their meaning
    strategies: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Locust has no types here
        self.shop = Shop("")
        self.strategy = ""
        self.growth_s = self.hold_s = 0.0
        self.rows: list[WindowRow] = []
        self._since = 0.0  # when the strategy was set
        self._was = ""  # the strategy before
        self._begun = False
        self._planned: dict[str, float] = {}
        self._helpers: list[Any] = []
        self.over = Event()

    def plan(self, options: Any) -> None:
        """Set the load that the arguments ask for, if they have changed; otherwise the load set by PUT /load stays.

        Raises:
            BadLoad: An argument is out of range.
        """
        self.growth_s = check_range(float(options.growth_seconds), 1, LONGEST_S)
        self.hold_s = check_range(float(options.hold_seconds), 1, LONGEST_S)
        customers = options.keys / FRAGMENTS_PER_USER
        planned = {
            POPULATION: max(1, round(customers)),
            VISITS: customers / self.growth_s,
            EVENTS_RATE: options.events_per_second,
            READS: 0,
        }
        if planned != self._planned:
            load.change(planned)
            self._planned = planned

    def tick(self) -> tuple[int, float] | None:
        """Called once a second by Locust; returns the number of users and the spawn rate, or None to end the test."""
        assert self.runner
        environment, options = self.runner.environment, self.runner.environment.parsed_options
        assert options
        # Half a second late, so that the last window of the table is whole.
        seconds: float = self.get_run_time() - 0.5  # type: ignore[no-untyped-call] # the same
        try:
            if not self._begun:
                self._begin(options, environment.host or "")
            stage = max(0, int((seconds - self.growth_s) // self.hold_s))
            over = stage >= max(1, len(self.strategies)) and (options.headless or self.strategies)
            if over or (options.run_time and seconds >= options.run_time):
                return None
            if self.strategies and self.strategy != self.strategies[stage]:
                self.shop.use(self.strategies[stage])
                self._note(self.strategies[stage])
        except (NoAnswer, BadLoad) as error:
            logger.error("the scenario cannot go on: %s", error)
            environment.process_exit_code = 2
            return None
        needed = round(USERS * max(1.0, load.visits_per_second / USUAL_VISITS))
        return options.num_users if options.num_users != USERS else needed, options.spawn_rate or SPAWN_RATE

    def _begin(self, options: Any, host: str) -> None:
        self._begun, self.shop, self.rows = True, Shop(host), []
        self.over.clear()
        self.plan(options)
        if self.strategies or options.headless:
            self._note(self.shop.strategy())
            self._was = self.strategy if self.strategies else ""
            self._helpers = [gevent.spawn(self.run_beside)]
        if options.headless:
            self._helpers.append(gevent.spawn(self._keep_rows))

    def _note(self, strategy: str) -> None:
        if strategy != self.strategy:
            self.strategy, self._since = strategy, monotonic()
            logger.info("strategy: %s", strategy)

    def run_beside(self) -> None:
        """Run a scenario's other activity during its load, in a greenlet, until `over` is set."""

    def remarks(self) -> list[str]:
        """Lines below the table."""
        return []

    def print_table(self) -> None:
        """Print the table, if there is one."""
        if self.rows:
            print("\n".join(["", *lines(self.rows), *self.remarks()]), flush=True)

    def finish(self) -> None:
        """Called when a test has ended: put back the strategy. The next test begins from the start."""
        self._begun = False
        self.over.set()
        gevent.joinall(self._helpers, timeout=ANSWER_S)
        self._helpers = []
        try:
            if self._was:
                self.shop.use(self._was)
        except NoAnswer as error:
            logger.error("the strategy was %s, and could not be put back: %s", self._was, error)
        self._was = ""

    def _keep_rows(self) -> None:
        """Add a row for each window."""
        window = min(LONGEST_WINDOW_S, self.growth_s / WINDOWS)
        start = before = monotonic()
        seen = self._look()
        load.reset()
        while True:
            strategy, growing = self.strategy, not load.all_seen
            if self.over.wait(max(0.0, start + window * (len(self.rows) + 1) - monotonic())):
                return
            now, gets = monotonic(), self._look()
            visits, events = load.tallies[VISITS_NAME], load.tallies[EVENTS_NAME]
            self.rows.append(
                WindowRow(
                    before - start,
                    now - start,
                    self.strategy,
                    load.customers_seen * FRAGMENTS_PER_USER,
                    growing,
                    not growing and strategy == self.strategy and before - self._since >= window,
                    visits.count,
                    events.count,
                    sum(pace.missed for pace in load.paces.values()),
                    between(seen, gets),
                    visits.latency_us,
                )
            )
            load.reset()
            before, seen = now, gets

    def _look(self) -> Buckets:
        """The storefront's histogram of GETs; none if it does not answer. Also notes a strategy that a person set."""
        try:
            if not self.strategies:
                self._note(self.shop.strategy())
            return self.shop.gets()
        except NoAnswer as error:
            logger.warning("no p99 of a GET in this window: %s", error)
            return {}


def attach(events: Events) -> None:
    """Call once, at the end of a scenario's file: arguments, `/load`, and the table at the end."""
    events.init_command_line_parser.add_listener(add_arguments)  # type: ignore[no-untyped-call] # they have no types
    Controls(load).attach(events)

    def prepare(environment: Any, **_: Any) -> None:
        scenario = environment.shape_class
        if isinstance(environment.runner, WorkerRunner) or not isinstance(scenario, Growing):
            return
        try:
            scenario.plan(environment.parsed_options)
        except BadLoad as error:
            stop(str(error))
        events.test_stop.add_listener(lambda **_: scenario.finish())  # type: ignore[no-untyped-call] # the same
        events.quit.add_listener(lambda **_: scenario.print_table())  # type: ignore[no-untyped-call] # the same

    events.init.add_listener(prepare)  # type: ignore[no-untyped-call] # the same
