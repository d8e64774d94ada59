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

    A process that shares the schedule with others takes a slot of it for a while at a time (`take`), and gives only
    its part of the turns; `per_second` is still the rate of the whole.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._slot: Slot | None = None
        self._until = math.inf
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

    def take(
        self, slot: Slot, per_second: float, since: float, until: float, *, afresh: bool = False
    ) -> None:
        """Give this slot's turns of that schedule from `since`, which may be a moment ago, until `until`.

        Both are in s, by the monotonic clock. Turns of the slot before, up to `since`, are given at once if they were
        not yet, also those that were held after its end; `afresh` forgets them, because others have given them.
        """
        old, held = self._slot, monotonic() > self._until
        moved = old is None or (slot.index, slot.of) != (old.index, old.of) or per_second != self._per_second
        if moved and not afresh:
            self._catch_up(since)
        self._slot, self.per_second, self._until = slot, per_second, until
        if (moved or afresh) and slot.of and per_second:
            # A quarter of a period earlier is before the first turn after `since`, and after the one before it.
            self._last = max(self._last, since - slot.of / per_second / 4)
        if moved or afresh or held or slot != old:
            self._changed.set()

    def owe(self, turns: int) -> None:
        """Give so many turns more, at once: those of a process that is gone."""
        for _ in range(turns):
            self._give_turn(self._per_second)

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
            slot, whole = self._slot, self._per_second if self._open else 0.0
            per_second = whole if slot is None else whole / slot.of if slot.of else 0.0
            if per_second <= 0:
                self._changed.wait()
                if self._slot is None:
                    self._last = monotonic()
                continue
            due = self._last + 1 / per_second if slot is None else slot.after(self._last, whole)
            delay = due - monotonic()
            if delay <= 0:
                sleep(0)
                if slot is not None and self._changed.is_set():  # `take` may have given this turn
                    continue
            elif self._changed.wait(timeout=delay):
                if self._slot is None:
                    before = 1 / max(self._per_second, per_second)
                    self._last = max(self._last, monotonic() - before)
                continue
            if monotonic() > self._until:  # also when this process stood still past the end
                self._changed.wait()
                continue
            self._give_turn(per_second)
            self._last = due

    def _catch_up(self, moment: float) -> None:
        """Give the turns of the slot that were due by then."""
        slot, rate = self._slot, self._per_second if self._open else 0.0
        if slot is None or not slot.of or not rate:
            return
        while (due := slot.after(self._last, rate)) <= moment:
            self._give_turn(rate / slot.of)
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
