"""The shared schedule, without Locust, on a clock that the tests turn: simulated seconds pass at once, and exactly."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator

import gevent  # type: ignore[import-untyped] # no type information in the package
import pytest
from gevent.event import Event  # type: ignore[import-untyped] # the same

from loadtest.customers import pacing
from loadtest.customers.pacing import Pace, Slot


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


@pytest.mark.parametrize("of", [1, 2, 3, 7])
@pytest.mark.parametrize("per_second", [0.3, 10, 137, 10_000])
def test_slots_interleave_to_the_schedule_of_the_whole(clock: Clock, of: int, per_second: float) -> None:
    """The slots of all processes together are the evenly spaced turns of the whole, none missing and none twice."""
    origin, now = clock.now - 12.3, clock.now
    turns = []
    for index in range(of):
        slot, turn = Slot(index, of, origin), now
        for _ in range(50):
            turn = slot.after(turn, per_second)
            turns.append(turn)
    turns.sort()
    within = turns[of:-of]  # the first turns depend on the moment of the beginning
    gaps = [b - a for a, b in itertools.pairwise(within)]
    assert len(gaps) > 30
    assert gaps == pytest.approx([1 / per_second] * len(gaps), rel=0.1, abs=2e-5)


def test_two_slots_share_the_turns(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """Two paces with a slot each give half of the turns each, alternately; a slot of no part gives none."""
    origin = clock.now
    paces = [Pace(40), Pace(40), Pace(40)]
    for pace, slot in zip(paces, (Slot(0, 2, origin), Slot(1, 2, origin), Slot(0, 0, origin)), strict=True):
        pace.take(slot, 40, clock.now, math.inf)
    first, second, idle = (crowd(pace, 5) for pace in paces)
    clock.turn(1.5)
    assert len(first.turns) == pytest.approx(30, abs=1)
    assert len(second.turns) == pytest.approx(30, abs=1)
    assert idle.turns == []
    owners = [
        owner for _, owner in sorted([(t, "a") for t in first.turns] + [(t, "b") for t in second.turns])
    ]
    changes = sum(a != b for a, b in itertools.pairwise(owners))
    assert changes == len(owners) - 1


def test_slot_that_changes_takes_over_the_turns(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """When the other process is gone, the remaining one gives all turns at the rate of the whole."""
    pace = Pace(40)
    pace.take(Slot(1, 2, clock.now), 40, clock.now, math.inf)
    users = crowd(pace, 5)
    clock.turn(1.0)
    pace.take(Slot(0, 1, clock.now), 40, clock.now, math.inf)
    clock.turn(0.1)
    users.turns.clear()
    clock.turn(1.0)
    assert len(users.turns) == pytest.approx(40, abs=1)


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


def test_no_turn_is_given_after_a_lease_and_those_held_are_given_when_it_is_renewed(
    clock: Clock, crowd: Callable[..., Crowd]
) -> None:
    """Without a word from its master a process gives no turn; a word later it gives those that it held, at once."""
    pace, slot = Pace(40), Slot(0, 2, clock.now)
    pace.take(slot, 40, clock.now, clock.now + 1.0)
    users = crowd(pace, 30)
    clock.turn(1.5)
    assert len(users.turns) == pytest.approx(20, abs=1)
    pace.take(slot, 40, clock.now, clock.now + 1.0)
    clock.turn(0.001)
    assert len(users.turns) == pytest.approx(30, abs=1)
    clock.turn(0.5)
    assert len(users.turns) == pytest.approx(40, abs=1)


def test_turns_that_others_gave_are_not_given_again(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """A process that was given up forgets the turns that it held: others have given them."""
    pace, slot = Pace(40), Slot(0, 2, clock.now)
    pace.take(slot, 40, clock.now, clock.now + 1.0)
    users = crowd(pace, 30)
    clock.turn(2.0)
    pace.take(slot, 40, clock.now, clock.now + 1.0, afresh=True)
    clock.turn(0.5)
    assert len(users.turns) == pytest.approx(20 + 10, abs=1)


def test_turns_since_a_slot_was_dealt_are_given(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """A process that hears of its slot half a second late gives the turns of that half second: nobody else has them."""
    pace = Pace(40)
    pace.take(Slot(0, 0, 0.0), 40, clock.now, math.inf)
    users = crowd(pace, 30)
    clock.turn(3.0)
    pace.take(Slot(0, 2, clock.now), 40, clock.now - 0.5, clock.now + 0.5)
    clock.turn(0.001)
    assert len(users.turns) == pytest.approx(10, abs=1)


def test_turns_due_before_a_slot_changed_are_given_by_the_old_one(
    clock: Clock, crowd: Callable[..., Crowd]
) -> None:
    """A process that stood still while its share became smaller is late with the turns of the larger one, not short."""
    pace, origin = Pace(40), clock.now
    pace.take(Slot(0, 1, origin), 40, clock.now, math.inf)
    users = crowd(pace, 30)
    clock.turn(1.0)
    clock.now += 0.5
    pace.take(Slot(0, 2, origin), 40, clock.now, math.inf)
    clock.turn(0.001)
    assert len(users.turns) == pytest.approx(60, abs=1)
    clock.turn(0.5)
    assert len(users.turns) == pytest.approx(70, abs=1)


def test_a_faster_schedule_makes_no_burst_of_its_slots(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """From a slow rate to a fast one a slot gives the turns since the change, not those since its last turn."""
    pace, slot = Pace(0.01), Slot(0, 2, clock.now)
    pace.take(slot, 0.01, clock.now, math.inf)
    users = crowd(pace, 30)
    clock.turn(150.0)
    assert users.turns == []
    pace.take(slot, 40, clock.now, math.inf)
    clock.turn(1.0)
    assert len(users.turns) == pytest.approx(20, abs=1)


def test_turns_of_a_lost_process_are_given_at_once(clock: Clock, crowd: Callable[..., Crowd]) -> None:
    """Owed turns go to users that are free, up to a second's worth wait for the next ones, and the rest is missed."""
    pace = Pace(10)
    users = crowd(pace, 3, busy_seconds=60)
    clock.turn(0.05)
    pace.owe(20)
    clock.turn(0.001)
    assert len(users.turns) == 3
    assert pace.missed == 20 - 3 - 10
    assert pace.due == 20


def test_a_grid_that_moves_a_little_neither_loses_nor_repeats_turns(
    clock: Clock, crowd: Callable[..., Crowd]
) -> None:
    """A slot that moves by a tenth of a turn, two hundred times, neither loses turns nor repeats them."""
    pace, began = Pace(40), clock.now
    users = crowd(pace, 5)
    for number in range(200):
        pace.take(Slot(0, 1, began + (0.0025 if number % 2 else 0.0)), 40, clock.now, math.inf)
        clock.turn(0.0511)
    assert len(users.turns) == pytest.approx(200 * 0.0511 * 40, abs=3)
