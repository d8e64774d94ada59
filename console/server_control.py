"""One server of the scene as the control page knows it: what was observed, what is wanted, and the levers.

What is wanted (strategy, event rate, keys) is noted first and then asked for. Once a second the scene is sampled, and
what is not as wanted is asked for again. So a part that was restarted, or did not answer a lever, is brought into line.

Left alone the scene nears the edge and stays there (`console.steering`). Only a person sends it over the edge. Even
then no more events are sent while very many are in flight, because beyond the knee a backlog grows for ever.
"""

from __future__ import annotations

import time
from dataclasses import replace

from console.clients import Sample
from console.levers import PartDone, Parts, pull
from console.metrics import SWITCH, SWITCH_LATE
from console.observed import Observed
from console.steering import Growth
from lab.errors import StackError

REASSERT_S = 3.0
BACK_S = 60.0
KEPT_SHARE = 0.97
"""Keys are filled up again when fewer than this share of the target are left."""
SLOWER = 5.0
"""Factor by which keys grow more slowly while the server is at its limit and p99 not yet plainly above the healthy one.
"""
LEAST_CHANGE = 0.03
"""A change of the event rate by less than this share of the planned rate is not sent."""
REPLAN_S = 10.0
REPLAN_STEP = 1.25
REPLAN_UNTIL = 0.7
"""The event rate is corrected every `REPLAN_S`, by the factor `REPLAN_STEP` at most, until the keys reach the share
`REPLAN_UNTIL` of the wanted knee."""


class Refused(Exception):
    """An action that cannot be done at present; the message says why, in a sentence."""


class ServerControl(Observed):
    """What is done to one server: steering once a second, and the levers of the page."""

    _sent_rates = (0.0, 0.0)  # the rates that Locust was told
    _sent_pace = 0.0  # the pace that the warmer was told

    # Bounds

    def keep_within_bounds(self) -> None:
        """Once a second: take a sample, steer, and ask again for what is not as wanted."""
        sample = self.observe()
        with self.acting:
            if self.grows_at is not None and time.monotonic() >= self.grows_at:
                self.begin_growth()
            self._steer(sample)
        self._reassert(sample)
        restarting = self.restarting
        if restarting and time.monotonic() - restarting[1] > BACK_S:
            self._give_up_restarting(f"The server has not come back within {BACK_S:g} seconds.")

    def _steer(self, sample: Sample) -> None:
        seen, config = self.seen(sample), self.config
        if sample.in_flight > config.backlog_pause:
            self._hold_events(True)
        elif sample.in_flight < max(1, config.backlog_resume):
            self._hold_events(False)
        wanted = self.planned if self.over else self.steering.events(self.planned, seen)
        if self.paused:
            wanted = 0.0
        if wanted in (0.0, self.planned) or abs(wanted - self.asked) > LEAST_CHANGE * self.planned:
            self.asked = wanted
        self.metrics.events.labels(self.server).set(self.asked)
        emptied = self.restarting is not None or self.grows_at is not None
        if not self.growing or emptied or self.over or not self.searching or self.planned <= 0:
            return
        self._correct_plan(sample.keys)
        before = self.steering.growth
        growth = self.steering.steer(self.planned, wanted, seen)
        if growth is Growth.HELD and before is not growth:
            self.edge_keys = sample.keys
        if growth is not before:
            self._set_growth(growth, sample.keys)

    def _correct_plan(self, keys: int) -> None:
        """While keys grow, correct the event rate so that the knee lies at `knee_keys`, by what is known by now.

        The correction goes in steps and stops when the keys have come most of the way. From then on the rate stays, and
        the knee that is shown moves instead.
        """
        config, now = self.config, time.monotonic()
        knee = self.knee_keys()
        if (
            not self._auto
            or not knee
            or keys > REPLAN_UNTIL * config.knee_keys
            or now - self._planned_at < REPLAN_S
        ):
            return
        self._planned_at = now
        step = min(REPLAN_STEP, max(1 / REPLAN_STEP, knee / config.knee_keys))
        all_sent = self.asked == self.planned
        self.planned = round(self.planned * step, 2)
        if all_sent:
            self.asked = self.planned
        if self.tuning:
            self.tuning = replace(self.tuning, events_per_second=self.planned)
        self.metrics.planned.labels(self.server).set(self.planned)

    def _set_growth(self, growth: Growth, keys: int) -> None:
        pace = self.config.keys_per_second
        if growth is Growth.HELD:
            self.target, self.pace = keys, pace
            self.act("edge_held")
        else:
            self.target, self.pace = (
                self.config.keys,
                pace if growth is Growth.ON else max(1.0, pace / SLOWER),
            )
        self._asserted = 0.0

    def _hold_events(self, held: bool) -> None:
        if held != self.paused:
            self.paused = held
            self.metrics.paused.labels(self.server).set(held)
            self.act("pause" if held else "resume")

    def _reassert(self, sample: Sample) -> None:
        """Ask again for what is not as wanted: a part was restarted, or did not answer."""
        try:
            if self.strategy is not None and sample.strategy != self.strategy:
                self._use()
            if self.target is not None and (sample.target_keys, self._sent_pace) != (self.target, self.pace):
                self._fill()
            elif self.target and self.up and not sample.filling and sample.keys < KEPT_SHARE * self.target:
                # Events have removed some. A pass over all users costs little and adds only what is missing.
                self._fill(restart=True)
            if time.monotonic() - self._asserted > REASSERT_S or self._sent_rates != self._rates():
                self._asserted = time.monotonic()
                if self.clients.asked_rates() != self._rates():
                    self.apply_load()
        except StackError as error:
            self.trouble = str(error)

    def _rates(self) -> tuple[float, float]:
        return self.config.reads_per_second if self.awake else 0.0, self.asked if self.awake else 0.0

    def apply_load(self) -> None:
        """Tell Locust the rates that are wanted now, and set the metrics that follow from them."""
        rates = self._rates()
        self.clients.locust.load(*rates, self.config.population)
        self._sent_rates = rates
        metrics, server = self.metrics, self.server
        metrics.events.labels(server).set(rates[1])
        metrics.planned.labels(server).set(self.planned)
        metrics.growing.labels(server).set(self.growing)
        knee = self.knee_keys()
        if knee is not None:
            metrics.knee.labels(server).set(knee)

    def _use(self) -> None:
        strategy = self.strategy
        if strategy is not None:
            self.clients.web.use(strategy, self.config.scan_count, self.late)

    def _fill(self, restart: bool = False) -> None:
        if self.target is not None:  # None: no number of keys was asked for yet
            pace = self.pace
            self.clients.web.fill(self.target, pace, restart)
            self._sent_pace = pace

    # Levers: each notes what is wanted, asks all parts at once, and says what was done. They raise `Refused`.

    def _pull(self, said: str, parts: Parts) -> tuple[str, list[PartDone]]:
        done = pull(parts)
        missing = [f"{one.part}: {one.said}" for one in done if not one.done]
        return " ".join([said, *missing]), done

    def switch(self, strategy: str, late: bool = False) -> tuple[str, list[PartDone]]:
        """Change the invalidation strategy: as a deploy does, or with `late` for later events only."""
        with self.acting:
            self._must_be_free()
            self.want(strategy, late)
        how = "events under way are finished as they were begun" if late else "events under way begin anew"
        return self._pull(f"Strategy is now {strategy}; {how}.", {"storefront": self._use})

    def want(self, strategy: str, late: bool = False) -> None:
        """Note the strategy that is wanted."""
        self.strategy, self.late = strategy, late
        self.steering.ceiling = 1.0  # all planned events, until it is seen what they do now
        if self.estimate:
            self.estimate.forget()
        self.act((SWITCH_LATE if late else SWITCH) + strategy)
        self.show_phase()

    def grow(self, on: bool) -> tuple[str, list[PartDone]]:
        """Start or stop the growth of keys. Keys that are there when it stops are kept."""
        with self.acting:
            self._must_be_free()
            if on:
                self.awake = True
                self.growing = True
                self.begin_growth()
            else:
                self._stop_growth()
        return self._pull(
            "Growth started." if on else "Growth stopped.", {"warmer": self._fill, "load": self.apply_load}
        )

    def _stop_growth(self) -> None:
        self.growing = False
        self.target, self.pace = self.sample.keys if self.sample else 0, self.config.keys_per_second
        self.metrics.growing.labels(self.server).set(False)
        self.act("growth_stop")

    def rate(self, events_per_second: float | None) -> tuple[str, list[PartDone]]:
        """Change the event rate; None asks for the calibrated one."""
        with self.acting:
            self._must_be_free()
            auto = events_per_second is None
            if events_per_second is None:
                if self.tuning is None:
                    raise Refused("There is no calibrated rate yet: start the story first.")
                events_per_second = round(self.tuning.events_per_second, 2)
            self.plan(events_per_second, auto)
        return self._pull(f"Event rate is now {events_per_second:g} a second.", {"load": self.apply_load})

    def plan(self, events_per_second: float, auto: bool = False) -> None:
        """Note the event rate that is wanted; `auto`: it is corrected as keys grow."""
        self._auto, self._planned_at = auto, time.monotonic()
        self.awake = self.awake or events_per_second > 0
        self.planned = self.asked = events_per_second
        self.metrics.planned.labels(self.server).set(events_per_second)
        self.act("rate")

    def go_over(self, on: bool) -> tuple[str, list[PartDone]]:
        """With `on`, send the scene over its edge: all planned events and all keys, whatever piles up. Else bring it
        back to the edge.
        """
        with self.acting:
            self._must_be_free()
            if on and self.planned <= 0:
                raise Refused("No events are asked for: set a rate or start the story first.")
            self.over, self.growing = on, True
            self.act("over_the_edge" if on else "back_to_the_edge")
            if on:
                self.begin_growth()
                self.asked = self.planned
            else:
                self._set_growth(Growth.HELD, self.sample.keys if self.sample else 0)
                self.steering.growth = Growth.HELD
        said = (
            f"Over the edge: keys grow to {self.config.keys:,}, and all {self.planned:.3g} events a second are sent. "
            f"Events pile up, to {self.config.backlog_pause:,} at the most, and p99 climbs to seconds."
            if on
            else "Back to the edge: as many events as the server can finish, the keys as they are."
        )
        return self._pull(said, {"warmer": self._fill, "load": self.apply_load})

    def restart(self) -> tuple[str, list[PartDone]]:
        """Shut the server down; its supervisor starts it again, empty."""
        with self.acting:
            self._must_be_free()
            if self.restarting:
                raise Refused("The server is being restarted already.")
            self.target = 0  # otherwise the warmer would bring the keys back at once
            self.complaint = ""
            self.restarting = self.starts, time.monotonic()
            self.act("restart")
        return self._pull("Restarting the server.", {"warmer": self._fill, "server": self._shut_down})

    def _shut_down(self) -> str:
        """Ask for SHUTDOWN until it is done, for `BACK_S` at most, because it may wait in the server's queue.

        The lever answers earlier; its thread goes on with this. Raises `StackError` when it gives up.
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
            self.begin_growth()  # if the server is there after all, it gets its keys back

    def rest(self) -> list[PartDone]:
        """No events, no reads, no growth; the keys that are there are kept, and events under way are finished."""
        with self.acting:
            self.awake, self.planned, self.asked, self.over = False, 0.0, 0.0, False
            self._hold_events(False)
            self._stop_growth()
            self.act("stop")
            self.metrics.planned.labels(self.server).set(0)
            self.show_phase()
        return pull({"load": self.apply_load, "warmer": self._fill})

    def begin_story(self) -> None:
        """Clear what was wanted of the scene; the story sets it from here on."""
        with self.acting:
            self.awake, self.planned, self.asked = True, 0.0, 0.0
            self.paused = self.over = self.growing = False
            self.metrics.paused.labels(self.server).set(False)
            self.target, self.strategy, self.late = 0, None, False
            self.follows.begin()
            self.steering.begin()

    @property
    def calm(self) -> bool:
        """True while nothing moves and nothing is wanted: no load, no backlog, no filling, no restart under way."""
        sample = self.sample
        return not (
            self.awake
            or self.trouble
            or self.restarting
            or sample is None
            or sample.filling
            or sample.in_flight
            or (self.target is not None and sample.target_keys != self.target)
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
