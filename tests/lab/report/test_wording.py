"""A verdict in words: the same everywhere, and never better than what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from lab.claims import wording


def result(holds: bool | None, *claims: bool | None, refutes: bool = False) -> dict[str, Any]:
    """Return the part of result.json that a verdict depends on."""
    return {
        "holds": holds,
        "refutes": refutes,
        "claims": [{"holds": one} for one in claims],
        "validity": [{"check": "the machine was quiet", "ok": holds is not None}, {"check": "x", "ok": True}],
    }


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (result(True, True, True), "Every claim holds."),
        (result(True, True, None), "Every claim that applies holds (1 of 2)."),
        (result(False, True, False), "1 of 2 claims was refuted."),
        (result(False, False, False, None), "2 of 2 claims were refuted."),
        (
            result(True, False, False, refutes=True),
            "The control is as it should be: without the cause, all 2 applicable claims are refuted.",
        ),
        (
            result(False, True, False, refutes=True),
            "The control is not as it should be: 1 of 2 claims held without the cause.",
        ),
    ],
)
def test_a_verdict_in_a_sentence(judged: dict[str, Any], said: str) -> None:
    """Claims that do not apply count neither way; a control is judged the other way round."""
    assert wording.sentence(judged) == said


def test_a_run_that_is_not_valid_names_what_was_not_fulfilled_and_what_to_do() -> None:
    """A run that is not valid has no verdict, even if all claims hold."""
    said = wording.sentence(result(None, True, True))
    assert said.startswith("No verdict: the run is not valid. Not fulfilled: the machine was quiet.")
    assert said.endswith("run it again.")
    assert "holds" not in said


@pytest.mark.parametrize(
    ("claims", "control", "said"),
    [
        ([True, True, None], False, "all 2 hold"),
        ([True, False], False, "1 of 2 refuted"),
        ([False, False], True, "none of 2 shown, as it should be"),
        ([True, False], True, "1 of 2 held without the cause"),
    ],
)
def test_a_tally(claims: list[bool | None], control: bool, said: str) -> None:
    """A tally tells in a few words how many of the claims that apply hold or are refuted."""
    assert wording.tally([{"holds": one} for one in claims], control) == said


@pytest.mark.parametrize(
    ("good", "done", "planned", "interrupted", "said"),
    [
        (3, 3, 3, False, "All 3 runs are as promised."),
        (2, 3, 4, False, "2 of 3 runs are as promised."),
        (2, 2, 4, True, "Interrupted: 2 of 4 runs were as promised until then."),
    ],
)
def test_a_series_in_a_sentence(good: int, done: int, planned: int, interrupted: bool, said: str) -> None:
    """A series counts the runs that were done; one that was interrupted, those that were planned."""
    assert wording.series(good, done, planned, interrupted) == said


@pytest.mark.parametrize(
    ("holds", "control", "said"),
    [
        (True, False, "✓ holds"),
        (False, False, "✗ refuted"),
        (None, False, "– not applicable"),
        (True, True, "✗ holds, as it should not"),
        (False, True, "✓ not shown, as it should be"),
        (None, True, "– not applicable"),
    ],
)
def test_an_outcome_with_its_sign(holds: bool | None, control: bool, said: str) -> None:
    """The sign says whether an outcome is as it should be; the words say what was found."""
    assert wording.signed(holds, control) == said


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (None, "partial"),
        (result(None), "not valid"),
        (result(True, True), "as promised"),
        (result(False, False), "not as promised"),
    ],
)
def test_a_verdict_in_a_word(judged: dict[str, Any] | None, said: str) -> None:
    """A table shows a verdict in a word or two."""
    assert wording.short(judged) == said


def test_a_run_without_a_verdict_says_why() -> None:
    """A run not judged yet and an interrupted one are told apart; the latter says after how many phases."""
    assert wording.unjudged(7, interrupted=False) == "This run has not been judged: there is no verdict yet."
    said = "This is a partial run: it was interrupted after {}, so there is no verdict."
    assert wording.unjudged(0, interrupted=True) == said.format("0 phases")
    assert wording.unjudged(1, interrupted=True) == said.format("1 phase")
    assert wording.unjudged(2, interrupted=True) == said.format("2 phases")
