"""Validity before verdict: what a failed condition does to the verdict, and what conditions know of strategies.

That each condition can fail, and bears what its bound allows, is in the tables of test_bends.py.
"""

from pathlib import Path

import pytest

from app.settings import STRATEGY_ROWS
from lab.claims.planned import ASKS_FOR, OWN_LAYOUT, SEARCHES
from lab.claims.verdict import write_result
from lab.claims.wording import MACHINE_CHECKS
from lab.results.folder import Run, RunFacts
from lab.runner.judging import reach, validate
from tests.lab.claims.bending import bent, recorded_run
from tests.lab.claims.checknames import DONE, FORCE, QUIET, SPARE
from tests.lab.doctored import build_run


def test_a_fair_run_passes_with_its_cause_and_without(healthy: Run, control: Run) -> None:
    """Every condition is fulfilled, although the server uses its whole core: it is the subject."""
    assert max(phase.processes["store"] for phase in healthy.phases) > 0.95
    for run in (healthy, control, recorded_run("key-growth")):
        assert [check.check for check in validate(run) if not check.ok] == []


def test_a_condition_that_failed_leaves_no_verdict(folder: Path) -> None:
    """A single fault is found by its own condition alone; run and control then have no verdict, in the file too."""

    def busy(facts: RunFacts) -> None:
        for phase in facts.phases:
            phase.machine["others"] = 0.9

    for number, cause in enumerate(("scan", "index")):
        run = build_run(folder / str(number), cause=cause, doctor=busy)
        verdict = reach(run)
        write_result(run, verdict)
        assert (verdict.holds, verdict.exit_code) == (None, 4)
        result = run.result()
        assert result is not None
        assert result["holds"] is None
        assert [check["check"] for check in result["validity"] if not check["ok"]] == [QUIET]


def test_what_the_machine_is_to_blame_for_is_a_condition(healthy: Run) -> None:
    """The conditions after which a verdict advises a calmer machine are conditions of a fair run."""
    names = [check.check for check in validate(healthy)]
    assert len(set(names)) == len(names)
    assert set(names) > MACHINE_CHECKS


def test_the_busiest_client_is_named() -> None:
    """A failed condition names the process and its figure."""
    run = bent("key-growth", {"grow-5.processes.locust": 0.91, "grow-6.processes.web": 0.85})
    detail = next(check.detail for check in validate(run) if check.check == SPARE)
    assert detail == "busiest: locust, 91% of a core (at most 80%)"


def test_the_checks_know_every_strategy() -> None:
    """Each strategy of the storefront has its command here, but `ttl`, which sends none; searches and layouts agree."""
    assert {*ASKS_FOR, "ttl"} == set(STRATEGY_ROWS)
    searching = {strategy for strategy, (command, _) in ASKS_FOR.items() if command in SEARCHES}
    assert searching == {strategy for strategy, row in STRATEGY_ROWS.items() if row.searches}
    entries_are_keys = {
        strategy for strategy, row in STRATEGY_ROWS.items() if row.layout in ("entries", "tagged", "plain")
    }
    assert set(STRATEGY_ROWS) - set(OWN_LAYOUT) == entries_are_keys


@pytest.mark.parametrize(
    ("asks_for", "wrong"),
    [("SCAN", set()), ("KEYS", {FORCE}), ("SSCAN", {FORCE, DONE})],
)
def test_only_a_strategy_that_asks_for_a_search_may_search(
    asks_for: str, wrong: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new strategy may SCAN, and fall behind at half utilisation, only if SCAN is what it asks for."""
    monkeypatch.setitem(ASKS_FOR, "new", (asks_for, 3))
    late = {"grow-2.utilisation": 0.6, "grow-2.events.finished_per_s": "x0.7"}
    names = {f"{place}.strategy": "new" for phase in ("grow", "turns") for place in (phase, f"plan.{phase}")}
    names |= {
        f"{place}.strategy": "new" for phase in ("restart", "return") for place in (phase, f"plan.{phase}")
    }
    found = validate(bent("key-growth", {**names, **late}))
    assert {check.check for check in found if check.check in (FORCE, DONE) and not check.ok} == wrong
