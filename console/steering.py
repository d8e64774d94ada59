"""Steering: keys grow until the incident is plain to see, and then the scene is held there, on any machine.

Past the knee a backlog grows without end. Before the knee, a server whose searches let other clients in between
(Dragonfly's) shows too little of the incident. So the scene is held where the incident is plain and still bounded, by
three loops, each slower than the one before it:

1. The *event rate*, every second: the rate at which events were finished lately, plus a fifth of what the backlog lacks
   of the aim, but never above the ceiling (loop 2). Below the knee the backlog stays small, and the planned rate is
   sent.
2. The *aim*, every ten seconds or sooner: raised while p99 is not plainly above the healthy one, lowered while it is
   far above. The *ceiling*, the most events that are sent, is moved instead in three cases: it is lowered if p99 is far
   above even with the smallest aim, raised again once p99 is not plainly above any more, and raised beyond the plan if
   no backlog builds up near the edge.
3. The *keys*: they stop growing when not all planned events can be sent, or when the server is near its limit and p99
   is plainly above the healthy one. Near the limit they grow slowly.

No method reads a clock or asks a server: each is told what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PROMISED, PLAIN = 10.0, 15.0
"""Multiples of the healthy p99: the promised one, which is plain to see, and the one that steering aims at."""
FADING = 12.0
FAR = 40.0
EDGE_SHARE = 0.92
"""Demand over capacity at which the server counts as being at its limit."""
TRIMMED = 0.9
"""A server also counts as being at its limit if less than this share of the planned events is sent to it ..."""
TRIMMED_S = 5.0
"""... for this time, seconds: a shorter shortfall is a hiccup of the machine."""
EARLY_S = 15.0
"""The same where the demand is below `EDGE_SHARE`: a server that stood still for some seconds, because the machine did,
works off its backlog for some seconds more. A server that is at its limit all the same, because a key costs more than
was estimated, is found after this time."""
NEAR_S = 8.0
"""Seconds at `EDGE_SHARE` or above before it counts: another program may have taken the machine for a moment."""
FAR_SHARE = 0.7
"""Demand over capacity below which held keys grow again, whatever the p99: the machine has become quieter."""
FIRST_AIM, LEAST_AIM = 4.0, 1.0
LEAST_CEILING, MOST_CEILING = 0.7, 1.3
"""Bounds of the ceiling, as shares of the planned events. The lower one: a server that blocks is far beyond plain at
its limit, and still plain well below it. The upper one: near the edge a machine that is fast enough gets more events
than planned, because events work at once and keys only after minutes."""
SETTLE_S = 5.0
AIM_EVERY_S, SOON_S = 10.0, 6.0
STEP, LONG_STEP = 1.5, 2.0
"""Factors by which the aim is raised. The larger one holds, and the shorter `SOON_S`, while p99 is below `PROMISED`."""
REACHED = 0.7
"""The aim is raised only when the backlog has reached this share of it: only then its effect on p99 is seen."""
FADED_S = 20.0


@dataclass(frozen=True)
class Seen:
    """What was seen at the moment `at` (s). `share` is the demand of the planned events over the server's capacity."""

    at: float
    in_flight: float
    finished_per_second: float | None
    p99_ms: float | None
    share: float | None


class Growth(Enum):
    """How keys are to grow."""

    ON = "on"
    SLOWLY = "slowly"
    HELD = "held"


class Steering:
    """The loops of one server. `healthy_ms` is the p99 before the growth; `most_backlog` bounds the aim."""

    def __init__(self, most_backlog: float) -> None:
        self._most = max(LEAST_AIM, most_backlog)
        self.healthy_ms: float | None = None
        self.begin()

    def begin(self) -> None:
        """Forget where the edge was: keys grow from here on."""
        self.aim = min(FIRST_AIM, self._most)
        self.ceiling = 1.0
        self.growth = Growth.ON
        self.trimmed = False
        self._since: dict[str, float] = {}
        self._aimed_at = float("-inf")

    def events(self, planned: float, seen: Seen) -> float:
        """The event rate to ask for now: `planned` times the ceiling, or less as the backlog nears the aim."""
        most = planned * self.ceiling
        if seen.in_flight <= self.aim / 2 or seen.finished_per_second is None:
            return most
        wanted = seen.finished_per_second + (self.aim - seen.in_flight) / SETTLE_S
        return min(most, max(0.0, wanted))

    def steer(self, planned: float, asked: float, seen: Seen) -> Growth:
        """Once a second, while events search the keyspace: move the aim, and return how keys are to grow."""
        at, share = seen.at, seen.share
        early = share is not None and share < EDGE_SHARE
        shortfall = asked < TRIMMED * planned
        self.trimmed = trimmed = self._lasts("trimmed", shortfall, at, EARLY_S if early else TRIMMED_S)
        near = self._lasts("near", share is not None and share >= EDGE_SHARE, at, NEAR_S)
        far = self._lasts("far", share is not None and share < FAR_SHARE and not trimmed, at, FADED_S)
        if not seen.p99_ms or not self.healthy_ms:
            return self.growth
        times = seen.p99_ms / self.healthy_ms
        near_edge = trimmed or self.growth is not Growth.ON
        self._move_aim(times, near_edge, seen.in_flight, at)
        if self.growth is not Growth.HELD:
            if trimmed or (times >= PLAIN and (near or self.growth is Growth.SLOWLY)):
                self.growth = Growth.HELD  # if trimmed, more backlog makes it plain, without more keys
            elif near:
                self.growth = Growth.SLOWLY
        elif far:
            self.growth = Growth.ON
        else:
            # Plain already, or soon: the aim or the ceiling can still rise.
            plain = times >= FADING or self.ceiling < MOST_CEILING or (trimmed and self.aim < self._most)
            if self._lasts("faded", not plain, at, FADED_S):
                self.growth = Growth.SLOWLY
        return self.growth

    def _lasts(self, what: str, so: bool, at: float, seconds: float) -> bool:
        """True if the condition named `what` has held for `seconds`; `so`: whether it holds now."""
        if not so:
            self._since.pop(what, None)
            return False
        return at - self._since.setdefault(what, at) >= seconds

    def _move_aim(self, times: float, near_edge: bool, in_flight: float, at: float) -> None:
        faint, reached = times < PROMISED, in_flight >= REACHED * self.aim
        if at - self._aimed_at < (SOON_S if faint else AIM_EVERY_S):
            return
        if times < PLAIN and self.ceiling < 1.0:
            self.ceiling = min(1.0, self.ceiling / 0.9)
        elif times < PLAIN and near_edge and reached:
            self.aim = min(self._most, self.aim * (LONG_STEP if faint else STEP))
        elif times < PLAIN and near_edge and self.ceiling < MOST_CEILING:
            self.ceiling = min(MOST_CEILING, self.ceiling * 1.1)
        elif times > FAR and self.aim > LEAST_AIM:
            self.aim = max(LEAST_AIM, self.aim / 2)
        elif times > FAR and self.growth is Growth.HELD:
            self.ceiling = max(LEAST_CEILING, self.ceiling * 0.9)
        else:
            return
        self._aimed_at = at
