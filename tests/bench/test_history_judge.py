"""The judge of histories accuses each kind of bug, and nothing else: short histories of one user, written by hand.

In all of them the user has one entry, put from 1.0 to 1.1 s, and one event, sent at 2.0, carried out from 2.1 to 2.2
and seen to be handled at 2.3 s.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.history_judge import (
    CLOCKS_S,
    KINDS,
    EventRecord,
    Handling,
    Judgement,
    Put,
    Read,
    UserHistory,
    judge,
)

TTL_S = 3.0
EVENT, HANDLING = EventRecord(1, 2.0, True, 2.3), Handling(2.1, 2.2)
OLD = Put(11, 0, "entries", 0, 0, 1.0, 1.1)
NEW = Put(12, 0, "entries", 0, 1, 2.4, 2.5)
LATE = OLD._replace(end=2.15)
"""Computed before the event, and still being put when the strategy began."""


def served(put: Put, begin: float, **other: Any) -> Read:
    """A read that found the value of a put, where it was put."""
    return Read(put.name, put.layout, put.epoch, put.number, begin, begin + 0.01)._replace(**other)


def found(
    *reads: Read,
    puts: tuple[Put, ...] = (OLD, NEW),
    events: tuple[EventRecord, ...] = (EVENT,),
    handlings: tuple[Handling, ...] = (HANDLING,),
) -> Judgement:
    """Return the judgement of a history."""
    return judge([UserHistory(7, events, handlings, puts, reads)], TTL_S)


def only(what: Judgement, kind: str) -> bool:
    """True if one accusation was made, of this kind, and it has words."""
    said = [words for examples in what.examples.values() for words in examples]
    return what.accused == {**dict.fromkeys(KINDS, 0), kind: 1} and len(said) == 1 and "user 7" in said[0]


def test_a_clean_history_is_not_accused() -> None:
    """The old value is served until the event is seen to be handled, the new one after that."""
    what = found(served(OLD, 1.5), served(OLD, 2.295), served(NEW, 2.6))
    assert what.clean
    assert what.raced == 0


def test_an_old_value_after_the_handled_event_is_stale() -> None:
    """Its put had ended before the strategy began: it should have been deleted."""
    assert only(found(served(OLD, 2.31)), "stale read")


def test_what_was_put_when_the_strategy_began_is_the_race() -> None:
    """The put may have come after the delete. It is counted apart, with its time, and accuses nobody."""
    what = found(served(LATE, 2.4), served(LATE, 3.3), puts=(LATE,))
    assert what.clean
    assert (what.raced, what.late) == (2, 1)
    assert what.longest_s == pytest.approx(1.0)


def test_of_two_events_the_last_handling_counts_and_the_first_begins_the_time() -> None:
    """A value that raced with the first event should be deleted for the second. One that raced with both is old since
    the first was handled, or since it was put, whichever came later.
    """
    events, handlings = (EVENT, EventRecord(2, 2.6, True, 2.9)), (HANDLING, Handling(2.7, 2.8))
    what = found(served(LATE, 2.5), puts=(LATE,), events=events, handlings=handlings)
    assert (what.raced, what.clean) == (1, True)
    assert only(found(served(LATE, 2.95), puts=(LATE,), events=events, handlings=handlings), "stale read")
    later = OLD._replace(end=2.75)
    what = found(served(later, 2.95), puts=(later,), events=events, handlings=handlings)
    assert what.longest_s == pytest.approx(0.2)


def test_the_race_ends_with_the_ttl() -> None:
    """A value served later than one TTL after its put is stale, raced or not, and whatever its version."""
    last = LATE.end + TTL_S + CLOCKS_S
    assert found(served(LATE, last - 0.01), puts=(LATE,)).clean
    assert only(found(served(LATE, last + 0.01), puts=(LATE,)), "stale read")
    assert only(found(served(NEW, NEW.end + TTL_S + CLOCKS_S + 0.01)), "stale read")


def test_a_later_handling_ends_the_race() -> None:
    """A second attempt at the event began after the put had ended: it has forgotten the entry."""
    again = Handling(2.16, 2.25)
    assert only(found(served(LATE, 2.4), puts=(LATE,), handlings=(HANDLING, again)), "stale read")


def test_a_put_without_an_answer_may_be_carried_out_at_any_time() -> None:
    """Nothing proves that it had ended."""
    what = found(served(OLD, 9.0), puts=(OLD._replace(end=float("inf")),))
    assert what.clean
    assert what.late == 1


@pytest.mark.parametrize("layout", ["entries", "hash"])
def test_generation_has_no_race(layout: str) -> None:
    """The same history is a race in the other layouts, and an old epoch there."""
    assert found(served(LATE._replace(layout=layout), 2.4), puts=(LATE._replace(layout=layout),)).late == 1
    put = LATE._replace(layout="generation")
    assert only(found(served(put, 2.4), puts=(put,)), "old epoch")


def test_an_old_value_under_generation_is_an_old_epoch() -> None:
    """The reader used a number that an event had ended."""
    put = OLD._replace(layout="generation")
    assert only(found(served(put, 2.31), puts=(put,)), "old epoch")


@pytest.mark.parametrize("other", [{"epoch": 2}, {"layout": "hash"}])
def test_a_value_of_another_epoch_is_an_old_epoch(other: dict[str, Any]) -> None:
    """No event is needed for that: nothing of an earlier epoch is ever read again."""
    assert only(found(served(NEW, 2.6, **other)), "old epoch")


def test_an_event_that_stays_in_the_outbox_is_lost() -> None:
    """It was accepted. One that was refused is not missed."""
    assert only(found(events=(EVENT._replace(handled=None),)), "lost event")
    assert found(events=(EVENT._replace(handled=None, accepted=False),)).clean


@pytest.mark.parametrize("handlings", [(), (Handling(1.9, 2.2),), (Handling(2.1, 2.31),)])
def test_an_event_that_nobody_carried_out_is_lost(handlings: tuple[Handling, ...]) -> None:
    """It left the outbox, but no handling of its user lies between sending it and seeing it handled."""
    assert only(found(handlings=handlings), "lost event")


def test_what_a_lost_event_leaves_is_stale_and_no_race() -> None:
    """The old value is served after the event seemed to be handled."""
    what = found(served(LATE, 2.4), puts=(LATE,), handlings=())
    assert (what.accused["lost event"], what.accused["stale read"], what.raced) == (1, 1, 0)


@pytest.mark.parametrize(
    "read", [served(NEW, 2.6, source=99), served(NEW, 2.6, name=1), served(NEW, 2.6, source=-1), served(NEW, 2.3)]
)  # fmt: skip
def test_a_value_that_nobody_put_there_is_invented(read: Read) -> None:
    """A number that no put has, another entry's value, no number at all, a value that is put later."""
    assert only(found(read), "invented")


def test_a_history_without_one_of_its_events_is_refused() -> None:
    """Versions count the events: a gap is a fault of the recording."""
    with pytest.raises(ValueError, match="user 7: event 1 has the version 2"):
        found(events=(EVENT._replace(version=2),))
