"""Every claim of the catalogue can fail, and every scenario has a control that refutes all of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from lab import scenarios
from lab.claims import Outcome, judge
from lab.runner.judging import reach
from lab.scenarios.model import Scenario
from tests.lab.plain import Change, Plain
from tests.lab.scenarios import proofs

PROOFS = proofs()
OWN_BUILDER = {"key_growth", "control"}
MODULES = sorted(
    {s.id.removesuffix("-control").replace("-", "_") for s in scenarios.catalogue().values()} - OWN_BUILDER
)


def scenario_of(module: str) -> Scenario:
    """The scenario that a module of the catalogue defines."""
    found: Scenario = importlib.import_module(f"lab.scenarios.{module.partition(' on ')[0]}").SCENARIO
    return found


def otherwise(module: str, outcomes: list[Outcome], holds: bool) -> list[tuple[str, str]]:
    """The claims that came out otherwise than `holds`, or were judged although only another server can answer them."""
    own = PROOFS[module].refuting
    return [
        (o.claim.id, o.measured) for o in outcomes if o.holds is not (holds if o.claim.id in own else None)
    ]


def cases(kind: str) -> list[object]:
    """Return one parameter set for each claim and change."""
    return [
        pytest.param(module, claim, change, id=f"{module} {claim}: {change.what}")
        for module, proof in PROOFS.items()
        for claim, changes in getattr(proof, kind).items()
        for change in changes
    ]


def outcome(plain: Plain, claim_id: str, folder: Path) -> tuple[bool | None, str]:
    """Judge one claim: return whether it holds and what was measured."""
    (claim,) = [claim for claim in plain.scenario.claims if claim.id == claim_id]
    (found,) = judge(plain.write(folder), [claim])
    return found.holds, found.measured


def test_every_scenario_has_proofs() -> None:
    """Every scenario has proofs, and all proofs belong to a scenario."""
    assert {module.partition(" on ")[0] for module in PROOFS} == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_every_claim_has_proofs(module: str) -> None:
    """Each claim has a change that refutes it, and a change after which it must still hold."""
    claims = {claim.id for claim in scenario_of(module).claims}
    own = [proof for name, proof in PROOFS.items() if name.partition(" on ")[0] == module]
    for kind in ("refuting", "bearing"):
        assert {
            claim for proof in own for claim, changes in getattr(proof, kind).items() if changes
        } == claims


@pytest.mark.parametrize("module", PROOFS)
def test_every_claim_holds_on_a_healthy_run(module: str, folder: Path) -> None:
    """On a healthy run every claim holds and every check passes, so the exit code is 0."""
    verdict = reach(PROOFS[module].healthy().write(folder))
    assert otherwise(module, verdict.outcomes, True) == []
    assert [check for check in verdict.checks if not check.ok] == []
    assert verdict.exit_code == 0


@pytest.mark.parametrize("module", PROOFS)
def test_a_control_refutes_every_claim(module: str, folder: Path) -> None:
    """Without the cause each claim fails by measurement, and the verdict says that this is as it should be."""
    plain = PROOFS[module].control()
    assert plain.scenario.refutes
    assert plain.scenario.id == f"{scenario_of(module).id}-control"
    verdict = reach(plain.write(folder))
    assert otherwise(module, verdict.outcomes, False) == []
    assert [o.measured for o in verdict.outcomes if o.measured.startswith("not measured")] == []
    assert verdict.exit_code == 0


@pytest.mark.parametrize(("module", "claim", "change"), cases("refuting"))
def test_a_claim_fails_on_a_doctored_run(module: str, claim: str, change: Change, folder: Path) -> None:
    """One change refutes the claim, by measurement."""
    plain = PROOFS[module].healthy()
    change.change(plain)
    holds, measured = outcome(plain, claim, folder)
    assert holds is False, measured
    assert not measured.startswith("not ")


@pytest.mark.parametrize(("module", "claim", "change"), cases("bearing"))
def test_a_claim_bears_what_its_bound_allows(module: str, claim: str, change: Change, folder: Path) -> None:
    """Just inside its bound the claim holds."""
    plain = PROOFS[module].healthy()
    change.change(plain)
    holds, measured = outcome(plain, claim, folder)
    assert holds is True, measured


@pytest.mark.parametrize("module", MODULES)
def test_a_phase_that_is_missing_refutes_by_a_sentence(module: str, folder: Path) -> None:
    """In a run without phases no claim holds, and each says that it was not measured or does not apply."""
    plain = PROOFS[module].healthy()
    plain.facts.phases.clear()
    for found in judge(plain.write(folder), plain.scenario.claims):
        assert found.holds is not True
        assert found.measured.startswith("not ")
