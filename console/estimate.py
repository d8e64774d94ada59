"""The knee, estimated while keys grow: from what a key costs now, and what processor time the server can have.

Calibration (`console.tuning`) measures both before the growth, on a quieter machine: the other server, the storefronts
and the dashboards are not at work yet. So both are corrected by what is observed later, and the knee that the page
shows moves with them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lab.results.knee import PATTERNS_PER_EVENT, cost_of_each, demand, saturating_keys

WINDOW_S = 20.0
"""Length of the window: reading the event counter a second late then changes the cost by no more than 5 %."""
SHORTEST_S = 8.0
UNFINISHED = 0.25
"""If the backlog changed by more than this share of the finished events, too much work is unfinished to find a cost."""


@dataclass(frozen=True)
class Moment:
    """Counters at one moment: of the server (`busy_s`: processor seconds for each of its threads), the machine
    (`idle_s`: core seconds), the invalidator (`finished` events, `in_flight`), and the keys cached. `behind`: the
    server also does other work, such as handling a backlog's queue, so the moment cannot tell what a key costs.
    """

    at: float
    busy_s: float
    idle_s: float
    finished: float
    in_flight: float
    keys: int
    behind: bool = False


class Estimate:
    """Cost and capacity, from the moments of the last `WINDOW_S`. `threads`: how many threads of the server execute
    commands; `base_share`: share of the time that each is busy without events; `cost_s`: seconds per key visited, as
    calibrated at `cost_keys` keys.
    """

    def __init__(self, base_share: float, cost_s: float, cost_keys: int, threads: int = 1) -> None:
        self._base, self._calibrated, self._at_keys = base_share, cost_s, cost_keys
        self._threads = threads
        self._moments: deque[Moment] = deque()
        self._cost: tuple[float, float] | None = None
        self._busy: float | None = None
        self._idle = 0.0

    def add(self, moment: Moment) -> None:
        """Add a moment. If a counter went back, the server or the invalidator was restarted: a new window begins."""
        last = self._moments[-1] if self._moments else None
        if last and (moment.busy_s < last.busy_s or moment.finished < last.finished or moment.at <= last.at):
            self.forget()
        self._moments.append(moment)
        while len(self._moments) > 2 and self._moments[1].at <= moment.at - WINDOW_S:
            self._moments.popleft()
        self._measure()

    def forget(self) -> None:
        """Begin a new window: something was changed. The last results stay until the window is long enough."""
        self._moments.clear()

    def _measure(self) -> None:
        first, last = self._moments[0], self._moments[-1]
        elapsed, finished = last.at - first.at, last.finished - first.finished
        if elapsed < SHORTEST_S:
            return
        self._busy = (last.busy_s - first.busy_s) / elapsed
        self._idle = max(0.0, last.idle_s - first.idle_s) / elapsed
        if finished <= 0 or any(moment.behind for moment in self._moments):
            return
        if abs(last.in_flight - first.in_flight) > UNFINISHED * finished:
            return
        keys = sum(moment.keys for moment in self._moments) / len(self._moments)
        visited = PATTERNS_PER_EVENT * finished * keys
        if visited <= 0:
            return
        found = cost_of_each(last.busy_s - first.busy_s, self._base, elapsed, visited)
        if found > 0:
            self._cost = found, keys

    @property
    def busy(self) -> float | None:
        """Cores that each of the server's threads used over the last whole window; None before the first one."""
        return self._busy

    @property
    def used_cores(self) -> float:
        """Cores that the server uses; 0 while that is unknown."""
        return (self.busy or 0.0) * self._threads

    def capacity(self, hungry: int = 1, others_cores: float = 0.0) -> float | None:
        """Cores that each of the server's threads can have: its fair share, or what it uses already if that is more.

        At most 1; None while unknown. `hungry` servers, this one included, want all they can get: they share evenly
        what they use now and what is idle. `others_cores`: cores that the other hungry servers use now.
        """
        busy = self.busy
        if busy is None:
            return None
        fair = (self.used_cores + others_cores + self._idle) / max(1, hungry)
        return min(1.0, max(busy, fair / self._threads))

    @property
    def cost_s(self) -> float:
        """Seconds per key visited at the calibrated number of keys.

        A key costs more in a larger keyspace, so a cost found at fewer keys counts for less: it is weighted by the
        square of their share. Up to a third of the way the calibrated cost hardly changes.
        """
        if self._cost is None:
            return self._calibrated
        found, keys = self._cost
        weight = min(1.0, keys / self._at_keys) ** 2
        return self._calibrated + (found - self._calibrated) * weight

    def knee_keys(self, events_per_second: float, capacity: float | None) -> float | None:
        """Keys at which that rate of events takes the whole capacity; None while that is unknown."""
        if capacity is None or events_per_second <= 0:
            return None
        return saturating_keys(self._base, events_per_second, self.cost_s, capacity)

    def share(self, events_per_second: float, keys: float, capacity: float | None) -> float | None:
        """Demand of that rate of events at that number of keys, as a share of the capacity; None while unknown."""
        if not capacity:
            return None
        return demand(self._base, events_per_second, keys, self.cost_s) / capacity
