"""One schedule shared by many users: turns come evenly spaced, whichever user takes one."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from time import monotonic

from gevent import sleep  # type: ignore[import-untyped] # no type information in the package
from gevent.event import Event  # type: ignore[import-untyped] # the same


@dataclass(frozen=True)
class Slot:
    """One process's part of a schedule that several share: every `of`-th turn, beginning with number `index`.

    Turn number k of the whole is due at `origin` + k / rate, by this process's monotonic clock: the processes need not
    talk to each other for their turns to interleave. `of` 0 means no part at all.
    """

    index: int
    of: int
    origin: float

    def after(self, last: float, per_second: float) -> float:
        """The moment of this slot's first turn after `last`. `per_second` is the rate of the whole."""
        period = self.of / per_second
        first = self.origin + self.index / per_second
        # `last` may be a turn of this grid: the added quarter keeps rounding errors from repeating that turn.
        turn = math.floor((last - first) / period + 0.25) + 1
        return turn * period + first


class Pace:
    """Hands out turns at a rate that can change at any time; a user's `wait_time` waits for its next turn.

    Locust's own `constant_throughput` gives each user a rhythm of its own: the phases are random and the sum
    is lumpy. Here the sum is even, however many users share it.

    At overload, when no user is free for a turn, the turn is owed and the next free user takes it at once. At
    most a second's worth of turns is owed; further ones are `missed`. So the arrivals are an open loop as long as there
    are users to spare, and `missed` shows when that was no longer true. `due` counts all turns, taken or not: if they
    are fewer than the rate asks for, this process itself was too late.

    With a `slot` this process gives only its part of the turns; `per_second` is still the rate of the whole. With a
    lease (`renew`) it gives turns only until that ends: from then on another process may give them.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._slot: Slot | None = None
        self._since = self._until = math.inf
        self._afresh = False
        self._open = False
        self._owed = 0
        self._free_users: deque[Event] = deque()
        self._changed = Event()
        self.missed = 0
        self.due = 0

    @property
    def per_second(self) -> float:
        """Turns per second; 0 means none. A new rate counts from the last turn on: no pause, no burst.

        Owed turns that are more than a second's worth of the new rate are missed.
        """
        return self._per_second

    @per_second.setter
    def per_second(self, value: float) -> None:
        if value != self._per_second:
            self._per_second = value
            owed = min(self._owed, math.ceil(value))
            self._owed, self.missed = owed, self.missed + self._owed - owed
            self._changed.set()

    @property
    def slot(self) -> Slot | None:
        """The part of the turns that this process gives; None means all."""
        return self._slot

    @slot.setter
    def slot(self, value: Slot | None) -> None:
        if value != self._slot:
            self._slot = value
            self._changed.set()

    def renew(self, since: float, until: float, afresh: bool) -> None:
        """Give turns from `since` on, which may be a moment ago, until then; by the monotonic clock, in s.

        Turns that were held since the last lease ended are given at once; `afresh` forgets them, because others have
        given them.
        """
        ended = monotonic() > self._until
        self._since, self._until, self._afresh = since, until, self._afresh or afresh
        if ended or afresh:
            self._changed.set()

    def owe(self, turns: int) -> None:
        """Give so many turns more, at once: those of a process that is gone."""
        for _ in range(turns):
            self._give_turn(self._per_second)

    def begin(self) -> None:
        """Called when a test starts: forget what was owed. Turns come as soon as the first user asks for one."""
        self._open = False
        self._owed = 0
        self._changed.set()

    def next_turn(self) -> float:
        """Wait until it is this user's turn. Returns 0, so that it can be a user's `wait_time`."""
        if not self._open:
            self._open = True
            self._changed.set()
        if self._owed:
            self._owed -= 1
            return 0.0
        turn = Event()
        self._free_users.append(turn)
        try:
            turn.wait()
        except BaseException:  # the user is stopped while it waits
            if turn.is_set():  # and its turn came at the same moment: it is another's
                self._hand_on()
            else:
                self._free_users.remove(turn)
            raise
        return 0.0

    def run(self) -> None:
        """Hand out turns for ever; to be run in a greenlet."""
        last = monotonic()
        while True:
            self._changed.clear()
            if self._afresh:
                self._afresh, last = False, min(self._since, monotonic())
            slot, whole = self._slot, self._per_second if self._open else 0.0
            per_second = whole if slot is None else whole / slot.of if slot.of else 0.0
            if per_second <= 0:
                self._changed.wait()
                last = min(self._since, monotonic())
                continue
            due = last + 1 / per_second if slot is None else slot.after(last, whole)
            delay = due - monotonic()
            if delay <= 0:
                sleep(0)
            elif self._changed.wait(timeout=delay):
                # Without a slot the next turn follows from the last one. With one it follows from the clock: a quarter
                # of a period ago is before the turn that is due next, and after the one that was given last.
                of = max(1, self._slot.of) if self._slot else 1
                period = 1 / max(self._per_second / of, per_second)
                last = max(last, monotonic() - (period / 4 if self._slot else period))
                continue
            if monotonic() > self._until:  # also when this process stood still past the end of its lease
                self._changed.wait()
                continue
            self._give_turn(per_second)
            last = due

    def _hand_on(self) -> None:
        if self._free_users:
            self._free_users.popleft().set()
        else:
            self._owed += 1

    def _give_turn(self, per_second: float) -> None:
        self.due += 1
        if self._free_users:
            self._free_users.popleft().set()
        elif self._owed < max(1.0, per_second):
            self._owed += 1
        else:
            self.missed += 1
