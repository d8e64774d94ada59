"""A claim's outcome and a run's verdict in words and signs, the same on terminal, pages, tables and summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PARTIAL, NOT_VALID = "partial", "not valid"
MACHINE_CHECKS = frozenset(
    (
        "the machine was quiet",
        "the probes were on time",
        "the clients had CPU to spare",
        "the machine kept its speed",
    )
)
"""Checks of validity that fail because of the machine or other programs on it."""


def outcome(holds: bool | None, control: bool = False) -> str:
    """A claim's outcome in words; None: it was not applicable.

    In a control, which lacks the cause, a claim that does not hold is good news, but does not prove the opposite.
    """
    if holds is None:
        return "not applicable"
    if control:
        return "holds, as it should not" if holds else "not shown, as it should be"
    return "holds" if holds else "refuted"


def sign(good: bool | None, unknown: str = "–") -> str:
    """The sign for good, for not good, and for not known (None)."""
    return unknown if good is None else "✓" if good else "✗"


def signed(holds: bool | None, control: bool = False) -> str:
    """A claim's outcome with its sign before it."""
    good = holds if holds is None else holds != control
    return f"{sign(good)} {outcome(holds, control)}"


def tally(claims: Sequence[Mapping[str, Any]], control: bool = False) -> str:
    """Return in a few words how many of the applicable claims hold."""
    judged = [claim["holds"] for claim in claims if claim["holds"] is not None]
    holding, total = sum(judged), len(judged)
    if control:
        return (
            f"{holding} of {total} held without the cause"
            if holding
            else f"none of {total} shown, as it should be"
        )
    return f"all {total} hold" if holding == total else f"{total - holding} of {total} refuted"


def short(result: Mapping[str, Any] | None) -> str:
    """A run's verdict in a word or two, from the content of result.json; None: the run was never judged."""
    if result is None:
        return PARTIAL
    return {True: "as promised", False: "not as promised", None: NOT_VALID}[result["holds"]]


def sentence(result: Mapping[str, Any]) -> str:
    """A judged run's verdict in a sentence, from the content of result.json."""
    if result["holds"] is None:
        failed = [check["check"] for check in result["validity"] if not check["ok"]]
        text = f"No verdict: the run is not valid. Not fulfilled: {'; '.join(failed)}."
        if MACHINE_CHECKS & set(failed):
            return f"{text} Close other programs, or take a calmer machine, and run it again."
        return f"{text} The report says beside each check what was found."
    judged = [claim["holds"] for claim in result["claims"] if claim["holds"] is not None]
    holding, total = sum(judged), len(judged)
    if result["refutes"]:
        return (
            f"The control is as it should be: without the cause, all {total} applicable claims are refuted."
            if result["holds"]
            else f"The control is not as it should be: {holding} of {total} claims held without the cause."
        )
    if not result["holds"]:
        return f"{total - holding} of {total} claims {'was' if total - holding == 1 else 'were'} refuted."
    inapplicable = len(result["claims"]) - total
    return (
        "Every claim holds."
        if not inapplicable
        else f"Every claim that applies holds ({total} of {total + inapplicable})."
    )


def series(good: int, done: int, planned: int, interrupted: bool) -> str:
    """A series' verdict in a sentence: `good` of the runs that were done, or of those planned, are as promised."""
    if interrupted:
        return f"Interrupted: {good} of {planned} runs were as promised until then."
    if not done:
        return "Nothing could be run here."
    return f"All {done} runs are as promised." if good == done else f"{good} of {done} runs are as promised."


def unjudged(phases: int, interrupted: bool) -> str:
    """The same for a run without a verdict, in which that many phases were measured."""
    if not interrupted:
        return "This run has not been judged: there is no verdict yet."
    after = f"{phases} phase{'' if phases == 1 else 's'}"
    return f"This is a partial run: it was interrupted after {after}, so there is no verdict."
