"""One server of the scene: its observations, its desired state, and the levers.

The desired state (strategy, rates, customers) is noted first and then applied. Once a second the scene is sampled, and
parts that differ from the desired state get it again: a part that was restarted, or did not answer a lever, is
reconciled. The desired state changes by levers, never by observations, with two exceptions: for twenty seconds after a
restart only a few customers come, so that p99 of the empty server can be read; and no events are sent while very many
are in flight, because the invalidator keeps each in memory.
"""

from __future__ import annotations

import time

from console.clients import SceneSample
from console.levers import PartResult, Parts, pull
from console.metrics import SWITCH, SWITCH_LATE
from console.observed import Observed
from console.plan import Plan
from lab.errors import StackError

REASSERT_S = 3.0
BACK_S = 60.0
FEW = 50
"""Customers who come while the healthy p99 is measured. They make as many visits as all customers."""
OVER_TIMES, OVER_S = 3.0, 60.0
"""Over the edge: the multiple of the planned events, and its seconds."""


class Refused(Exception):
    """An action that is not possible at present; the message is a sentence with the reason."""


class ServerControl(Observed):
    """The control of one server: the levers of the page, and the reconciliation of the desired state."""

    _asserted_at = 0.0
    _customers_when_stopped = 0  # customers that come while growth is stopped

    def keep(self) -> None:
        """Sample, end periods that are over, and reapply the desired state to parts that differ. Call once a second."""
        sample, now = self.observe(), time.monotonic()
        with self.acting:
            if self.over_until is not None and now > self.over_until:
                self._end_over()
            if self.few_until is not None and now > self.few_until:
                self.few_until = None
                self.act("growth_start")
            if sample.in_flight > self.config.backlog_pause:
                self._hold_events(True)
            elif sample.in_flight <= self.config.backlog_resume:
                self._hold_events(False)
        self._reassert(sample)
        restarting = self.restarting
        if restarting and now - restarting[1] > BACK_S:
            self._give_up_restarting(f"The server has not come back within {BACK_S:g} seconds.")

    def _hold_events(self, paused: bool) -> None:
        if paused != self.paused:
            self.paused = paused
            self.metrics.paused.labels(self.server).set(paused)
            self.act("pause" if paused else "resume")

    @property
    def requested(self) -> float:
        """Events a second that are requested now."""
        if self.paused or not self.awake:
            return 0.0
        return self.planned * (OVER_TIMES if self.over_until is not None else 1.0)

    def _wanted(self) -> tuple[float, float, int]:
        """Return the desired visits and events a second, and number of customers."""
        customers = self.config.customers if self.growing else max(1, self._customers_when_stopped)
        few = self.few_until is not None or self.restarting is not None
        return (
            self.config.visits_per_second if self.awake else 0.0,
            self.requested,
            min(FEW, customers) if few else customers,
        )

    def _reassert(self, sample: SceneSample) -> None:
        try:
            strategy = self.strategy
            if strategy is not None and (sample.strategy, sample.scan_count) != (strategy, self.scan_count):
                self._use()
            wanted = self._wanted()
            if time.monotonic() - self._asserted_at > REASSERT_S or self._sent != wanted:
                self._asserted_at = time.monotonic()
                current = self.clients.load()
                # Without visits and events the number of customers makes no difference.
                if current != wanted and (self.awake or current[:2] != wanted[:2]):
                    self.apply_load()
                self._sent = wanted
        except StackError as error:
            self.trouble = str(error)

    _sent: tuple[float, float, int] | None = None

    def apply_load(self) -> None:
        """Set Locust to the desired rates, and set their metrics."""
        wanted = self._wanted()
        self.clients.locust.visit(*wanted)
        self._sent = wanted
        metrics, server = self.metrics, self.server
        metrics.events.labels(server).set(wanted[1])
        metrics.planned.labels(server).set(self.planned)
        metrics.growing.labels(server).set(self.growing and self.few_until is None)

    def _use(self) -> None:
        if self.strategy is not None:
            self.clients.web.use(self.strategy, self.scan_count, self.late)

    def adopt(self, plan: Plan) -> None:
        """Adopt a plan: `rate(None)` sets its rate."""
        self.plan = plan
        self.metrics.cost.labels(self.server).set(plan.cost_s)
        self.metrics.show_plan(self.server, plan)
        self.act("plan")

    def begin_story(self) -> None:
        """Clear the desired state; the story sets it from here on."""
        with self.acting:
            self.awake, self.planned, self.growing = False, 0.0, False
            self.over_until = self.few_until = None
            self._hold_events(False)
            self.strategy, self.late = None, False
            self.follows.begin()

    def open_shop(self, events_per_second: float) -> None:
        """Let a few customers make all visits, and all planned events come, under `scan`: the healthy state."""
        with self.acting:
            self.strategy, self.late = "scan", False
            self.planned, self.awake, self.growing = events_per_second, True, True
            self.few_until = float("inf")
        self._use()
        self.apply_load()

    def open_to_all(self) -> None:
        """Let all customers come from here on: the keys grow."""
        with self.acting:
            self.few_until = None
            self.act("growth_start")
        self.apply_load()

    # Levers: each notes the desired state, applies it to all parts at once, and returns a sentence and the parts'
    # results. They raise `Refused`.

    def _pull(self, sentence: str, parts: Parts) -> tuple[str, list[PartResult]]:
        done = pull(parts)
        missing = [f"{one.part}: {one.said}" for one in done if not one.done]
        return " ".join([sentence, *missing]), done

    def switch(self, strategy: str, late: bool = False) -> tuple[str, list[PartResult]]:
        """Change the invalidation strategy: as a deploy does, or with `late` for later events only."""
        with self.acting:
            self._must_be_free()
            self.strategy, self.late = strategy, late
            self.act((SWITCH_LATE if late else SWITCH) + strategy)
            self.show_phase()
        how = "events under way are finished as they were begun" if late else "events under way begin again"
        return self._pull(f"Strategy is now {strategy}; {how}.", {"storefront": self._use})

    def count(self, scan_count: int) -> tuple[str, list[PartResult]]:
        """Change SCAN's COUNT for later events."""
        with self.acting:
            self._must_be_free()
            self.scan_count, self.late = scan_count, True
            self.strategy = self.strategy or (self.sample.strategy if self.sample else None)
            self.act("count")
        return self._pull(f"COUNT is now {scan_count:,}.", {"storefront": self._use})

    def grow(self, on: bool) -> tuple[str, list[PartResult]]:
        """Let all customers come, or from now on only as many as have their pages cached at present."""
        with self.acting:
            self._must_be_free()
            if on:
                self.awake = self.growing = True
            else:
                self._stop_growth()
            self.act("growth_start" if on else "growth_stop")
        sentence = "Growth started." if on else "Growth stopped: no new customers come."
        return self._pull(sentence, {"load": self.apply_load})

    def _stop_growth(self) -> None:
        self.growing = False
        self._customers_when_stopped = (self.sample.keys if self.sample else 0) // (
            self.config.fragments_per_user + 1
        )

    def rate(self, events_per_second: float | None) -> tuple[str, list[PartResult]]:
        """Change the event rate; None sets the planned one."""
        with self.acting:
            self._must_be_free()
            if events_per_second is None:
                if self.plan is None:
                    raise Refused("There is no planned rate yet: start the story first.")
                events_per_second = self.plan.events_per_second
            self.over_until = None
            self.awake = self.awake or events_per_second > 0
            self.planned = events_per_second
            self.act("rate")
        return self._pull(f"Event rate is now {events_per_second:g} a second.", {"load": self.apply_load})

    def go_over(self, on: bool) -> tuple[str, list[PartResult]]:
        """With `on`, send `OVER_TIMES` the events for `OVER_S` seconds. Else end that now."""
        with self.acting:
            self._must_be_free()
            if on and self.planned <= 0:
                raise Refused("No events arrive: set a rate or start the story first.")
            if on:
                self.over_until = time.monotonic() + OVER_S
                self.act("over_the_edge")
            elif self.over_until is not None:
                self._end_over()
        sentence = (
            f"Over the edge: {OVER_TIMES * self.planned:.3g} events a second for {OVER_S:g} seconds, three times as "
            "many as planned."
            if on
            else f"Back to {self.planned:.3g} events a second."
        )
        return self._pull(sentence, {"load": self.apply_load})

    def _end_over(self) -> None:
        self.over_until = None
        self.act("back_to_the_edge")

    def restart(self) -> tuple[str, list[PartResult]]:
        """Shut the server down; its supervisor starts it again, empty."""
        with self.acting:
            self._must_be_free()
            if self.restarting:
                raise Refused("The server is being restarted already.")
            self.complaint = ""
            self.restarting = self.starts, time.monotonic()
            self.act("restart")
        return self._pull("Restarting the server.", {"load": self.apply_load, "server": self._shut_down})

    def _shut_down(self) -> str:
        """Send SHUTDOWN until it is done, for `BACK_S` at most, because it may wait in the server's queue.

        The lever answers earlier; its thread goes on. Raises `StackError` when it gives up.
        """
        end = time.monotonic() + BACK_S
        while True:
            try:
                self.clients.server.shutdown()
                return "The server is shutting down."
            except StackError as error:
                if self.restarting is None or time.monotonic() > end:
                    self._give_up_restarting(str(error))
                    raise
                time.sleep(0.2)

    def _give_up_restarting(self, complaint: str) -> None:
        with self.acting:
            self.restarting, self.complaint = None, complaint

    def rest(self) -> list[PartResult]:
        """Stop events and visits; the keys stay, and events under way are finished.

        The strategy stays, and is no longer reapplied: a load from elsewhere may change it.
        """
        with self.acting:
            self.awake, self.planned = False, 0.0
            self.strategy, self.late = None, False
            self.over_until = self.few_until = None
            self._hold_events(False)
            self._stop_growth()
            self.act("stop")
            self.show_phase()
        return pull({"load": self.apply_load})

    @property
    def calm(self) -> bool:
        """True while there is no load, no backlog, no restart under way, and no other desired change."""
        sample = self.sample
        return not (
            self.awake
            or self.trouble
            or self.restarting
            or sample is None
            or sample.in_flight
            or (self.strategy is not None and sample.strategy != self.strategy)
        )

    def _must_be_free(self) -> None:
        if self.phase in ("absent", "waiting"):
            raise Refused(f"{self.server} is not ready yet.")
        if self.phase == "leased":
            raise Refused("A run of the lab is using the scene: this is possible again after the run.")
        if not self.free:
            raise Refused("The story is beginning: this will be possible in a few seconds.")

    def close(self) -> None:
        """Close all connections. The scene goes on as it is."""
        self.clients.close()
