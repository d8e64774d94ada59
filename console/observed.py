"""What is observed of one server, and what follows from it: its phase, its knee, whether p99 follows the keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from console.clients import Clients, Sample
from console.config import Config, ServerAddresses
from console.estimate import Estimate, Moment
from console.history import WINDOW_S, Follows, History
from console.machine import read_machine
from console.metrics import ControlMetrics
from console.steering import Growth, Seen, Steering
from console.tuning import Tuning
from lab.results.knee import saturating_keys
from lab.stacks.server_stats import Snapshot

EMPTY_S = 2 * WINDOW_S
"""Seconds that a restarted server stays empty: until p99 covers only the time since, and for one window more."""
FOLLOW_STEPS = 40
"""Number of pairs of keys and p99 taken until all keys are there, for their correlation."""


class Observed:
    """State of one server. The lock `acting` is held while state is changed, never during a request to a part.

    `phase` is ``absent`` (its host name does not resolve), ``waiting`` (not ready yet), ``resting``, ``clearing``,
    ``queued``, ``calibrating``, ``emptying``, ``healthy`` or ``retrying`` (the story), ``leased`` (to a run of the
    lab), or ``running``. `rivals()` returns how many other servers want all the processor time they can get, and the
    cores that they use.
    """

    def __init__(
        self,
        addresses: ServerAddresses,
        config: Config,
        metrics: ControlMetrics,
        rivals: Callable[[], tuple[int, float]] = lambda: (0, 0.0),
    ) -> None:
        self.server = addresses.name
        self.config, self.metrics = config, metrics
        self.clients = Clients(addresses, config)
        self.acting = threading.RLock()
        self._phase = "absent"
        self.product = ""
        self.history = History()
        self.follows = Follows(config.keys / FOLLOW_STEPS)
        self.steering = Steering(config.backlog_aim)
        self.sample: Sample | None = None
        self.trouble = ""
        self.complaint = ""
        self.awake = False
        self.planned, self.asked = 0.0, 0.0
        self.paused = False
        self.growing = False
        self.over = False
        self.target: int | None = None
        self.strategy: str | None = None
        self.late = False
        self.tuning: Tuning | None = None
        self.estimate: Estimate | None = None
        self.edge_keys: int | None = None
        self.up, self.starts = False, 0
        self.restarting: tuple[int, float] | None = None
        self._rivals = rivals
        self._auto = False
        self._planned_at = 0.0
        self._follow_from = 0.0
        self.grows_at: float | None = None
        self._counters: tuple[Snapshot, float] | None = None
        self.pace = config.keys_per_second
        self._asserted = 0.0

    @property
    def phase(self) -> str:
        """See the class."""
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
        if not self.searching:
            return "cured"
        if self.over:
            return "over_the_edge"
        return "growing" if self.growing and self.steering.growth is not Growth.HELD else "held"

    def show_phase(self) -> None:
        """Set the phase in the metrics."""
        self.metrics.show_phase(self.server, self.shown_phase)

    @property
    def free(self) -> bool:
        """True while people's actions are accepted."""
        return self._phase == "running"

    @property
    def searching(self) -> bool:
        """True if events search the keyspace, as far as is known. Under any other strategy the scene is cured."""
        sample = self.sample
        return sample is not None and (self.strategy or sample.strategy) in sample.searching

    @property
    def strategies(self) -> dict[str, str]:
        """The storefront's strategies, each with a line on what it costs; empty before the first sample."""
        return self.sample.strategies if self.sample else {}

    def observe(self) -> Sample:
        """Take a sample and keep it. Raises `StackError` if a part does not answer and there is no sample yet."""
        sample, trouble = self.clients.sample(self.sample)
        self.sample, self.trouble = sample, trouble
        self.metrics.expect_strategies(self.server, sample.strategies)
        figures = self.history.add(time.monotonic(), sample)
        metrics, server = self.metrics, self.server
        metrics.keys.labels(server).set(sample.keys)
        metrics.in_flight.labels(server).set(sample.in_flight)
        if self.hungry and time.monotonic() > self._follow_from:
            self.follows.add(sample.keys, figures.p99_ms)
            correlation = self.follows.correlation
            metrics.correlation.labels(server).set(float("nan") if correlation is None else correlation)
        self._estimate(sample)
        self.show_phase()
        return sample

    def _estimate(self, sample: Sample) -> None:
        counted, estimate = self._counters, self.estimate
        self._counters = None
        if counted is None or estimate is None or self.tuning is None:
            return
        if self._phase == "leased":  # the run's load and keys tell nothing of the scene
            estimate.forget()
            for metric in (self.metrics.busy, self.metrics.capacity):
                metric.labels(self.server).set(float("nan"))
            return
        counters, idle = counted
        if counters.main_thread_s is not None and self.free:
            of_server = counters.at, counters.main_thread_s, idle
            other = self._behind or not self.searching  # work that does not tell what a key costs
            estimate.add(Moment(*of_server, sample.finished, sample.in_flight, sample.keys, other))
        metrics, threads = self.metrics, self.tuning.threads
        capacity, busy = self._capacity(), estimate.busy
        if capacity is not None and busy is not None:
            metrics.capacity.labels(self.server).set(capacity * threads)
            metrics.busy.labels(self.server).set(busy * threads)
        knee = self.knee_keys()
        if knee is not None:
            metrics.knee.labels(self.server).set(knee)

    def record_counters(self, counters: Snapshot) -> None:
        """Keep the server's counters, which the watcher has just read."""
        self._counters = counters, read_machine().idle_s

    def record_up(self, up: bool, starts: int) -> None:
        """Note what the watcher found: `up` while the server answers; `starts` counts the starts of the server."""
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
                self._forget_edge()
                if self.growing:
                    self.grows_at, self.target = now + EMPTY_S, 0

    def _forget_edge(self) -> None:
        self.grows_at = None
        self.steering.begin()
        if self.estimate:
            self.estimate.forget()

    def begin_growth(self) -> None:
        """Forget where the edge was; if growth is on, keys grow from here on."""
        self._forget_edge()
        if self.growing:
            self.target, self.pace = self.config.keys, self.config.keys_per_second
            self.metrics.growing.labels(self.server).set(True)
            self.act("growth_start")

    def act(self, action: str) -> None:
        """Count an action in the metrics."""
        self.metrics.act(self.server, action)

    def knee_keys(self) -> float | None:
        """Keys at which the planned rate takes all the time that the server can have.

        None before the calibration, and while no events are planned.
        """
        if self.tuning is None or self.planned <= 0:
            return None
        seen = self.estimate.knee_keys(self.planned, self._capacity()) if self.estimate else None
        if seen is not None:
            return seen
        tuning = self.tuning
        return (
            tuning.keys * tuning.events_per_second / self.planned
            if tuning.keys
            else saturating_keys(tuning.base_share, self.planned, tuning.cost_s)
        )

    @property
    def _behind(self) -> bool:
        """True while fewer events are sent than planned, because there is a backlog."""
        return self.steering.trimmed or self.paused or self.asked < self.planned

    def _capacity(self) -> float | None:
        rivals, cores = self._rivals()
        return self.estimate.capacity(1 + rivals, cores) if self.estimate else None

    @property
    def hungry(self) -> bool:
        """True while the server wants all the processor time it can get, because events search it."""
        return self.free and self.searching and self.planned > 0

    def seen(self, sample: Sample) -> Seen:
        """The figures that steering decides by."""
        figures = self.history.figures
        share = (
            self.estimate.share(self.planned, sample.keys, self._capacity())
            if self.estimate and self.planned
            else None
        )
        return Seen(time.monotonic(), sample.in_flight, figures.finished_per_second, figures.p99_ms, share)

    def tuned(self, tuning: Tuning) -> None:
        """Adopt the result of a calibration."""
        self.tuning = tuning
        self.estimate = Estimate(
            tuning.base_share, tuning.cost_s, tuning.keys or self.config.knee_keys, tuning.threads
        )
        self.metrics.cost.labels(self.server).set(tuning.cost_s)
