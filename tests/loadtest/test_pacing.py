"""The shared schedule, without Locust, on a clock that the tests turn: simulated seconds pass at once, and exactly."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import gevent  # type: ignore[import-untyped] # no type information in the package
import pytest
from gevent.event import Event  # type: ignore[import-untyped] # the same

from loadtest.customers import pacing
from loadtest.customers.pacing import Pace


class Clock:
    """Time for greenlets: it stands still while any of them can run, then jumps to the next alarm."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._alarms: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()

    def alarm(self, seconds: float) -> Event:
        """An event that is set `seconds` from now."""
        event = Event()
        heapq.heappush(self._alarms, (self.now + seconds, next(self._numbers), event))
        return event

    def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this clock, in a greenlet."""
        self.alarm(seconds).wait()

    def turn(self, seconds: float) -> None:
        """Move the clock by `seconds`, in the test; all greenlets run that are due."""
        end = self.now + seconds
        while True:
            for _ in range(20):  # one greenlet wakes the next: let the whole chain run
                gevent.sleep(0)
            if not self._alarms or self._alarms[0][0] > end:
                break
            at, _, event = heapq.heappop(self._alarms)
            self.now = max(self.now, at)
            event.set()
        self.now = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that replaces a pace's monotonic time and timeouts."""
    clock = Clock()

    class Waiting(Event):  # type: ignore[misc] # the same
        """An event whose timeout is measured by the clock."""

        def wait(self, timeout: float | None = None) -> bool:
            gevent.wait([self] if timeout is None else [self, clock.alarm(timeout)], count=1)
            return bool(self.is_set())

    monkeypatch.setattr(pacing, "monotonic", lambda: clock.now)
    monkeypatch.setattr(pacing, "Event", Waiting)
    return clock


class Crowd:
    """Users that record the time of each of their turns and are then busy for a while."""

    def __init__(self, clock: Clock, pace: Pace, size: int, busy_seconds: float) -> None:
        self.turns: list[float] = []
        self._clock = clock
        self._pace = pace
        self._busy_seconds = busy_seconds
        self.greenlets = [gevent.spawn(self._live) for _ in range(size)]

    def _live(self) -> None:
        while True:
            self._pace.next_turn()
            self.turns.append(self._clock.now)
            if self._busy_seconds:
                self._clock.sleep(self._busy_seconds)


@pytest.fixture
def crowd(clock: Clock) -> Iterator[Callable[..., Crowd]]:
    """Return a function that makes a crowd and runs its pace; all end with the test."""
    crowds: list[Crowd] = []
    running: dict[int, gevent.Greenlet] = {}

    def gather(pace: Pace, size: int, busy_seconds: float = 0.0) -> Crowd:
        if id(pace) not in running:
            running[id(pace)] = gevent.spawn(pace.run)
        crowds.append(Crowd(clock, pace, size, busy_seconds))
        return crowds[-1]

    yield gather
    gevent.killall([*running.values(), *(greenlet for each in crowds for greenlet in each.greenlets)])


def gaps(turns: list[float]) -> list[float]:
    """The times between turns, ascending."""
    return sorted(later - earlier for earlier, later in itertools.pairwise(turns))


@pytest.mark.parametrize("size", [1, 7, 60])
def test_the_rate_is_that_of_the_crowd(clock: Clock, crowd: Callable[..., Crowd], size: int) -> None:
    """However many users share a pace, together they get its rate, at even distances."""
    people = crowd(Pace(50), size)
    clock.turn(1)
    between = gaps(people.turns)
    assert (len(people.turns) - 1) / (people.turns[-1] - people.turns[0]) == pytest.approx(50)
    assert between == pytest.approx([1 / 50] * len(between))


def test_a_new_rate_holds_at_once(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """From a slow rate to a fast one there is neither a wait for the slow turn nor a burst; at 0 no turn comes."""
    pace = Pace(0.01)
    people = crowd(pace, 5)
    clock.turn(0.2)
    assert people.turns == []
    pace.per_second = 40
    clock.turn(1)
    assert len(people.turns) == pytest.approx(40, abs=1)
    pace.per_second = 0
    clock.turn(0.1)
    so_far = len(people.turns)
    clock.turn(0.3)
    assert len(people.turns) == so_far


def test_what_is_owed_is_bounded_and_the_rest_is_missed(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """While all users are busy, at most one second's turns are owed; the others are counted as missed."""
    pace = Pace(100)
    people = crowd(pace, 1, busy_seconds=60)
    clock.turn(2)
    assert len(people.turns) == 1
    assert pace.missed == pytest.approx(99, abs=1)
    helpers = crowd(pace, 30)
    clock.turn(0.02)
    assert len(helpers.turns) == pytest.approx(102, abs=1)


def test_the_owed_turns_are_taken_by_the_user_who_is_free_first(
    clock: Clock, crowd: Callable[..., Crowd]
) -> None:
    """After a stall shorter than a second no turn is lost: free users take the owed turns."""
    pace = Pace(100)
    began = clock.now
    people = crowd(pace, 3, busy_seconds=0.3)
    clock.turn(0.9)
    helpers = crowd(pace, 40)
    clock.turn(0.6)
    together = len(people.turns) + len(helpers.turns)
    assert pace.missed == 0
    assert together == pytest.approx(100 * (clock.now - began), abs=1)


def test_a_user_who_leaves_takes_no_turn_along(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """A user that is stopped while waiting leaves the queue: the next turn goes to a user that is there."""
    pace = Pace(0)
    leaving = [gevent.spawn(pace.next_turn) for _ in range(5)]
    clock.turn(0.01)
    gevent.killall(leaving)
    people = crowd(pace, 1)
    clock.turn(0.01)
    pace.per_second = 50
    clock.turn(0.5)
    assert len(people.turns) == pytest.approx(25, abs=1)


def test_no_turns_before_the_first_user_and_none_owed_from_the_last_test(
    clock: Clock, crowd: Callable[..., Crowd]
) -> None:
    """A test starts with an even rhythm, not with a burst of turns that came due while there were no users."""
    pace = Pace(100)
    crowd(pace, 0)
    clock.turn(0.5)
    first = crowd(pace, 1, busy_seconds=60)
    clock.turn(0.5)
    assert len(first.turns) == 1
    pace.begin()
    clock.turn(0.2)
    people = crowd(pace, 10)
    clock.turn(0.3)
    assert len(people.turns) == pytest.approx(30, abs=1)
    assert pace.missed == 0


def test_a_lower_rate_takes_owed_turns_back(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """After the rate was set to 0 no turn comes, whatever is owed; at a lower rate no more than a second's worth."""
    pace = Pace(100)
    crowd(pace, 1, busy_seconds=60.0)
    clock.turn(0.5)
    pace.per_second = 0
    late = crowd(pace, 30)
    clock.turn(5.0)
    assert late.turns == []
    assert pace.missed > 40
    pace.per_second = 100
    clock.turn(1.0)
    assert len(late.turns) == pytest.approx(100, abs=2)
