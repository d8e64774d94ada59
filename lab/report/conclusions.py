"""Conclusions from the claims: explanations that the run refutes, those that remain, and what it cannot tell."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lab.claims.texts import REFUTES
from lab.claims.verdict import Verdict
from lab.report.view import RunView


@dataclass(frozen=True)
class Section:
    """A heading, sentences under it, and points of a list after them."""

    heading: str
    sentences: list[str]
    points: list[str]


@dataclass(frozen=True)
class Judged:
    """A run's claims and checks as result.json has them. `holds` is None where the run was not valid."""

    claims: list[dict[str, Any]]
    validity: list[dict[str, Any]]
    holds: bool | None

    @classmethod
    def from_verdict(cls, verdict: Verdict) -> Judged:
        """From a verdict just reached."""
        claims = [
            {"id": o.claim.id, "statement": o.claim.statement, "measured": o.measured, "holds": o.holds}
            for o in verdict.outcomes
        ]
        return cls(claims, [asdict(check) for check in verdict.checks], verdict.holds)

    @classmethod
    def read(cls, result: dict[str, Any]) -> Judged:
        """From result.json."""
        return cls(result["claims"], result["validity"], result["holds"])

    @property
    def holding(self) -> list[dict[str, Any]]:
        """Claims that hold."""
        return [claim for claim in self.claims if claim["holds"]]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Claims that were measured and do not hold."""
        return [claim for claim in self.claims if claim["holds"] is False and not _open(claim)]

    @property
    def open(self) -> list[dict[str, Any]]:
        """Claims that the run says nothing about: not applicable, or not measured."""
        return [claim for claim in self.claims if _open(claim)]


def refuted(view: RunView, judged: Judged) -> Section:
    """Return the explanations that the claims refuted, and those not refuted because their claims failed."""
    if view.facts.refutes:
        return _refuted_by_control(judged)
    lines = []
    if judged.holds is None:
        lines.append("The run is not valid, so these are indications, not refutations.")
    verb = "refuted" if judged.holds is not None else "spoken against"
    points = [f"“{_hypothesis(claim)}”: {verb}. {_sentence(claim)}" for claim in judged.holding]
    points += [
        f"“{_hypothesis(claim)}”: NOT refuted. The claim failed: {_sentence(claim)}"
        for claim in judged.failed
    ]
    return Section("Which hypotheses the run refutes", lines, points)


def _refuted_by_control(judged: Judged) -> Section:
    holding = [f"It holds without the cause: {_sentence(claim)}" for claim in judged.holding]
    tested = len(judged.holding) + len(judged.failed)
    sentence = (
        f"All {tested} claims that were tested fail without the cause, as they should: what they saw in the incident "
        "was the cause's doing."
        if tested and not holding
        else f"{len(holding)} of {tested} claims hold although the cause is absent: they prove nothing about it."
    )
    return Section("Which hypotheses the run refutes", [sentence], holding)


def _hypothesis(claim: dict[str, Any]) -> str:
    return REFUTES.get(claim["id"], f"it is not so that {claim['statement']}")


def _sentence(claim: dict[str, Any]) -> str:
    """Return the statement and the measured text; only the latter where it begins with the same words."""
    stated, measured = claim["statement"], str(claim["measured"])
    text = measured if measured.startswith(stated.partition(":")[0]) else f"{stated}: {measured}"
    return (text if text.startswith("p99") else text[0].upper() + text[1:]).rstrip(".") + "."


def remains(view: RunView, judged: Judged) -> Section:
    """Return the explanation that is left, and how firmly."""
    if view.facts.refutes:
        return Section("What remains", [], [])
    cause = view.scenario.cause if view.scenario and view.scenario.cause else view.facts.story
    if judged.holds is None:
        sentence = (
            f"Nothing is concluded from a run that is not valid. The explanation under test was: {cause}."
        )
    elif judged.failed or not judged.holding:
        sentence = (
            f"The explanation “{cause}” is not shown by this run: {len(judged.failed)} of "
            f"{_claims(len(judged.failed) + len(judged.holding))} that were tested failed."
        )
    elif judged.open:
        untested = f"{len(judged.open)} could not be"
        sentence = f"{cause[0].upper()}{cause[1:]}. All claims that could be tested hold, {untested}."
    else:
        sentence = f"{cause[0].upper()}{cause[1:]}. All {len(judged.holding)} claims hold."
    return Section("What remains", [sentence], [])


def _claims(number: int) -> str:
    return f"{number} claim" if number == 1 else f"{number} claims"


def cannot_tell(view: RunView, judged: Judged) -> Section:
    """Return failed checks of validity, claims that were not tested, and the limits of a single run."""
    points = [
        f"Not valid: “{check['check']}” is not fulfilled ({check['detail']})."
        for check in judged.validity
        if not check["ok"]
    ]
    points += [f"Not tested: {_sentence(claim)}" for claim in judged.open]
    if view.facts.interrupted:
        points.insert(
            0, f"The run was broken off after {len(view.run.phases)} phases: whatever came later is missing."
        )
    points.append(
        "It is one run, on one machine: ratios and ranks carry over to others, milliseconds do not."
        + (
            " Client and server shared it, so the network is the loopback."
            if view.facts.stack == "native"
            else ""
        )
    )
    return Section("What this run cannot tell", [], points)


def _open(claim: dict[str, Any]) -> bool:
    return claim["holds"] is None or str(claim["measured"]).startswith("not measured")
