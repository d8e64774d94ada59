"""The shared schedule, without Locust."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from time import monotonic, time

import gevent  # type: ignore[import-untyped] # no type information in the package
import pytest

from loadtest.customers.pacing import Pace, Slot

pytestmark = pytest.mark.alone


class Crowd:
    """Users who note when it was their turn and then are busy for a while."""

    def __init__(self, pace: Pace, size: int, busy_seconds: float = 0.0) -> None:
        self.turns: list[float] = []
        self._pace = pace
        self._busy_seconds = busy_seconds
        self.greenlets = [gevent.spawn(self._live) for _ in range(size)]

    def _live(self) -> None:
        while True:
            gevent.sleep(self._pace.next_turn())
            self.turns.append(monotonic())
            gevent.sleep(self._busy_seconds)


@pytest.fixture
def crowd() -> Iterator[Callable[..., Crowd]]:
    """Make crowds, and run the pace of each; they go home at the end."""
    crowds: list[Crowd] = []
    running: dict[int, gevent.Greenlet] = {}

    def gather(pace: Pace, size: int, busy_seconds: float = 0.0) -> Crowd:
        if id(pace) not in running:
            running[id(pace)] = gevent.spawn(pace.run)
        crowds.append(Crowd(pace, size, busy_seconds))
        return crowds[-1]

    yield gather
    gevent.killall([*running.values(), *(greenlet for each in crowds for greenlet in each.greenlets)])


def gaps(turns: list[float]) -> list[float]:
    """The times between turns, ascending."""
    return sorted(later - earlier for earlier, later in itertools.pairwise(turns))


@pytest.mark.parametrize("size", [1, 7, 60])
def test_the_rate_is_that_of_the_crowd(crowd: Callable[..., Crowd], size: int) -> None:
    """However many users share a pace, together they get its rate, evenly."""
    people = crowd(Pace(50), size)
    gevent.sleep(1)
    between = gaps(people.turns)
    assert (len(people.turns) - 1) / (people.turns[-1] - people.turns[0]) == pytest.approx(50, rel=0.1)
    assert between[len(between) // 2] == pytest.approx(1 / 50, rel=0.25)


def test_a_new_rate_holds_at_once(crowd: Callable[..., Crowd]) -> None:
    """From a slow rate to a fast one there is neither a wait for the slow turn nor a burst; 0 is silence."""
    pace = Pace(0.01)
    people = crowd(pace, 5)
    gevent.sleep(0.2)
    assert people.turns == []
    pace.per_second = 40
    gevent.sleep(1)
    assert len(people.turns) == pytest.approx(40, rel=0.15)
    pace.per_second = 0
    gevent.sleep(0.1)
    so_far = len(people.turns)
    gevent.sleep(0.3)
    assert len(people.turns) == so_far


def test_what_is_owed_is_bounded_and_the_rest_is_missed(crowd: Callable[..., Crowd]) -> None:
    """With all users busy, a second's worth of turns is owed; the others are counted as missed."""
    pace = Pace(100)
    people = crowd(pace, 1, busy_seconds=60)
    gevent.sleep(2)
    assert len(people.turns) == 1
    assert pace.missed == pytest.approx(99, abs=15)
    helpers = crowd(pace, 30)
    gevent.sleep(0.02)
    assert 90 <= len(helpers.turns) <= 115


def test_the_owed_turns_are_taken_by_whoever_is_free_first(crowd: Callable[..., Crowd]) -> None:
    """After a stall shorter than a second no turn is lost."""
    pace = Pace(100)
    began = monotonic()
    people = crowd(pace, 3, busy_seconds=0.3)
    gevent.sleep(0.9)
    helpers = crowd(pace, 40)
    gevent.sleep(0.6)
    together = len(people.turns) + len(helpers.turns)
    assert pace.missed == 0
    assert together >= 0.9 * 100 * (monotonic() - began)


def test_a_user_who_leaves_takes_no_turn_along(crowd: Callable[..., Crowd]) -> None:
    """A user stopped while waiting is no longer in the queue: the next turn goes to one who is there."""
    pace = Pace(0)
    leaving = [gevent.spawn(pace.next_turn) for _ in range(5)]
    gevent.sleep(0.01)
    gevent.killall(leaving)
    people = crowd(pace, 1)
    gevent.sleep(0.01)
    pace.per_second = 50
    gevent.sleep(0.5)
    assert len(people.turns) >= 15


def test_no_turns_before_the_first_user_and_none_owed_from_the_last_test(crowd: Callable[..., Crowd]) -> None:
    """A test starts with an even rhythm, not with a burst of what came due while nobody was there."""
    pace = Pace(100)
    crowd(pace, 0)
    gevent.sleep(0.5)
    first = crowd(pace, 1, busy_seconds=60)
    gevent.sleep(0.5)
    assert len(first.turns) == 1
    pace.begin()
    gevent.sleep(0.2)
    people = crowd(pace, 10)
    gevent.sleep(0.3)
    assert len(people.turns) == pytest.approx(30, rel=0.3)
    assert pace.missed == 0


@pytest.mark.parametrize("of", [1, 2, 3, 7])
@pytest.mark.parametrize("per_second", [0.3, 10, 137, 10_000])
def test_slots_interleave_to_the_schedule_of_the_whole(of: int, per_second: float) -> None:
    """The slots of all processes together are the whole's evenly spaced turns, none missing and none twice."""
    origin, now = time() - 12.3, monotonic()
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


def test_two_slots_share_the_turns(crowd: Callable[..., Crowd]) -> None:
    """Two paces with a slot each give half of the turns each, alternately; without any part there are none."""
    origin = time()
    paces = [Pace(40), Pace(40), Pace(40)]
    for pace, slot in zip(paces, (Slot(0, 2, origin), Slot(1, 2, origin), Slot(0, 0, origin)), strict=True):
        pace.slot = slot
    first, second, idle = (crowd(pace, 5) for pace in paces)
    gevent.sleep(1.5)
    assert len(first.turns) == pytest.approx(30, abs=4)
    assert len(second.turns) == pytest.approx(30, abs=4)
    assert idle.turns == []
    owners = [
        owner for _, owner in sorted([(t, "a") for t in first.turns] + [(t, "b") for t in second.turns])
    ]
    changes = sum(a != b for a, b in itertools.pairwise(owners))
    assert changes >= 0.8 * len(owners)


def test_slot_that_changes_takes_over_the_turns(crowd: Callable[..., Crowd]) -> None:
    """When the other process is gone, the remaining one gives all turns, at the rate of the whole."""
    pace = Pace(40)
    pace.slot = Slot(1, 2, time())
    users = crowd(pace, 5)
    gevent.sleep(1.0)
    pace.slot = Slot(0, 1, time())
    gevent.sleep(0.1)
    users.turns.clear()
    gevent.sleep(1.0)
    assert len(users.turns) == pytest.approx(40, abs=5)
