"""Every claim can fail: it holds on a healthy run, and fails on a run doctored for it alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from lab import scenarios
from lab.claims import Claim, Finding, judge
from lab.claims.base import Inapplicable
from lab.results.folder import Run, RunFacts
from lab.runner.judging import reach
from lab.scenarios import control as no_cause
from lab.scenarios import key_growth
from lab.scenarios.model import Scenario
from lab.stacks.servers import SERVERS
from tests.lab.claims.doctorings import DOCTORINGS, WITHSTOOD, Doctoring
from tests.lab.doctored import build_run

CLAIMS = {claim.id: claim for claim in key_growth.CLAIMS}


def cases(table: dict[str, list[Doctoring]]) -> list[object]:
    """Return one parameter set per claim and doctoring."""
    return [
        pytest.param(claim, doctoring, id=f"{claim}: {doctoring.what}")
        for claim, doctorings in table.items()
        for doctoring in doctorings
    ]


def unproved(scenario: Scenario) -> list[str]:
    """Return the claims without a doctoring that refutes them, or without one after which they still hold."""
    return [
        claim.id for claim in scenario.claims if not DOCTORINGS.get(claim.id) or not WITHSTOOD.get(claim.id)
    ]


@pytest.mark.parametrize("claim", CLAIMS)
def test_claim_holds_on_a_healthy_run(claim: str, healthy: Run) -> None:
    """A run with the cause in it, and nothing else wrong, fulfils every claim."""
    (outcome,) = judge(healthy, [CLAIMS[claim]])
    assert outcome.holds is True, outcome.measured


@pytest.mark.parametrize(("claim", "doctoring"), cases(DOCTORINGS))
def test_claim_fails_on_a_doctored_run(claim: str, doctoring: Doctoring, folder: Path) -> None:
    """One doctoring refutes the claim through one of its halves alone, and the figures show it."""
    (outcome,) = judge(build_run(folder, **doctoring.build), [CLAIMS[claim]])
    assert outcome.holds is False, outcome.measured
    assert doctoring.alone(outcome.figures), f"{outcome.measured} {outcome.figures}"
    assert not outcome.measured.startswith("not measured")


@pytest.mark.parametrize(("claim", "doctoring"), cases(WITHSTOOD))
def test_claim_bears_what_its_bound_allows(claim: str, doctoring: Doctoring, folder: Path) -> None:
    """Just inside its bound a claim holds: the bound is where its text says it is."""
    (outcome,) = judge(build_run(folder, **doctoring.build), [CLAIMS[claim]])
    assert outcome.holds is True, outcome.measured


@pytest.mark.parametrize("scenario", [key_growth.SCENARIO, no_cause.SCENARIO], ids=lambda s: s.id)
def test_every_claim_of_every_scenario_is_proved(scenario: Scenario) -> None:
    """Every claim of key-growth and its control is seen to fail here. (For other scenarios see test_proofs.py.)"""
    assert scenario.claims
    assert unproved(scenario) == []


def test_a_new_claim_without_a_doctoring_is_noticed() -> None:
    """The test above fails for a claim that is in no table, and the tables hold no claim that is gone."""
    new = Claim("new", "nobody tested this", "none", lambda _run: Finding(True, "always"))
    assert unproved(replace(key_growth.SCENARIO, claims=(*key_growth.CLAIMS, new))) == ["new"]
    known = {claim.id for claim in key_growth.CLAIMS}
    assert set(DOCTORINGS) | set(WITHSTOOD) <= known


@pytest.mark.parametrize("scenario", scenarios.catalogue().values(), ids=lambda s: s.id)
def test_claim_ids_are_unique_and_say_their_bound(scenario: Scenario) -> None:
    """Every claim has an id of its own, a statement and a bound with a figure or a 'none' in it."""
    assert len({claim.id for claim in scenario.claims}) == len(scenario.claims)
    for claim in scenario.claims:
        assert claim.statement
        assert any(c.isdigit() for c in claim.bound) or "none" in claim.bound


@pytest.mark.parametrize("claim", CLAIMS)
def test_control_refutes_the_claim(claim: str, control: Run) -> None:
    """Without the cause the claim fails, and by measurement: it is neither missing nor inapplicable."""
    (outcome,) = judge(control, [CLAIMS[claim]])
    assert outcome.holds is False, outcome.measured
    assert not outcome.measured.startswith("not ")


def test_control_as_it_should_be_ends_with_0(control: Run) -> None:
    """A control whose claims are all refuted has the verdict 'holds' and exit code 0."""
    verdict = reach(control)
    assert (verdict.holds, verdict.exit_code) == (True, 0)


def test_control_with_a_claim_that_holds_ends_with_1(folder: Path) -> None:
    """One claim that holds without its cause makes the control fail: exit code 1."""
    verdict = reach(build_run(folder, cause="index", p99_ms={"grow-7": 50.0}))
    assert [outcome.claim.id for outcome in verdict.outcomes if outcome.holds][:1] == ["p99-rises"]
    assert (verdict.holds, verdict.exit_code) == (False, 1)


def test_healthy_run_ends_with_0_and_one_refuted_claim_with_1(healthy: Run, folder: Path) -> None:
    """The verdict needs every claim: the exit code is 0 if all hold, and 1 if one is refuted."""
    verdict = reach(healthy)
    assert (verdict.holds, verdict.exit_code) == (True, 0)
    verdict = reach(build_run(folder, slowlog=["GET"] * 40))
    assert [outcome.claim.id for outcome in verdict.outcomes if not outcome.holds] == ["victims-not-slow"]
    assert (verdict.holds, verdict.exit_code) == (False, 1)


@pytest.mark.parametrize(
    ("claim", "without"),
    [
        *((claim, "grow") for claim in CLAIMS if claim != "knee-predicted"),
        ("index-cures", "index"),
        ("index-flat", "index"),
        ("index-flat", "index-2"),
        ("p99-follows-keys", ["grow-2", "grow-3", "grow-4", "grow-5"]),
        ("restart-restores", "restart"),
        ("restart-restores", "return"),
        ("pool", "turns"),
        ("fresh-connections", "turns"),
    ],
)
def test_missing_phases_do_not_fulfil_a_claim(claim: str, without: str | list[str], folder: Path) -> None:
    """A claim whose phases were not measured does not hold, and says that they were not measured."""
    run = build_run(folder, without=[without] if isinstance(without, str) else without)
    (outcome,) = judge(run, [CLAIMS[claim]])
    assert outcome.holds is False
    assert outcome.measured.startswith("not measured: ")


def test_silent_second_probe_does_not_fulfil_a_claim(folder: Path) -> None:
    """A second probe that recorded nothing is 'not measured', not 'no change'."""
    run = build_run(folder)
    log = folder / "probe.hlog"
    log.write_text("\n".join(line for line in log.read_text().splitlines() if "Tag=pool-" not in line))
    (outcome,) = judge(Run(run.folder), [CLAIMS["pool"]])
    assert (outcome.holds, outcome.measured) == (
        False,
        "not measured: probe 'pool' recorded nothing in phase 'turns'",
    )


def test_run_without_forecasts_has_no_predicted_knee(folder: Path) -> None:
    """Without forecasts no knee is predicted, and the claim does not hold, whatever calibration planned."""

    def forget(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.forecasts = []

    (outcome,) = judge(build_run(folder, doctor=forget), [CLAIMS["knee-predicted"]])
    assert outcome.holds is False
    assert outcome.measured == "not measured: no demand was predicted"


def test_too_few_plateaus_near_the_knee_show_no_knee(folder: Path) -> None:
    """With fewer than three plateaus near saturation no knee is predicted."""
    run = build_run(folder, without=["grow-5", "grow-6", "grow-7"])
    (outcome,) = judge(run, [CLAIMS["knee-predicted"]])
    assert outcome.holds is False
    assert outcome.measured.startswith("none predicted: ")


def test_what_a_server_cannot_answer_is_not_applicable(folder: Path) -> None:
    """A claim the server cannot answer is neither passed nor failed, names the reason, and the others decide."""

    def doctor(facts: RunFacts) -> None:
        facts.server = "dragonfly"  # whose row in the table of servers has this claim, too
        facts.cannot["victims-not-slow"] = "this server has no slow log"

    verdict = reach(build_run(folder, slowlog=["GET"], doctor=doctor))
    outcome = next(o for o in verdict.outcomes if o.claim.id == "victims-not-slow")
    assert (outcome.holds, outcome.measured) == (None, "not applicable: this server has no slow log")
    assert verdict.holds is True


def test_claim_may_find_itself_inapplicable(healthy: Run) -> None:
    """A claim that raises `Inapplicable` is not applicable, with its own reason."""

    def check(_run: Run) -> Finding:
        raise Inapplicable("there is no such counter")

    (outcome,) = judge(healthy, [Claim("any", "any", "any", check)])
    assert (outcome.holds, outcome.measured) == (None, "not applicable: there is no such counter")


@pytest.mark.parametrize("cause", ["scan", "index"])
def test_nothing_applicable_proves_nothing(cause: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of which no claim is applicable does not hold, neither as an incident nor as a control."""
    unfit = replace(SERVERS["valkey"], cannot=dict.fromkeys(CLAIMS, "nothing works there"))
    monkeypatch.setitem(SERVERS, "valkey", unfit)

    def doctor(facts: RunFacts) -> None:
        facts.cannot.update(dict.fromkeys(CLAIMS, "nothing works here"))

    verdict = reach(build_run(folder, cause=cause, doctor=doctor))
    assert {outcome.holds for outcome in verdict.outcomes} == {None}
    assert (verdict.holds, verdict.exit_code) == (False, 1)
