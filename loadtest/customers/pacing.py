"""A schedule shared by many users: turns come evenly spaced, whichever user takes one."""

from __future__ import annotations

import math
from collections import deque
from time import monotonic

from gevent import sleep  # type: ignore[import-untyped] # no type information in the package
from gevent.event import Event  # type: ignore[import-untyped] # the same


class Pace:
    """Hands out turns at a rate that can change at any time; a user's `wait_time` waits for its next turn.

    Locust's own `constant_throughput` gives each user a rhythm of its own: the phases are random and the sum
    is lumpy. Here the sum is even, however many users share it.

    At overload, when no user is free for a turn, the turn is owed and the next free user takes it at once. At
    most a second's worth of turns is owed; further ones are `missed`. So the arrivals are an open loop as long as there
    are users to spare, and `missed` shows when that was no longer true. `due` counts all turns, taken or not: if they
    are fewer than the rate asks for, this process itself was too late.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._last = monotonic()  # when the last turn was due
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

    def begin(self) -> None:
        """Called when a test starts: forget what was owed. Turns come as soon as the first user asks for one."""
        self._open = False
        self._owed = 0
        self._last = monotonic()
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
        while True:
            self._changed.clear()
            per_second = self._per_second if self._open else 0.0
            if per_second <= 0:
                self._changed.wait()
                self._last = monotonic()
                continue
            due = self._last + 1 / per_second
            delay = due - monotonic()
            if delay <= 0:
                sleep(0)
            elif self._changed.wait(timeout=delay):
                before = 1 / max(self._per_second, per_second)
                self._last = max(self._last, monotonic() - before)
                continue
            self._give_turn(per_second)
            self._last = due

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
