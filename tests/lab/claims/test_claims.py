"""From claims to the verdict and its exit code: of runs, of controls, and of claims that do not apply."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab import scenarios
from lab.claims import Claim, Result, judge
from lab.claims.base import Inapplicable
from lab.claims.verdict import as_result
from lab.claims.wording import sentence
from lab.results.folder import Run, RunFacts
from lab.runner.judging import reach
from lab.scenarios.key_growth import CLAIMS
from lab.scenarios.model import Scenario
from lab.server.servers import SERVERS
from tests.lab.claims.bending import bent
from tests.lab.doctored import build_run

IDS = [claim.id for claim in CLAIMS]


@pytest.mark.parametrize("scenario", scenarios.catalogue().values(), ids=lambda s: s.id)
def test_claim_ids_are_unique_and_say_their_bound(scenario: Scenario) -> None:
    """Every claim has an id of its own, a statement and a bound with a figure or a 'none' in it."""
    assert len({claim.id for claim in scenario.claims}) == len(scenario.claims)
    for claim in scenario.claims:
        assert claim.statement
        assert any(c.isdigit() for c in claim.bound) or "none" in claim.bound


def test_control_as_it_should_be_ends_with_0(control: Run) -> None:
    """A control whose claims are all refuted, by measurement, has the verdict 'holds' and exit code 0."""
    verdict = reach(control)
    assert {outcome.holds for outcome in verdict.outcomes} == {False}
    assert not [outcome for outcome in verdict.outcomes if outcome.measured.startswith("not ")]
    assert (verdict.holds, verdict.exit_code) == (True, 0)


def test_control_with_a_claim_that_holds_ends_with_1(folder: Path) -> None:
    """One claim that holds without its cause makes the control fail: exit code 1."""
    verdict = reach(build_run(folder, cause="index", p99_ms={"grow-7": 50.0}))
    assert [outcome.claim.id for outcome in verdict.outcomes if outcome.holds][:1] == ["p99-rises"]
    assert (verdict.holds, verdict.exit_code) == (False, 1)


def test_one_refuted_claim_ends_with_1() -> None:
    """The verdict needs every claim: the exit code is 0 if all hold, and 1 if one is refuted."""
    verdict = reach(bent("key-growth", {}))
    assert (verdict.holds, verdict.exit_code) == (True, 0)
    verdict = reach(bent("key-growth", {"slow log index-4": "40 GET"}))
    assert [outcome.claim.id for outcome in verdict.outcomes if not outcome.holds] == ["victims-not-slow"]
    assert (verdict.holds, verdict.exit_code) == (False, 1)


def test_a_machine_that_is_busy_is_to_blame() -> None:
    """Where only the machine was in the way, the verdict says what to do about it, and otherwise does not."""
    for bends, blamed in (
        ({"grow-7.machine.waited_store": 0.5}, True),
        ({"grow-7.events.failures": 1}, False),
    ):
        run = bent("key-growth", bends)
        verdict = reach(run)
        assert (verdict.holds, verdict.exit_code) == (None, 4)
        assert ("Close other programs" in sentence(as_result(run, verdict))) is blamed


def test_figures_of_0_can_be_written() -> None:
    """If a figure that a claim divides by is 0, the claim fails, and result.json holds no NaN or infinity."""
    run = bent("pipelined-delete", {"rtt.figures.one_by_one_keys_per_s": 0, "chunks.figures.keys_per_s": 0})
    verdict = reach(run)
    json.dumps(as_result(run, verdict), allow_nan=False)
    held = {outcome.claim.id: outcome.holds for outcome in verdict.outcomes}
    assert held["pipeline-pays"] is held["chunks-keep-speed"] is False


def test_a_figure_that_is_no_number_refutes(healthy: Run) -> None:
    """A claim whose figures are not all finite does not hold, whatever it says itself."""
    claim = Claim("any", "any", "any", lambda _run: Result(True, "fine", {"ratio": float("nan")}))
    [outcome] = judge(healthy, [claim])
    assert (outcome.holds, outcome.measured, outcome.figures) == (
        False,
        "not measured: ratio is no number",
        {},
    )


def test_what_a_server_cannot_answer_is_not_applicable() -> None:
    """A claim the server cannot answer is neither passed nor failed, names the reason, and the others decide."""
    cannot = {"victims-not-slow": "this server has no slow log"}
    verdict = reach(
        bent("key-growth", {"run.server": "dragonfly", "run.cannot": cannot, "slow log *": "9 GET"})
    )
    outcome = next(o for o in verdict.outcomes if o.claim.id == "victims-not-slow")
    assert (outcome.holds, outcome.measured) == (None, "not applicable: this server has no slow log")
    assert verdict.holds is True


def test_claim_may_find_itself_inapplicable(healthy: Run) -> None:
    """A claim that raises `Inapplicable` is not applicable, with its own reason."""

    def check(_run: Run) -> Result:
        raise Inapplicable("there is no such counter")

    (outcome,) = judge(healthy, [Claim("any", "any", "any", check)])
    assert (outcome.holds, outcome.measured) == (None, "not applicable: there is no such counter")


@pytest.mark.parametrize("cause", ["scan", "index"])
def test_nothing_applicable_proves_nothing(cause: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of which no claim is applicable does not hold, neither as an incident nor as a control."""
    unfit = replace(SERVERS["valkey"], cannot=dict.fromkeys(IDS, "nothing works there"))
    monkeypatch.setitem(SERVERS, "valkey", unfit)

    def doctor(facts: RunFacts) -> None:
        facts.cannot.update(dict.fromkeys(IDS, "nothing works here"))

    verdict = reach(build_run(folder, cause=cause, doctor=doctor))
    assert {outcome.holds for outcome in verdict.outcomes} == {None}
    assert (verdict.holds, verdict.exit_code) == (False, 1)
