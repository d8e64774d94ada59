"""From a run folder to its verdict: claims, validity, and the exit code of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lab import errors
from lab.claims import Claim, Outcome, judge
from lab.claims.check import Check, Terms
from lab.claims.fairness import measured_again
from lab.claims.validity import validate
from lab.results import operational
from lab.results.folder import Run, write_json


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run. `holds` is None if the run was not valid: the outcomes are then shown, but do not count.

    For a control `holds` is True if every applicable claim is refuted.
    """

    outcomes: list[Outcome]
    checks: list[Check]
    holds: bool | None

    @property
    def exit_code(self) -> int:
        """0: holds. 1: a claim failed (in a control: a claim held). 4: not valid."""
        return errors.NOT_VALID if self.holds is None else errors.HOLDS if self.holds else errors.CLAIM_FAILED


def reach(run: Run, claims: Sequence[Claim], refutes: bool, terms: Terms) -> Verdict:
    """Judge a run by these claims, and check it against these terms. `refutes`: the run is a control."""
    outcomes = judge(run, claims)
    checks = validate(run, terms)
    applicable = [outcome.holds for outcome in outcomes if outcome.holds is not None]
    as_promised = bool(applicable) and (not any(applicable) if refutes else all(applicable))
    return Verdict(outcomes, checks, as_promised if all(check.ok for check in checks) else None)


def write_result(run: Run, verdict: Verdict) -> dict[str, Any]:
    """Write result.json and return it."""
    result = as_result(run, verdict)
    write_json(run.folder / "result.json", result)
    return result


def as_result(run: Run, verdict: Verdict) -> dict[str, Any]:
    """The content of result.json."""
    facts = asdict(run.facts)
    for phase, record in zip(facts["phases"], run.phases, strict=True):
        phase["p99_ms"] = {
            f"{probe}_{kind}": run.p99_ms(record, probe, kind)
            for probe in record.probes
            for kind in ("intended", "service")
        }
        phase["demand"] = operational.demand(record, run.facts)
    return {
        **facts,
        "claims": [
            {
                "id": o.claim.id,
                "statement": o.claim.statement,
                "bound": o.claim.bound,
                "measured": o.measured,
                "figures": o.figures,
                "holds": o.holds,
            }
            for o in verdict.outcomes
        ],
        "validity": [asdict(check) for check in verdict.checks],
        "holds": verdict.holds,
        "repeated": [
            measured_again(phase, run.facts.discarded)
            for phase in run.phases
            if phase.attempt > 1 or phase.unfair
        ],
    }
