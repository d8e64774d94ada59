"""The judge of the fault matrix accuses what is surely wrong, and nothing else: short histories written by hand."""

from __future__ import annotations

import pytest

from bench.fault_cell import admits_late, red
from bench.fault_judge import Event, Read, Window, judge
from bench.fault_kinds import FAULTS

FAULT = Window(10.0, 15.0)
FROZEN = Window(10.0, 15.0, admits=True)
EVENT = Event(7, 11.0, 11.1, 1)
DRAINED = 20.0
GREEN = {
    "accepted": 400,
    "lost": 0,
    "stale": 0,
    "unread": 0,
    "recovered_s": 1.0,
    "drained_s": 2.0,
    "tracebacks": 0,
}


def read(begin: float, result: str, name: str = "page-0", seconds: float = 0.01) -> Read:
    """A read of user 7 that took `seconds`."""
    return Read(7, name, begin, begin + seconds, result)


def test_a_clean_history_is_not_accused() -> None:
    """An entry cached before the event is gone after it; one that was computed after the event is served."""
    found = judge([EVENT], [read(1, "put"), read(12, "miss"), read(21, "hit")], FAULT, DRAINED)
    assert (found.lost, found.stale, found.late) == (set(), 0, 0)


def test_an_old_entry_after_the_drain_is_a_lost_event() -> None:
    """The outbox is empty, and the entry of before the event is served: the event is lost, and the entry stale."""
    found = judge([EVENT], [read(1, "put"), read(21, "hit")], FAULT, DRAINED)
    assert (found.lost, found.stale) == ({7}, 1)


def test_an_entry_that_nobody_computed_is_old() -> None:
    """What no request of the cell can have computed was there before it."""
    assert judge([EVENT], [read(21, "hit")], FAULT, DRAINED).lost == {7}


def test_an_event_left_in_the_outbox_is_lost() -> None:
    """What was never handled is lost, whatever was read."""
    assert judge([EVENT], [], FAULT, None, left={7}).lost == {7}


def test_an_old_entry_after_its_handled_event_is_stale() -> None:
    """Served after the event was handled, gone at the end: stale, not lost. Before it was handled it may be served."""
    handled = Event(7, 11.0, 11.1, 1, handled=13.0)
    found = judge([handled], [read(1, "put"), read(14, "hit"), read(21, "miss")], FAULT, DRAINED)
    assert (found.lost, found.stale) == (set(), 1)
    found = judge([handled], [read(1, "put"), read(12, "hit"), read(21, "miss")], FAULT, DRAINED)
    assert found.stale == 0


@pytest.mark.parametrize("result", ["miss", "failed"])
def test_a_request_that_overlaps_the_event_proves_nothing(result: str) -> None:
    """Its value may be computed after the event: what is served later may be that. A bypass caches nothing."""
    assert not judge([EVENT], [read(10.9, result, seconds=0.3), read(21, "hit")], FAULT, DRAINED).stale
    assert judge([EVENT], [read(10.9, "bypass", seconds=0.3), read(21, "hit")], FAULT, DRAINED).stale == 1


def test_a_put_under_way_while_the_server_froze_is_late_where_the_layout_admits_it() -> None:
    """It is counted apart; a put of before the fault, or one where the layout excludes it, is stale."""
    history = [read(10.2, "miss"), read(21, "hit")]
    found = judge([EVENT], history, FROZEN, DRAINED)
    assert (found.lost, found.stale, found.late) == (set(), 0, 1)
    assert judge([EVENT], history, FAULT, DRAINED).stale == 1
    assert judge([EVENT], [read(9, "put"), read(21, "hit")], FROZEN, DRAINED).stale == 1


def test_late_is_admitted_for_a_frozen_server_and_not_under_generation() -> None:
    """Nothing else keeps a put back that its client has given up."""
    assert admits_late(FAULTS["server-stopped"], "scan")
    assert not admits_late(FAULTS["server-stopped"], "generation")
    assert not admits_late(FAULTS["server-killed"], "scan")


def test_events_that_were_not_accepted_or_given_up_are_not_judged() -> None:
    """The storefront refused one, and the other went with the state folder, where it is counted."""
    history = [read(1, "put"), read(21, "hit")]
    assert not judge([Event(7, 11.0, 11.1, None)], history, FAULT, DRAINED).lost
    assert not judge([EVENT], history, FAULT, DRAINED, left={7}, given_up={7}).lost


def test_a_green_cell_has_no_reason_to_be_red() -> None:
    """All bounds kept, to the last."""
    assert red(GREEN | {"recovered_s": 10.0, "drained_s": 10.0}) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"accepted": 0}, "no event was accepted"),
        ({"lost": 2}, "2 lost"),
        ({"stale": 3}, "3 stale"),
        ({"unread": 4}, "4 of the last reads failed"),
        ({"recovered_s": 10.1}, "success after 10.1 s"),
        ({"recovered_s": None}, "no success within 30 s"),
        ({"drained_s": 10.1}, "empty outbox after 10.1 s"),
        ({"drained_s": None}, "no empty outbox within 30 s"),
        ({"tracebacks": 1}, "1 tracebacks"),
        ({"accepted_corrupt": 1}, "1 accepted while the state folder was corrupt"),
        ({"ready_corrupt": 1}, "ready 1 times while the state folder was corrupt"),
    ],
)
def test_each_bound_makes_a_cell_red(change: dict[str, float | None], reason: str) -> None:
    """Each figure beyond its bound is a reason of its own."""
    assert red(GREEN | change) == [reason]
