"""From a run folder to its verdict: claims, validity, and the exit code of the contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lab import errors, operational, scenarios
from lab.check import Check
from lab.claims import Outcome, judge
from lab.fairness import measured_again
from lab.runfolder import Run, write_json
from lab.validity import validate


@dataclass(frozen=True)
class Verdict:
    """`holds` is None where the run was not valid: then the outcomes are shown, but count for nothing.

    A control is as it should be when every applicable claim is refuted.
    """

    outcomes: list[Outcome]
    checks: list[Check]
    holds: bool | None

    @property
    def exit_code(self) -> int:
        """0 holds, 1 a claim failed (a control's held), 4 not valid."""
        return errors.NOT_VALID if self.holds is None else errors.HOLDS if self.holds else errors.CLAIM_FAILED


def reach(run: Run) -> Verdict:
    """Judge a run by the claims of its scenario. Raises `UsageError` for a scenario that no longer exists."""
    scenario = scenarios.find(run.facts.scenario)
    outcomes = judge(run, scenario.claims)
    checks = validate(run)
    applicable = [outcome.holds for outcome in outcomes if outcome.holds is not None]
    as_promised = bool(applicable) and (not any(applicable) if scenario.refutes else all(applicable))
    return Verdict(outcomes, checks, as_promised if all(check.ok for check in checks) else None)


def write_result(run: Run, verdict: Verdict) -> dict[str, Any]:
    """Write result.json and return it."""
    result = as_result(run, verdict)
    write_json(run.folder / "result.json", result)
    return result


def as_result(run: Run, verdict: Verdict) -> dict[str, Any]:
    """What result.json holds."""
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
        "repeated": [measured_again(phase, run.facts.discarded) for phase in run.phases if phase.attempt > 1],
    }
