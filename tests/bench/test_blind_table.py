"""`bench.blind_table`: which promises of a blind session a row holds, and which sessions are played."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.blind_table import Pulled, SessionRow, wanted
from lab.blind.causes import CAUSES, PAIRS

TEMPTED, CURED = Pulled("restart server", False, None), Pulled("strategy index", True, 4.0)
GOOD = SessionRow("native", 1, ("scan-storm",), True, (), True, TEMPTED, (CURED,), 90.0)


def test_a_session_that_holds_every_promise() -> None:
    """Nothing is told of it; and where nothing tempts, nothing has to be tried."""
    assert GOOD.broken == []
    assert replace(GOOD, tempting=None).broken == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"shown": False}, "the evidence is not there"),
        ({"others": ("lua-script",)}, "the evidence of lua-script is there, too"),
        ({"complaint_true": False}, "the complaint is not true"),
        ({"tempting": replace(TEMPTED, cured=True)}, "what tempts is a cure"),
        (
            {"cures": (replace(CURED, cured=False, text="the symptom returned."),)},
            "what should cure does not: the symptom returned.",
        ),
        ({"cures": ()}, "what should cure does not: its check did not end."),
        ({"error": "the server does not answer.", "shown": False}, "the server does not answer."),
    ],
)
def test_each_promise_can_be_broken(change: dict[str, Any], told: str) -> None:
    """A broken promise is named, and no other."""
    assert replace(GOOD, **change).broken == [told]


def test_of_two_cures_the_last_must_cure() -> None:
    """With two causes the scene is well only after both levers."""
    first = replace(CURED, cured=False)
    assert replace(GOOD, tempting=None, cures=(first, CURED)).broken == []
    assert replace(GOOD, tempting=None, cures=(CURED, first)).broken != []


def test_every_cause_and_every_pair_is_played() -> None:
    """Causes take levels 1 and 2 by turns, pairs level 3."""
    played = wanted(None)
    assert [[cause.id for cause in causes] for _, causes in played] == [
        *([name] for name in CAUSES),
        *(list(pair) for pair in PAIRS),
    ]
    assert {level for level, causes in played if len(causes) == 1} == {1, 2}
    assert {level for level, causes in played if len(causes) == 2} == {3}
