"""What a phase refers to: names in its loads' arguments, and figures of earlier phases."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lab.errors import StackError
from lab.runner.loads import arguments_of, await_abandoned, figure_of
from lab.scenarios.model import LoadSpec, Phase
from lab.server.server_stats import Snapshot

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


def counting(scans: list[float], keys: float = 0.0) -> Callable[[], Snapshot]:
    """Return looks at a server that has done one more of these numbers of SCANs each time, and then no more."""
    left = list(scans)

    def snapshot() -> Snapshot:
        done = left.pop(0) if len(left) > 1 else left[0]
        commands = {"SCAN": (done, 0.0), "KEYS": (keys, 0.0), "GET": (time.monotonic(), 0.0)}
        return Snapshot(0.0, 1, commands, 1.0, 1.0, 1, "run", 1)

    return snapshot


def test_searches_of_a_load_that_has_ended_are_waited_for() -> None:
    """Until none ends between two looks; reads go on meanwhile."""
    pauses: list[float] = []
    assert await_abandoned(counting([5, 7, 8, 8]), pauses.append, 60)
    assert len(pauses) == 3


def test_a_server_that_others_search_is_not_waited_for_without_end() -> None:
    """It is given up after the seconds, and said."""
    assert not await_abandoned(counting([float(number) for number in range(10**4)]), time.sleep, 0.7)
