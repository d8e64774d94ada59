"""Which worker gives which turns of the one schedule, from moment to moment: the arithmetic of `team`, without Locust.

A share is a lease of `LEASE_S`, counted from the moment when the master sent it. A worker that was cut off, or stood
still, gives no turn after that. The master gives the share of a worker that did not answer for that long to the others,
and they make good at once what the lost worker has not given since its last answer. So no turn is late by more than
about the lease, and none is given twice, except for what cannot be known: what a worker did after its last answer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

TELL_EVERY_S = 0.25
LEASE_S = 1.0
COMPARED = 20
"""A worker compares its clock with the master's by the quickest of so many messages: those of five seconds."""
SAME_S = 0.001
"""A comparison that differs by less from the last one moves no turn."""


@dataclass(frozen=True)
class Share:
    """A worker's part of one kind of turn: every `of`-th one, beginning with number `index`, and `owed` turns at once.
    `of` 0 means no part."""

    index: int = 0
    of: int = 0
    owed: int = 0


class Shares:
    """The master's side. Times are in s, by the master's monotonic clock."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}  # worker → when the last message was sent that it answered
        self._losses: Counter[str] = Counter()
        self._giving: dict[str, Sequence[str]] = {}  # kind of turn → the workers that give it
        self._owed: dict[str, float] = {}  # kind of turn → turns that lost workers did not give

    def heard(self, worker: str, sent: float) -> None:
        """Note that a worker answered the message of that moment."""
        self._heard[worker] = max(sent, self._heard.get(worker, sent))

    def excuse(self, late_s: float) -> None:
        """Count that much silence for nothing: the master itself stood still, and read no answers."""
        for worker in self._heard:
            self._heard[worker] += late_s

    def answers(self, worker: str, now: float) -> bool:
        """True if a worker answered a message whose lease has not ended."""
        sent = self._heard.get(worker)
        return sent is not None and now - sent < LEASE_S

    def losses(self, worker: str) -> int:
        """How often a worker's turns went to others. A worker that finds this changed forgets the turns it held."""
        return self._losses[worker]

    def lose(self, present: Set[str], rates: Mapping[str, float], now: float) -> set[str]:
        """The workers that gave turns and are not among those that answer. What they did not give is owed from now on.

        `rates`: turns of each kind a second, of the whole.
        """
        lost = {worker for giving in self._giving.values() for worker in giving} - present
        for worker in lost:
            self._losses[worker] += 1
            # When it died is not known: between its last answer and the next, so the middle is taken.
            silent_s = max(0.0, now - self._heard[worker] - TELL_EVERY_S / 2)
            for kind, giving in self._giving.items():
                if worker in giving:
                    self._owed[kind] = self._owed.get(kind, 0.0) + silent_s * rates[kind] / len(giving)
        return lost

    def deal(
        self, able: Mapping[str, Sequence[str]], rates: Mapping[str, float]
    ) -> dict[str, dict[str, Share]]:
        """Share the turns out anew: kind of turn → worker → share. `able`: the workers that can give each kind."""
        self._giving = dict(able)
        return {kind: self._among(workers, kind, rates[kind]) for kind, workers in able.items()}

    def _among(self, workers: Sequence[str], kind: str, rate: float) -> dict[str, Share]:
        """Each worker's share. As in `Pace`, at most a second's worth of turns is owed."""
        owed = min(self._owed.get(kind, 0.0), rate)
        whole = int(owed) if workers else 0
        self._owed[kind] = owed - whole
        return {
            worker: Share(index, len(workers), (whole + index) // len(workers))
            for index, worker in enumerate(workers)
        }


class MastersClock:
    """A worker's side: its monotonic clock against the master's, by messages that come at different speeds.

    The clocks need not agree, in anything but their speed. The quickest message tells the difference best, and makes it
    too large by no more than the time for which that message was under way.
    """

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=COMPARED)
        self._steady = 0.0

    def compare(self, here: float, there: float) -> float:
        """This clock minus the master's, in s, after one more message, which was sent `there` and came `here`."""
        self._differences.append(here - there)
        return min(self._differences)

    def steady(self) -> float:
        """The same, but unchanged while it differs by less than `SAME_S`: what turns are timed by."""
        ahead = min(self._differences)
        if abs(ahead - self._steady) >= SAME_S:
            self._steady = ahead
        return self._steady
