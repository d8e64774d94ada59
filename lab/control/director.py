"""The director of one server: a thread that tells the default story and then keeps the scene within bounds.

The story: wait until everything answers, calibrate, empty the store, let keys grow under ``scan``.
"""

from __future__ import annotations

import contextlib
import threading
import time

from lab.control.config import Config, ServerAddresses
from lab.control.metrics import ControlMetrics
from lab.control.slowlog import StoreWatcher
from lab.control.stage import Refused, Stage
from lab.control.tuning import FILL_S, tune
from lab.errors import StackError
from lab.store import Store

TICK_S = 1.0
RETRY_S = 3.0
UNKNOWN_S = 5.0


class _Halted(Exception):
    """The story was broken off, or the director ends."""


class Director(threading.Thread):
    """One server's thread. `turn` is held while calibrating: one server at a time has the machine."""

    def __init__(
        self,
        addresses: ServerAddresses,
        config: Config,
        metrics: ControlMetrics,
        turn: threading.Lock,
    ) -> None:
        super().__init__(name=f"director-{addresses.name}", daemon=True)
        self.stage = stage = Stage(addresses, config, metrics)
        self._turn = turn
        self._story_due = config.story == "on"
        self._halt, self._ended = threading.Event(), threading.Event()
        self._lease_end = 0.0
        self._still = threading.Event()
        self._watched = Store(addresses.store, config.store_timeout_seconds)
        self._watcher = StoreWatcher(
            stage.server,
            self._watched,
            config.slowlog_threshold_us,
            stage.tell_up,
            lambda command, seconds: metrics.slow(stage.server, command, seconds),
            lambda: self._leased,
        )

    def run(self) -> None:
        """Until `end`."""
        try:
            self._wait_for_scene()
            self._watcher.start()
            while True:
                self._turn_over()
        except _Halted:
            return

    def end(self) -> None:
        """Stop the thread and close all connections. The scene goes on as it is."""
        self._ended.set()
        self._watcher.end()
        self.join(5)
        self.stage.close()
        self._watched.close()

    @property
    def healthy(self) -> bool:
        """Whether the threads run: an error nobody thought of ends them, with a traceback in the log."""
        return self.is_alive() and (self._watcher.ident is None or self._watcher.is_alive())

    def begin(self) -> str:
        """Tell the story from the beginning."""
        if self._story_due:
            raise Refused("The story is being told.")
        self._story_due = True
        return "The story begins."

    def halt(self) -> str:
        """Break off the story, and let everything rest."""
        if self.stage.free and not self._story_due:
            self.stage.rest()
        else:
            self._halt.set()  # the thread itself lets everything rest when it is out of the story
        return "Stopped."

    def lease(self, seconds: float) -> None:
        """Keep still for so long: somebody else, a run of the lab, has the scene. Ask again to prolong it.

        A story that is being told is broken off, and told from the beginning afterwards.
        """
        self._lease_end = time.monotonic() + seconds

    def await_stillness(self, seconds: float) -> None:
        """Wait until the lease is kept. Raises `Refused` if it takes too long."""
        if self.stage.phase not in ("absent", "waiting") and not self._still.wait(seconds):
            raise Refused(f"{self.stage.server} is busy and does not come to rest. Try again.")

    def resume(self) -> None:
        """End the lease."""
        self._lease_end = 0.0

    @property
    def _leased(self) -> bool:
        return time.monotonic() < self._lease_end

    def _keep_still(self) -> None:
        stage = self.stage
        with stage.acting:
            stage.phase = "leased"
        if self._story_due:
            stage.rest()
        self._still.set()
        try:
            while self._leased:
                with contextlib.suppress(
                    StackError
                ):  # the run restarts and measures; looking on is all we do
                    stage.observe()
                self._sleep(TICK_S / 2)
        finally:
            self._still.clear()
            stage.phase = "running"

    def _turn_over(self) -> None:
        stage = self.stage
        try:
            if self._leased:
                self._keep_still()
            if self._halt.is_set():
                self._story_due = False
                stage.phase = "running"
                stage.rest()
                self._halt.clear()
            if self._story_due:
                self._tell_story()
            stage.keep_within_bounds()
            self._pause(TICK_S)
        except StackError as error:
            stage.trouble = str(error)
            if self._story_due and not self._leased:
                stage.phase = "retrying"
            self._sleep(RETRY_S if self._story_due and not self._leased else TICK_S)
        except _Halted:
            if self._ended.is_set():
                raise

    def _wait_for_scene(self) -> None:
        stage = self.stage
        while not stage.clients.known():
            self._sleep(UNKNOWN_S)
        stage.phase = "waiting"
        while True:
            try:
                stage.clients.ready()
                product, version = stage.clients.store.identity()
                stage.product = f"{product.capitalize()} {version}"
                stage.observe()
                break
            except StackError as error:
                stage.trouble = str(error)
                self._sleep(TICK_S)
        stage.phase = "running"

    def _tell_story(self) -> None:
        stage, config, web = self.stage, self.stage.config, self.stage.clients.web
        with stage.acting:
            stage.phase = "queued"
            stage.awake, stage.asked, stage.paused, stage.target = True, 0.0, False, 0
        while not self._turn.acquire(timeout=0.1):
            self._pause(TICK_S)
        try:
            self._pause(0)
            stage.phase = "calibrating"
            stage.clients.ready()
            stage.act("story")
            stage.tuning = found = tune(stage.clients, config, self._load, self._pause)
        finally:
            self._turn.release()
        stage.metrics.cost.labels(stage.server).set(found.cost_s)
        stage.phase = "emptying"
        web.warm(0, restart=False, seconds=FILL_S, check=lambda: self._pause(0))
        stage.clients.store.flush()
        self._pause(TICK_S)  # the warmer counts anew
        with stage.acting:
            self._story_due = False
            stage.phase = "running"
            stage.switch("scan")
            stage.grow(True)
            stage.rate(None)

    def _load(self, events: float) -> None:
        self.stage.asked = events
        self.stage.apply_load()

    def _sleep(self, seconds: float) -> None:
        if self._ended.wait(seconds):
            raise _Halted

    def _pause(self, seconds: float) -> None:
        """Sleep, and go on looking; raises `_Halted` when the story was broken off."""
        end = time.monotonic() + seconds
        while True:
            if self._halt.is_set() or self._leased:
                raise _Halted
            left = end - time.monotonic()
            if left <= 0:
                return
            self._sleep(min(left, TICK_S))
            if left > TICK_S:
                self.stage.observe()
