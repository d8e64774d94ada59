"""Counters of the server go on where it sets them back."""

from __future__ import annotations

from lab.blind.counting import Onward


def test_a_counter_that_is_set_back_goes_on() -> None:
    """After CONFIG RESETSTAT the total grows by what was counted since; names are counted apart."""
    onward = Onward()
    assert [onward.read("popped", value) for value in (100, 130, 4, 4, 10, 0)] == [
        100,
        130,
        134,
        134,
        140,
        140,
    ]
    assert onward.read("sent", 7) == 7
