"""What a phase refers to: names in its loads' arguments, and figures of earlier phases."""

from __future__ import annotations

import pytest

from lab.errors import StackError
from lab.runner.loads import arguments_of, figure_of
from lab.scenarios.model import LoadSpec, Phase

PHASE = Phase("storm", "storm", "a storm", "scan", 1.0, events_from="look[rate]")


def test_names_in_arguments_are_filled_in() -> None:
    """Names in a load's arguments are filled in with plain values and with figures of earlier phases."""
    spec = LoadSpec("walks", "walks", ("--users", "{users}", "--rate", "{look[rate]}", "plain"))
    values = {"users": 7, "look": {"rate": 2.5}}
    assert arguments_of(spec, values) == ["--users", "7", "--rate", "2.5", "plain"]


def test_a_phase_may_offer_events_at_a_figure_of_another() -> None:
    """A phase may offer events at a rate that an earlier phase measured, unrounded."""
    assert figure_of(PHASE, PHASE.events_from, {"look": {"rate": 12.345678}}) == 12.345678


@pytest.mark.parametrize("measured", [{}, {"look": {}}])
def test_what_nothing_stands_for_is_named(measured: dict[str, dict[str, float]]) -> None:
    """A name without a value raises a `StackError` with the phase or load and the name."""
    with pytest.raises(StackError, match=r"phase storm needs .*, which was not measured"):
        figure_of(PHASE, PHASE.events_from, measured)
    with pytest.raises(StackError, match=r"load walks needs .*, which was not measured"):
        arguments_of(LoadSpec("walks", "walks", ("{look[rate]}",)), measured)
