"""One server of the scene as the control page knows it: what was seen, what is wanted, and the levers.

What is wanted (strategy, event rate, keys) is noted first and then asked for. Once a second the scene is looked at, and
what is not as wanted is asked for again; so a part that was restarted, or did not answer a lever, comes round by
itself.

Left alone the scene nears the edge and stays there (`lab.control.steering`). Past it only a person sends it; then, too,
no more events are sent while very many are in flight, because beyond the knee a backlog grows for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lab.control.clients import Clients, Look
from lab.control.config import Config, ServerAddresses
from lab.control.estimate import Estimate, Moment
from lab.control.history import Follows, History
from lab.control.levers import PartDone, Parts, pull
from lab.control.machine import read_machine
from lab.control.metrics import STRATEGIES, ControlMetrics
from lab.control.steering import Growth, Seen, Steering
from lab.control.tuning import Tuning
from lab.errors import StackError
from lab.knee import saturating_keys
from lab.store import Snapshot

SEARCHING = ("scan", "keys")
"""Strategies whose cost grows with the keyspace: under any other the scene is cured."""
REASSERT_S = 3.0
BACK_S = 60.0
KEPT_SHARE = 0.97
"""Keys are filled up again when fewer than this share of the target are left."""
SLOWER = 5.0
"""By how much keys grow more slowly where the store is at its limit and p99 not yet plain."""
HEARD = 0.03
"""A change of the event rate by less than this share is not worth a message."""
FOLLOW_STEPS = 40
"""Pairs of keys and p99 on the way to all keys, for their correlation."""


class Refused(Exception):
    """An action that cannot be done at present; the message says why, in a sentence."""


class Stage:
    """State and actions of one server. `acting` is held while something is changed, and never while a part is asked.

    `phase` is ``absent`` (its host name does not resolve), ``waiting`` (not ready yet), ``queued``, ``clearing``,
    ``calibrating``, ``emptying``, ``healthy`` or ``retrying`` (the story), ``leased`` (to a run of the lab), or
    ``running``. `hungry()` is how many stores share the machine.
    """

    def __init__(
        self,
        addresses: ServerAddresses,
        config: Config,
        metrics: ControlMetrics,
        hungry: Callable[[], int] = lambda: 1,
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
        self.look: Look | None = None
        self.trouble = ""
        self.complaint = ""
        self.awake = False
        self.planned, self.asked = 0.0, 0.0
        self.paused = False
        self.growing = False
        self.over = False
        self.target = 0
        self.strategy: str | None = None
        self.late = False
        self.tuning: Tuning | None = None
        self.estimate: Estimate | None = None
        self.up, self.lives = False, 0
        self.restarting: tuple[int, float] | None = None
        self._hungry = hungry
        self._counters: Snapshot | None = None
        self._pace = config.keys_per_second
        self._asserted = 0.0

    # What is seen

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
        """The phase as dashboards have it: one of `lab.control.metrics.PHASES`."""
        if self._phase in ("absent", "waiting", "queued", "retrying"):
            return "waiting"
        if self._phase in ("clearing", "calibrating", "emptying"):
            return "calibrating"
        if self._phase in ("healthy", "leased"):
            return self._phase
        if self.planned <= 0:
            return "stopped"
        if self.strategy is not None and self.strategy not in SEARCHING:
            return "cured"
        if self.over:
            return "over_the_edge"
        return "growing" if self.growing and self.steering.growth is not Growth.HELD else "held"

    def show_phase(self) -> None:
        """Tell the metrics."""
        self.metrics.show_phase(self.server, self.shown_phase)

    @property
    def free(self) -> bool:
        """Whether people's actions are taken now."""
        return self._phase == "running"

    @property
    def searching(self) -> bool:
        """Whether events search the keyspace, as far as is known."""
        return (self.strategy or (self.look.strategy if self.look else "")) in SEARCHING

    def observe(self) -> Look:
        """Look at everything and remember it. Raises `StackError` where a part was never seen yet."""
        look, trouble = self.clients.look(self.look)
        self.look, self.trouble = look, trouble
        figures = self.history.add(time.monotonic(), look)
        metrics, server = self.metrics, self.server
        metrics.keys.labels(server).set(look.keys)
        metrics.in_flight.labels(server).set(look.in_flight)
        if self.free and self.searching and self.planned > 0:
            self.follows.add(look.keys, figures.p99_ms)
            correlation = self.follows.correlation
            metrics.correlation.labels(server).set(float("nan") if correlation is None else correlation)
        self._estimate(look)
        self.show_phase()
        return look

    def _estimate(self, look: Look) -> None:
        counters, estimate = self._counters, self.estimate
        self._counters = None
        if counters is None or estimate is None or self.tuning is None:
            return
        if counters.main_thread_s is not None and self.free and self.searching:
            idle = read_machine().idle_s
            estimate.add(
                Moment(counters.at, counters.main_thread_s, idle, look.finished, look.in_flight, look.keys)
            )
        metrics, threads = self.metrics, self.tuning.threads
        capacity, busy = estimate.capacity(self._hungry()), estimate.busy
        if capacity is not None and busy is not None:
            metrics.capacity.labels(self.server).set(capacity * threads)
            metrics.busy.labels(self.server).set(busy * threads)
        knee = self.knee_keys()
        if knee is not None:
            metrics.knee.labels(self.server).set(knee)

    def tell_counters(self, counters: Snapshot) -> None:
        """The watcher looked at the store's own counters."""
        self._counters = counters

    def tell_up(self, up: bool, lives: int) -> None:
        """The watcher looked at the store: whether it answers, and how many lives of it were seen."""
        reborn = up and self.lives and lives > self.lives
        self.up, self.lives = up, lives
        self.metrics.up.labels(self.server).set(up)
        restarting = self.restarting
        if up and restarting and lives > restarting[0]:
            self.restarting = None
        if reborn:
            with self.acting:
                self._begin_growth()

    def act(self, action: str) -> None:
        """Count something that was done."""
        self.metrics.act(self.server, action)

    def knee_keys(self) -> float | None:
        """Where the planned rate takes all that the store can have; None if nothing was calibrated or asked."""
        if self.tuning is None or self.planned <= 0:
            return None
        seen = self.estimate.knee_keys(self.planned, self._hungry()) if self.estimate else None
        if seen is not None:
            return seen
        tuning = self.tuning
        return (
            tuning.keys * tuning.events_per_second / self.planned
            if tuning.keys
            else saturating_keys(tuning.base_share, self.planned, tuning.cost_s)
        )

    # Bounds

    def keep_within_bounds(self) -> None:
        """Once a second: look, steer, and see that all parts do what they were told."""
        look = self.observe()
        with self.acting:
            self._steer(look)
        self._reassert(look)
        restarting = self.restarting
        if restarting and time.monotonic() - restarting[1] > BACK_S:
            self.restarting = None
            self.complaint = f"The store has not come back within {BACK_S:g} seconds."

    def _seen(self, look: Look) -> Seen:
        figures = self.history.figures
        share = (
            self.estimate.share(self.planned, look.keys, self._hungry())
            if self.estimate and self.planned
            else None
        )
        return Seen(time.monotonic(), look.in_flight, figures.finished_per_second, figures.p99_ms, share)

    def _steer(self, look: Look) -> None:
        seen, config = self._seen(look), self.config
        if look.in_flight > config.backlog_pause:
            self._hold_events(True)
        elif look.in_flight < max(1, config.backlog_resume):
            self._hold_events(False)
        wanted = self.planned if self.over else self.steering.events(self.planned, seen)
        if self.paused:
            wanted = 0.0
        if wanted in (0.0, self.planned) or abs(wanted - self.asked) > HEARD * self.planned:
            self.asked = wanted
        self.metrics.events.labels(self.server).set(self.asked)
        if not self.growing or self.over or not self.searching or self.planned <= 0:
            return
        before = self.steering.growth
        growth = self.steering.look(self.planned, wanted, seen)
        if growth is not before:
            self._grow_so(growth, look.keys)

    def _grow_so(self, growth: Growth, keys: int) -> None:
        pace = self.config.keys_per_second
        if growth is Growth.HELD:
            self.target, self._pace = keys, pace
            self.act("edge_held")
        else:
            self.target, self._pace = (
                self.config.keys,
                pace if growth is Growth.ON else max(1.0, pace / SLOWER),
            )
        self._asserted = 0.0

    def _hold_events(self, held: bool) -> None:
        if held != self.paused:
            self.paused = held
            self.metrics.paused.labels(self.server).set(held)
            self.act("pause" if held else "resume")

    def _reassert(self, look: Look) -> None:
        """Ask again for what is not as wanted: a part was restarted, or did not answer."""
        try:
            if self.strategy is not None and look.strategy != self.strategy:
                self._use()
            if look.target_keys != self.target:
                self._fill()
            elif self.target and self.up and not look.filling and look.keys < KEPT_SHARE * self.target:
                # Events have removed some. A pass over all users costs little and adds only what is missing.
                self._fill(restart=True)
            if time.monotonic() - self._asserted > REASSERT_S or self._told != self._rates():
                self._asserted = time.monotonic()
                if self.clients.asked_rates() != self._rates():
                    self.apply_load()
        except StackError as error:
            self.trouble = str(error)

    _told = (0.0, 0.0)

    def _rates(self) -> tuple[float, float]:
        return self.config.reads_per_second if self.awake else 0.0, self.asked if self.awake else 0.0

    def apply_load(self) -> None:
        """Tell Locust the rates that are wanted now, and the metrics what follows from them."""
        rates = self._rates()
        self.clients.locust.load(*rates, self.config.population)
        self._told = rates
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
        self.clients.web.fill(self.target, self._pace, restart)

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
        how = "what is under way goes on as it was begun" if late else "what was under way begins anew"
        return self._pull(f"Strategy is now {strategy}; {how}.", {"storefront": self._use})

    def want(self, strategy: str, late: bool = False) -> None:
        """Note the strategy that is wanted."""
        self.strategy, self.late = strategy, late
        if self.estimate:
            self.estimate.forget()
        self.act(f"strategy_late_{strategy}" if late else f"strategy_{strategy}")
        self.show_phase()

    def grow(self, on: bool) -> tuple[str, list[PartDone]]:
        """Start or stop the growth of keys. Those that are there when it stops are kept."""
        with self.acting:
            self._must_be_free()
            if on:
                self.awake = True
                self.growing = True
                self._begin_growth()
            else:
                self._stop_growth()
        return self._pull(
            "Growth started." if on else "Growth stopped.", {"warmer": self._fill, "load": self.apply_load}
        )

    def _begin_growth(self) -> None:
        self.steering.begin()
        if self.estimate:
            self.estimate.forget()
        if self.growing:
            self.target, self._pace = self.config.keys, self.config.keys_per_second
            self.metrics.growing.labels(self.server).set(True)
            self.act("growth_start")

    def _stop_growth(self) -> None:
        self.growing = False
        self.target, self._pace = self.look.keys if self.look else 0, self.config.keys_per_second
        self.metrics.growing.labels(self.server).set(False)
        self.act("growth_stop")

    def rate(self, events_per_second: float | None) -> tuple[str, list[PartDone]]:
        """Change the event rate; None asks for the calibrated one."""
        with self.acting:
            self._must_be_free()
            if events_per_second is None:
                if self.tuning is None:
                    raise Refused("There is no calibrated rate yet: start the story first.")
                events_per_second = round(self.tuning.events_per_second, 2)
            self.plan(events_per_second)
        return self._pull(f"Event rate is now {events_per_second:g} a second.", {"load": self.apply_load})

    def plan(self, events_per_second: float) -> None:
        """Note the event rate that is wanted."""
        self.awake = self.awake or events_per_second > 0
        self.planned = self.asked = events_per_second
        self.metrics.planned.labels(self.server).set(events_per_second)
        self.act("rate")

    def go_over(self, on: bool) -> tuple[str, list[PartDone]]:
        """Send the scene over its edge: all planned events, all keys, whatever piles up. Or back to the edge."""
        with self.acting:
            self._must_be_free()
            if on and self.planned <= 0:
                raise Refused("No events are asked for: set a rate or start the story first.")
            self.over, self.growing = on, True
            self.act("over_the_edge" if on else "back_to_the_edge")
            if on:
                self._begin_growth()
                self.asked = self.planned
            else:
                self._grow_so(Growth.HELD, self.look.keys if self.look else 0)
                self.steering.growth = Growth.HELD
        said = (
            f"Over the edge: keys grow to {self.config.keys:,}, and all {self.planned:.3g} events a second are sent. "
            f"Events pile up, to {self.config.backlog_pause:,} at the most, and p99 climbs to seconds."
            if on
            else "Back to the edge: as many events as the store can finish, the keys as they are."
        )
        return self._pull(said, {"warmer": self._fill, "load": self.apply_load})

    def restart(self) -> tuple[str, list[PartDone]]:
        """End the store; whatever watches over it starts it again, empty."""
        with self.acting:
            self._must_be_free()
            if self.restarting or not self.up:
                raise Refused("The store is down already.")
            if not self.growing:
                self.target = 0  # otherwise the warmer would bring the keys back
            self.complaint = ""
            self.restarting = self.lives, time.monotonic()
            self.act("restart")
        parts: Parts = {"store": self._shut_down}
        return self._pull("Restarting the store.", parts if self.growing else {"warmer": self._fill, **parts})

    def _shut_down(self) -> str:
        """Until it is done: SHUTDOWN waits in line where there is one, and another thread goes on waiting for it."""
        end = time.monotonic() + BACK_S
        while True:
            try:
                self.clients.store.shutdown()
                return "It ends."
            except StackError as error:
                if self.restarting is None or time.monotonic() > end:
                    self.restarting = None
                    self.complaint = str(error)
                    raise
                time.sleep(0.2)

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
        """Note that nothing is wanted of the scene but what the story will want."""
        with self.acting:
            self.awake, self.planned, self.asked = True, 0.0, 0.0
            self.paused = self.over = self.growing = False
            self.metrics.paused.labels(self.server).set(False)
            self.target, self.strategy, self.late = 0, None, False
            self.follows.begin()
            self.steering.begin()

    def tuned(self, tuning: Tuning) -> None:
        """Take a calibration over."""
        self.tuning = tuning
        self.estimate = Estimate(
            tuning.base_share, tuning.cost_s, tuning.keys or self.config.knee_keys, tuning.threads
        )
        self.metrics.cost.labels(self.server).set(tuning.cost_s)

    def _must_be_free(self) -> None:
        if self.phase in ("absent", "waiting"):
            raise Refused(f"{self.server} is not ready yet.")
        if self.phase == "leased":
            raise Refused("A run of the lab has the scene: this will be possible afterwards.")
        if not self.free:
            raise Refused("The story is beginning: this will be possible in a few seconds.")

    def close(self) -> None:
        """Close all connections. The scene goes on as it is."""
        self.clients.close()


__all__ = ["SEARCHING", "STRATEGIES", "Refused", "Stage"]
