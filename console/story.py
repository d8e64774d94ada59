"""The story of one server, run by a thread, which then reconciles the desired state once a second.

The story: wait until everything answers, end what is under way, time a search and plan the load (once: the machine
stays the same), empty the server, measure the healthy p99 with a few customers, let all customers come under ``scan``.
Visits and events a second stay as planned from the first customer on; only a person changes them.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterable

from console.config import Config, ServerAddresses
from console.history import WINDOW_S
from console.levers import PartResult
from console.metrics import ControlMetrics
from console.plan import FILL_S, drain, make_plan
from console.server_control import Refused, ServerControl
from console.slowlog import ServerWatcher
from lab.errors import StackError
from lab.server.http import CLEARING
from lab.server.server_stats import ServerObserver

TICK_S = 1.0
CALM_TICKS = 5
"""Ticks between two samples of a calm scene (`ServerControl.calm`)."""
RETRY_S = 2.0
UNKNOWN_S = 5.0
CLEARED_S = 20.0
"""Timeout for the events under way, which are finished under the strategy `CLEARING` before a story begins."""


class AllStories:
    """The stories of one machine. Searches are timed on one server at a time; no load begins before all have a plan."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.members: list[Story] = []

    def planned(self) -> bool:
        """Return True if every server has its plan."""
        return not any(member.planning for member in self.members)

    def add(self, members: Iterable[Story]) -> None:
        """Add stories."""
        self.members.extend(members)


class _Halted(Exception):
    """The story was broken off, or the thread ends."""


class Story(threading.Thread):
    """The thread of one server; `everybody` has those of all servers."""

    def __init__(
        self,
        addresses: ServerAddresses,
        config: Config,
        metrics: ControlMetrics,
        everybody: AllStories,
    ) -> None:
        super().__init__(name=f"story-{addresses.name}", daemon=True)
        self.control = control = ServerControl(addresses, config, metrics)
        self._all = everybody
        self._story_due = config.story == "on"
        self._halt, self._ended = threading.Event(), threading.Event()
        self._lease_end = 0.0
        self._lent = False
        self._hands_off = threading.Event()
        self._watched = ServerObserver(addresses.server, config.store_timeout_seconds)
        self._watcher = ServerWatcher(
            control.server,
            self._watched,
            config.slowlog_threshold_us,
            control.record_up,
            lambda command, seconds: metrics.slow(control.server, command, seconds),
            control.record_counters,
            lambda: self._leased,
        )

    def run(self) -> None:
        """Run the story and reconcile the desired state, until `end` is called."""
        try:
            self._wait_for_scene()
            self._watcher.start()
            self._rest()
            while True:
                self._tick()
        except _Halted:
            return

    def end(self) -> None:
        """Stop the thread and close all connections. The scene goes on as it is."""
        self._ended.set()
        self._watcher.end()
        self.join(5)
        self.control.close()
        self._watched.close()

    @property
    def healthy(self) -> bool:
        """True while the threads run. An unexpected error ends them, with a traceback in the log."""
        return self.is_alive() and (self._watcher.ident is None or self._watcher.is_alive())

    def begin(self) -> str:
        """Start the story from the beginning. Raises `Refused` while it is running."""
        if self._story_due:
            raise Refused("The story is running.")
        self._story_due = True
        return "The story begins."

    def halt(self) -> list[PartResult]:
        """Break off the story, and stop everything. Returns the result of each part.

        While a run of the lab has the scene, this happens after the run: until then the load is the run's.
        """
        if self._hands_off.is_set():
            self._halt.set()
            return [PartResult("scene", True, "It stops when the run is over.")]
        if not self.control.free or self._story_due:
            self._halt.set()  # the thread itself stops everything again when it has left the story
        return self.control.rest()

    @property
    def planning(self) -> bool:
        """True if this server's plan is still to come or being made."""
        return self._story_due and self.control.plan is None and self.control.phase != "absent"

    def lease(self, seconds: float, lent: bool = False) -> None:
        """Leave the scene to a run of the lab for `seconds` from now. Another call prolongs the lease.

        A running story is broken off, and starts from the beginning afterwards. `lent`: the run uses this server. When
        the lease ends, the server is restarted, which undoes the run's settings.
        """
        self._lease_end = time.monotonic() + seconds
        self._lent = lent

    def await_hands_off(self, seconds: float) -> None:
        """Wait until this thread leaves the scene alone. Raises `Refused` if that takes longer than `seconds`."""
        if self.control.phase not in ("absent", "waiting") and not self._hands_off.wait(seconds):
            raise Refused(f"The story of {self.control.server} is still at work. Try again.")

    def resume(self) -> None:
        """End the lease."""
        self._lease_end = 0.0

    @property
    def _leased(self) -> bool:
        return time.monotonic() < self._lease_end

    def _keep_hands_off(self) -> None:
        control = self.control
        with control.acting:
            control.phase = "leased"
        if self._story_due:
            control.rest()
        with contextlib.suppress(StackError):  # the run sets its own load
            control.clients.locust.visit(0.0, 0.0, control.config.customers)
        self._hands_off.set()
        try:
            while self._leased:
                with contextlib.suppress(
                    StackError
                ):  # the run restarts and measures; this thread only samples
                    control.observe()
                self._sleep(TICK_S / 2)
        finally:
            self._hands_off.clear()
            control.phase = "running"
        if self._lent:
            with contextlib.suppress(Refused):  # it is being restarted already
                control.restart()

    def _tick(self) -> None:
        control = self.control
        try:
            if self._leased:
                self._keep_hands_off()
            if self._halt.is_set():
                self._story_due = False
                control.phase = "running"
                control.rest()
                self._halt.clear()
            if self._story_due:
                self._run_story()
            control.keep()
            self._wait_for_the_next_sample()
        except StackError as error:
            control.trouble = str(error)
            if self._story_due and not self._leased:
                control.phase = "retrying"
            self._sleep(RETRY_S if self._story_due and not self._leased else TICK_S)
        except _Halted:
            if self._ended.is_set():
                raise

    def _wait_for_the_next_sample(self) -> None:
        for _ in range(CALM_TICKS):
            self._pause(TICK_S)
            if self._story_due or not self.control.calm:
                return

    def _wait_for_scene(self) -> None:
        control = self.control
        while not control.clients.known():
            self._sleep(UNKNOWN_S)
        control.phase = "waiting"
        while True:
            try:
                control.clients.ready()
                product, version = control.clients.server.identity()
                control.product = f"{product.capitalize()} {version}"
                control.observe()
                break
            except StackError as error:
                control.trouble = str(error)
                self._sleep(TICK_S)
        control.phase = "running"

    def _rest(self) -> None:
        """Wait until the machine is at rest, before anything is measured."""
        control = self.control
        if self._story_due and control.config.rest_seconds:
            control.phase = "resting"
            with contextlib.suppress(_Halted):
                self._pause(control.config.rest_seconds)
            if self._ended.is_set():
                raise _Halted
            control.phase = "running"

    def _run_story(self) -> None:
        control = self.control
        with control.acting:
            control.phase = "clearing"
            control.begin_story()
        control.clients.ready()
        control.act("story")
        self._clear()
        if control.plan is None:
            self._make_plan()
        control.phase = "emptying"
        self._empty()
        self._measure_healthy_p99()
        with control.acting:
            self._story_due = False
            control.phase = "running"
        control.open_to_all()

    def _clear(self) -> None:
        """Finish the events under way at once, so that no search of an earlier story goes on during this one."""
        control = self.control
        control.apply_load()
        if control.clients.sample()[0].in_flight:
            control.clients.web.use(CLEARING, control.scan_count)
            drain(control.clients, self._pause, CLEARED_S)

    def _make_plan(self) -> None:
        control, everybody = self.control, self._all
        control.phase = "queued"
        while not everybody.turn.acquire(timeout=0.1):
            self._pause(TICK_S)
        try:
            self._pause(0)
            control.phase = "calibrating"
            plan = make_plan(control.clients, control.config, control.scan_count, self._pause)
        finally:
            everybody.turn.release()
        control.adopt(plan)
        # The other servers' searches are timed on a machine without load.
        while not everybody.planned():
            self._pause(TICK_S)

    def _empty(self) -> None:
        control = self.control
        control.clients.web.warm(0, restart=False, seconds=FILL_S, check=lambda: self._pause(0))
        control.clients.server.flush()
        self._pause(TICK_S)  # until the warmer has counted again

    def _measure_healthy_p99(self) -> None:
        """Measure the healthy p99: under the whole load, with a nearly empty server.

        Raises `StackError` if the probe counts no answers.
        """
        control, plan = self.control, self.control.plan
        assert plan is not None
        control.phase = "healthy"
        control.open_shop(plan.events_per_second)
        self._pause(WINDOW_S)
        seen: list[float] = []
        end = time.monotonic() + control.config.healthy_seconds
        while time.monotonic() < end:
            self._pause(TICK_S)
            control.observe()
            if (p99 := control.history.figures.p99_ms) is not None:
                seen.append(p99)
        if not seen:
            raise StackError(
                f"{control.clients.probe.name} counts no answers, so the healthy p99 cannot be measured."
            )
        control.healthy_ms = healthy = statistics.median(seen)
        control.metrics.healthy.labels(control.server).set(healthy / 1000)

    def _sleep(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise _Halted

    def _pause(self, seconds: float) -> None:
        """Sleep, and go on sampling. Raises `_Halted` when the story is broken off or the scene is leased."""
        end = time.monotonic() + seconds
        while True:
            if self._halt.is_set() or self._leased:
                raise _Halted
            left = end - time.monotonic()
            if left <= 0:
                return
            self._sleep(min(left, TICK_S))
            if left > TICK_S:
                self.control.observe()
