"""Every claim and every condition of a fair experiment can fail, and bears what its bound allows.

The tables in `bends/`, one for a record, say what holds after which bend (see `bending`): `fails` and `holds` by the
name of the claim or condition, each row with words for what was done, and `says` for a part of what is then measured.
Bent as `without the cause` says, a run refutes every claim.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import scenarios
from lab.claims import Claim, judge
from lab.results.folder import Run
from lab.runner.judging import validate
from tests.lab.claims.bending import bent, recorded_run, removals

FOLDER = Path(__file__).with_name("bends")
NO_CAUSE = "without the cause"
TABLES: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.yaml"))
}
ROWS = [
    pytest.param(record, name, kind, bends, id=f"{record} {name} {kind}: {what}")
    for record, table in TABLES.items()
    for name, by_kind in table.items()
    if name != NO_CAUSE
    for kind, rows in by_kind.items()
    for what, bends in rows.items()
]


def claims_of(record: str) -> tuple[Claim, ...]:
    """Return the claims of a record's scenario."""
    return scenarios.find(recorded_run(record).facts.scenario).claims


def outcome(run: Run, name: str) -> tuple[bool | None, str]:
    """Return whether the claim or condition of that name holds, and what was measured."""
    claims = scenarios.find(run.facts.scenario).claims
    for found in judge(run, [claim for claim in claims if claim.id == name]):
        return found.holds, found.measured
    [check] = [check for check in validate(run) if check.check == name]
    return check.ok, check.detail


def test_every_claim_and_every_condition_can_fail() -> None:
    """Each claim has rows of both kinds, on a record of its scenario; each condition has one after which it fails."""
    rows = {
        (recorded_run(record).facts.scenario, name, kind)
        for record, table in TABLES.items()
        for name, kinds in table.items()
        for kind in kinds
    }
    claims = {
        (scenario.id, claim.id, kind)
        for scenario in scenarios.catalogue().values()
        for claim in scenario.claims
        for kind in ("fails", "holds")
        if not scenario.refutes
    }
    assert claims - rows == set()
    failing = {name for _, name, kind in rows if kind == "fails"}
    assert {check.check for check in validate(recorded_run("key-growth"))} <= failing


@pytest.mark.parametrize(("record", "name", "kind", "bends"), ROWS)
def test_a_bent_run(record: str, name: str, kind: str, bends: dict[str, Any]) -> None:
    """The claim or condition holds or fails as the row says, and by measurement unless the row says otherwise."""
    says = bends.get("says", "")
    holds, measured = outcome(
        bent(record, {place: value for place, value in bends.items() if place != "says"}), name
    )
    assert holds is (kind == "holds"), measured
    assert says in measured
    assert says or not measured.startswith("not measured"), measured


@pytest.mark.parametrize("record", TABLES)
def test_a_run_without_its_cause_refutes_every_claim(record: str) -> None:
    """Without the cause no claim holds, and each fails by measurement."""
    run = bent(record, TABLES[record][NO_CAUSE])
    outcomes = [found for found in judge(run, claims_of(record)) if found.holds is not None]
    assert outcomes
    assert [(found.claim.id, found.measured) for found in outcomes if found.holds] == []
    assert [found.measured for found in outcomes if found.measured.startswith("not ")] == []


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(record, marks=() if record == "pipelined-delete" else pytest.mark.whole)
        for record in TABLES
    ],
)
def test_whatever_is_missing_is_no_fault_of_the_lab(record: str) -> None:
    """A run that lacks a phase, a figure or a count is judged all the same; one without phases shows no claim."""
    claims = [
        claim for claim in claims_of(record) if claim.id != "index-flat"
    ]  # slow, and has rows of its own
    for bends in removals(recorded_run(record)):
        run = bent(record, bends)
        judge(run, claims)
        validate(run)
    for found in judge(bent(record, {"*": "remove"}), claims):
        assert not found.holds, found.measured
