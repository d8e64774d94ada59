"""Observations of one server, and conclusions: its phase, and the correlation of p99 and keys."""

from __future__ import annotations

import threading
import time
from collections import deque

from console.clients import Clients, SceneSample
from console.config import Config, ServerAddresses
from console.history import WINDOW_S, Follows, History
from console.metrics import ControlMetrics
from console.plan import Plan
from lab.server.server_stats import Snapshot

FOLLOW_STEPS = 40
"""Number of pairs of keys and p99 taken until all keys are there, for their correlation."""
ALL_SHARE = 0.97
"""All keys count as present from this share of the number at which visits and events settle."""
MISSING_AT_MOST = 0.5
"""The largest share of the keys assumed to be missing because of events, at any rate that a person sets."""
STALE = "ttl"
"""The strategy that invalidates nothing: customers see old pages until the entries expire."""
BUSY_WINDOW_S = 20.0


class Observed:
    """The state of one server. The lock `acting` is held during changes of state, never during a request to a part.

    `phase` is ``absent`` (its host name does not resolve), ``waiting`` (not ready yet), ``resting``, ``clearing``,
    ``queued``, ``calibrating``, ``emptying``, ``healthy`` or ``retrying`` (the story), ``leased`` (to a run of the
    lab), or ``running``.
    """

    def __init__(self, addresses: ServerAddresses, config: Config, metrics: ControlMetrics) -> None:
        self.server = addresses.name
        self.config, self.metrics = config, metrics
        self.clients = Clients(addresses, config)
        self.acting = threading.RLock()
        self._phase = "absent"
        self.product = ""
        self.history = History()
        self.follows = Follows(config.keys / FOLLOW_STEPS)
        self.sample: SceneSample | None = None
        self.trouble = ""
        self.complaint = ""
        self.awake = False
        self.planned = 0.0
        self.paused = False
        self.growing = False
        self.over_until: float | None = None
        self.strategy: str | None = None
        self.late = False
        self.scan_count = config.scan_count(self.server)
        self.plan: Plan | None = None
        self.healthy_ms: float | None = None
        self.up, self.starts = False, 0
        self.restarting: tuple[int, float] | None = None
        self.few_until: float | None = None
        self._follow_from = 0.0
        self._busy: deque[tuple[float, float]] = deque()

    @property
    def phase(self) -> str:
        """The phase: see the class."""
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        self.show_phase()

    @property
    def shown_phase(self) -> str:
        """The phase as dashboards show it: one of `console.metrics.PHASES`, or '' for an absent server."""
        if self._phase == "absent":
            return ""
        if self._phase in ("waiting", "resting", "queued", "retrying"):
            return "waiting"
        if self._phase in ("clearing", "calibrating", "emptying"):
            return "calibrating"
        if self._phase in ("healthy", "leased"):
            return self._phase
        if self.planned <= 0:
            return "stopped"
        if self.strategy == STALE:
            return "stale"
        if not self.searching:
            return "cured"
        if self.over_until is not None:
            return "over_the_edge"
        return "growing" if self.growing and not self.all_keys else "level"

    def show_phase(self) -> None:
        """Set the phase in the metrics."""
        self.metrics.show_phase(self.server, self.shown_phase)

    @property
    def free(self) -> bool:
        """True while people's actions are accepted."""
        return self._phase == "running"

    @property
    def searching(self) -> bool:
        """True if events search the keyspace, as far as is known."""
        sample = self.sample
        return sample is not None and (self.strategy or sample.strategy) in sample.searching

    @property
    def all_keys(self) -> bool:
        """True if the planned number of keys is present, except those that events keep removing.

        A customer's pages come back at the next visit, on average half a turn of all customers after an event.
        """
        missing = min(MISSING_AT_MOST, self.planned / (2 * self.config.visits_per_second))
        return self.sample is not None and self.sample.keys >= ALL_SHARE * (1 - missing) * self.config.keys

    @property
    def strategies(self) -> dict[str, str]:
        """The storefront's strategies, each with a line on its cost; empty before the first sample."""
        return self.sample.strategies if self.sample else {}

    @property
    def saturating_keys(self) -> float | None:
        """Keys at which the events' searches take all the server's time; None before the plan, and without searches."""
        if self.plan is None or not self.searching:
            return None
        return self.plan.saturating_keys(self.planned)

    def observe(self) -> SceneSample:
        """Take and store a sample. Raises `StackError` if a part does not answer and there is no sample yet."""
        sample, trouble = self.clients.sample(self.sample)
        self.sample, self.trouble = sample, trouble
        metrics, server = self.metrics, self.server
        metrics.expect_strategies(server, sample.strategies)
        figures = self.history.add(time.monotonic(), sample)
        metrics.keys.labels(server).set(sample.keys)
        metrics.in_flight.labels(server).set(sample.in_flight)
        if self.free and self.searching and self.planned > 0 and time.monotonic() > self._follow_from:
            self.follows.add(sample.keys, figures.p99_ms)
            correlation = self.follows.correlation
            metrics.correlation.labels(server).set(float("nan") if correlation is None else correlation)
        saturating = self.saturating_keys
        metrics.knee.labels(server).set(float("nan") if saturating is None else saturating)
        self.show_phase()
        return sample

    def record_counters(self, counters: Snapshot) -> None:
        """Record the server's CPU time, which the watcher has just read."""
        self.metrics.threads.labels(self.server).set(counters.threads)
        if counters.main_thread_s is None:
            return
        if self._busy and counters.main_thread_s < self._busy[-1][1]:
            self._busy.clear()  # the server was restarted
        self._busy.append((counters.at, counters.main_thread_s))
        while len(self._busy) > 2 and self._busy[1][0] <= counters.at - BUSY_WINDOW_S:
            self._busy.popleft()
        (first, used), (last, now) = self._busy[0], self._busy[-1]
        if last > first:
            self.metrics.busy.labels(self.server).set((now - used) / (last - first) * counters.threads)

    def record_up(self, up: bool, starts: int) -> None:
        """Record the watcher's result: `up` if the server answers; `starts` counts its starts."""
        restarted = up and self.starts and starts > self.starts
        self.up, self.starts = up, starts
        self.metrics.up.labels(self.server).set(up)
        restarting = self.restarting
        if up and restarting and starts > restarting[0]:
            self.restarting = None
        if restarted:
            self.complaint = ""
            with self.acting:
                now = time.monotonic()
                self._follow_from = now + WINDOW_S  # until then p99 still covers the time before the restart
                self.follows.begin()
                if self.awake and self.few_until is None:
                    self.few_until = now + 2 * WINDOW_S

    def act(self, action: str) -> None:
        """Count an action in the metrics."""
        self.metrics.act(self.server, action)
