"""One server of the scene as the control page knows it: what was seen, what is wanted, and the actions.

Bounds that hold whoever acts: keys stop at their target and are kept there (each event removes its user's
entries); when too many events are in flight no new ones are sent until the backlog is gone, because beyond the knee
it would grow for ever.
"""

from __future__ import annotations

import threading
import time

from lab.control.clients import Clients, Look
from lab.control.config import Config, ServerAddresses
from lab.control.history import History
from lab.control.metrics import ControlMetrics
from lab.control.tuning import Tuning
from lab.errors import StackError
from lab.knee import saturating_keys

STRATEGIES = ("scan", "keys", "exact", "index", "index-naive", "hash", "generation", "ttl")
REASSERT_S = 5.0
BACK_S = 60.0
KEPT_SHARE = 0.97
"""Keys are filled up again when fewer than this share of the target are left."""


class Refused(Exception):
    """An action that cannot be done at present; the message says why, in a sentence."""


class Stage:
    """State and actions of one server. `acting` is held while something is changed.

    `phase` is ``absent`` (its host name does not resolve), ``waiting`` (not ready yet), ``queued``,
    ``calibrating``, ``emptying`` or ``retrying`` (the story), ``leased`` (to a run of the lab), or ``running``.
    """

    def __init__(self, addresses: ServerAddresses, config: Config, metrics: ControlMetrics) -> None:
        self.server = addresses.name
        self.config, self.metrics = config, metrics
        self.clients = Clients(addresses, config)
        self.acting = threading.RLock()
        self.phase = "absent"
        self.product = ""
        self.history = History()
        self.look: Look | None = None
        self.trouble = ""
        self.complaint = ""
        self.awake = False
        self.asked = 0.0
        self.paused = False
        self.growing = False
        self.target = 0
        self.tuning: Tuning | None = None
        self.up, self.lives = False, 0
        self.restarting: tuple[int, float] | None = None
        self._asserted = 0.0

    @property
    def free(self) -> bool:
        """Whether people's actions are taken now."""
        return self.phase == "running"

    def observe(self) -> Look:
        """Look at everything and remember it. Raises `StackError`."""
        look = self.clients.look()
        self.look, self.trouble = look, ""
        self.history.add(time.monotonic(), look)
        self.metrics.keys.labels(self.server).set(look.keys)
        self.metrics.in_flight.labels(self.server).set(look.in_flight)
        return look

    def tell_up(self, up: bool, lives: int) -> None:
        """The watcher looked at the store: whether it answers, and how many lives of it were seen."""
        self.up, self.lives = up, lives
        self.metrics.up.labels(self.server).set(up)
        restarting = self.restarting
        if up and restarting and lives > restarting[0]:
            self.restarting = None

    def act(self, action: str) -> None:
        """Count something that was done."""
        self.metrics.act(self.server, action)

    # Bounds

    def keep_within_bounds(self) -> None:
        """Once a second: look, bound the backlog, keep the keys, and see that Locust does what it was told."""
        look = self.observe()
        with self.acting:
            if not self.paused and look.in_flight > self.config.backlog_pause:
                self._hold_events(True)
            elif self.paused and look.in_flight < max(1, self.config.backlog_resume):
                self._hold_events(False)
            if self.target and self.up and not look.filling and look.keys < KEPT_SHARE * self.target:
                # Events have removed some. A pass over all users costs little and adds only what is missing.
                self.clients.web.fill(self.target, self.config.keys_per_second, restart=True)
            if time.monotonic() - self._asserted > REASSERT_S:
                self._reassert()
        restarting = self.restarting
        if restarting and time.monotonic() - restarting[1] > BACK_S:
            self.restarting = None
            self.complaint = f"The store has not come back within {BACK_S:g} seconds."

    def _hold_events(self, held: bool) -> None:
        self.paused = held
        self.metrics.paused.labels(self.server).set(held)
        self.act("pause" if held else "resume")
        self.apply_load()

    def _reassert(self) -> None:
        """Locust may have been restarted, and then knows no rate."""
        self._asserted = time.monotonic()
        if self.clients.asked_rates() != self._rates():
            self.apply_load()

    def _rates(self) -> tuple[float, float]:
        return self.config.reads_per_second if self.awake else 0.0, 0.0 if self.paused else self.asked

    def apply_load(self) -> None:
        """Tell Locust the rates that are wanted now, and the metrics what follows from them."""
        reads, events = self._rates()
        self.clients.locust.load(reads, events, self.config.population)
        self._asserted = time.monotonic()
        self.metrics.events.labels(self.server).set(events)
        knee = self.knee_keys()
        if knee is not None:
            self.metrics.knee.labels(self.server).set(knee)

    def knee_keys(self) -> float | None:
        """Where the asked rate saturates the server; None if nothing was calibrated or asked."""
        if self.tuning is None or self.asked <= 0:
            return None
        return saturating_keys(self.tuning.base_share, self.asked, self.tuning.cost_s)

    # Actions: each says in a sentence what was done, and raises `Refused`, or `StackError` when the scene fails

    def switch(self, strategy: str) -> str:
        """Change the invalidation strategy."""
        with self.acting:
            self._must_be_free()
            self.clients.web.use(strategy, self.config.scan_count)
            self.act(f"strategy_{strategy}")
            self.look = self.clients.look()
            return f"Strategy is now {strategy}."

    def grow(self, on: bool) -> str:
        """Start or stop the growth of keys. Those that are there when it stops are kept."""
        with self.acting:
            self._must_be_free()
            self._aim(self.config.keys if on else self.clients.look().keys, on)
            if on and not self.awake:
                self.awake = True
                self.apply_load()
            return "Growth started." if on else "Growth stopped."

    def _aim(self, keys: int, growing: bool) -> None:
        self.clients.web.fill(keys, self.config.keys_per_second)
        self.target, self.growing = keys, growing
        self.metrics.growing.labels(self.server).set(growing)
        self.act("growth_start" if growing else "growth_stop")

    def rate(self, events_per_second: float | None) -> str:
        """Change the event rate; None asks for the calibrated one."""
        with self.acting:
            self._must_be_free()
            if events_per_second is None:
                if self.tuning is None:
                    raise Refused("There is no calibrated rate yet: start the story first.")
                events_per_second = round(self.tuning.events_per_second, 2)
            self.awake = self.awake or events_per_second > 0
            self.asked = events_per_second
            self.apply_load()
            self.act("rate")
            return f"Event rate is now {events_per_second:g} a second."

    def restart(self) -> str:
        """End the store; whatever watches over it starts it again, empty."""
        with self.acting:
            self._must_be_free()
            if self.restarting or not self.up:
                raise Refused("The store is down already.")
            if not self.growing:
                self.clients.web.fill(0)  # otherwise the warmer would bring the keys back
                self.target = 0
            self.complaint = ""
            self.restarting = self.lives, time.monotonic()
            self.act("restart")
        threading.Thread(target=self._shut_down, name=f"restart-{self.server}", daemon=True).start()
        return "Restarting the store."

    def _shut_down(self) -> None:
        try:
            self.clients.store.shutdown()  # waits in line where there is one
        except StackError as error:
            self.restarting = None
            self.complaint = str(error)

    def rest(self) -> None:
        """No events, no reads, no growth; the keys that are there are kept."""
        with self.acting:
            self.awake, self.asked = False, 0.0
            if self.paused:
                self._hold_events(False)
            self.apply_load()
            self.act("rate")
            self._aim(self.clients.look().keys, False)

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
