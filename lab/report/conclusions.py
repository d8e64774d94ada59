"""What the claims say of a run: which explanations it refutes, what remains, what it cannot tell."""

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
    def of(cls, verdict: Verdict) -> Judged:
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
    def held(self) -> list[dict[str, Any]]:
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
    """Which explanations the claims that hold have refuted, and which are not refuted because their claims fail."""
    if view.facts.refutes:
        return _of_control(judged)
    lines = []
    if judged.holds is None:
        lines.append("The run is not valid, so these are indications, not refutations.")
    verb = "refuted" if judged.holds is not None else "spoken against"
    points = [f"“{_hypothesis(claim)}”: {verb}. {_sentence(claim)}" for claim in judged.held]
    points += [
        f"“{_hypothesis(claim)}”: NOT refuted. The claim failed: {_sentence(claim)}"
        for claim in judged.failed
    ]
    return Section("Which hypotheses the run refutes", lines, points)


def _of_control(judged: Judged) -> Section:
    held = [f"It holds without the cause: {_sentence(claim)}" for claim in judged.held]
    tested = len(judged.held) + len(judged.failed)
    said = (
        f"All {tested} claims that were tested fail without the cause, as they should: what they saw in the incident "
        "was the cause's doing."
        if tested and not held
        else f"{len(held)} of {tested} claims hold although the cause is absent: they prove nothing about it."
    )
    return Section("Which hypotheses the run refutes", [said], held)


def _hypothesis(claim: dict[str, Any]) -> str:
    return REFUTES.get(claim["id"], f"it is not so that {claim['statement']}")


def _sentence(claim: dict[str, Any]) -> str:
    """What was claimed and what was measured; only the measured text where it begins with the same words."""
    stated, measured = claim["statement"], str(claim["measured"])
    text = measured if measured.startswith(stated.partition(":")[0]) else f"{stated}: {measured}"
    return (text if text.startswith("p99") else text[0].upper() + text[1:]).rstrip(".") + "."


def remains(view: RunView, judged: Judged) -> Section:
    """What explanation is left, and how firmly."""
    if view.facts.refutes:
        return Section("What remains", [], [])
    cause = view.scenario.cause if view.scenario and view.scenario.cause else view.facts.story
    if judged.holds is None:
        said = f"Nothing is concluded from a run that is not valid. The explanation under test was: {cause}."
    elif judged.failed or not judged.held:
        said = (
            f"The explanation “{cause}” is not shown by this run: {len(judged.failed)} of "
            f"{_claims(len(judged.failed) + len(judged.held))} that were tested failed."
        )
    elif judged.open:
        said = f"{cause[0].upper()}{cause[1:]}. All claims that could be tested hold, {len(judged.open)} could not be."
    else:
        said = f"{cause[0].upper()}{cause[1:]}. All {len(judged.held)} claims hold."
    return Section("What remains", [said], [])


def _claims(number: int) -> str:
    return f"{number} claim" if number == 1 else f"{number} claims"


def cannot_tell(view: RunView, judged: Judged) -> Section:
    """Failed checks of validity, claims that were not tested, and what no single run can say."""
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
