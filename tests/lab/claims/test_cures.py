"""The tables of `cures`, of whole and of partial runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.claims import cures
from lab.claims.base import Missing
from lab.results.folder import Run
from lab.results.numbers import UNKNOWN
from lab.scenarios.cures import COMMANDS, SCENARIO, STALE
from tests.lab.scenarios.cures import PROOFS
from tests.lab.synthetic import encode


def test_every_strategy_has_its_row(folder: Path) -> None:
    """Every strategy has a row with what was measured, in the order of the run."""
    run = PROOFS.healthy().write(folder)
    measured, stale = (listing.rows(run) for listing in SCENARIO.listings)
    assert [row[0] for row in measured] == [row[0] for row in stale] == list(cures.WAYS)
    for listing, rows in zip(SCENARIO.listings, (measured, stale), strict=True):
        assert {len(row) for row in rows} == {len(listing.headings)}
        assert not any(cell == UNKNOWN or not cell for row in measured for cell in row)
    found = dict(zip(("strategy", *cures.HEADINGS), measured[-1], strict=True))
    assert found == {
        "strategy": "generation",
        "p99 of a bystander": found["p99 of a bystander"],
        "main thread busy": "30 %",
        "commands an event": "4",
        "execution an event": "9.00 µs",
        "commands a read": "2.0",
        "memory an entry": "338 bytes",
        "entries left behind by an event": "20",
        "old values served for": "20.0 ms",
        "served of those computed before an event and put after it": "0 of 9",
    }


def test_a_control_names_what_stands_in_the_place(folder: Path) -> None:
    """A control's rows say that the index was measured in place of the strategy."""
    run = PROOFS.control().write(folder)
    measured, stale = (listing.rows(run) for listing in SCENARIO.listings)
    assert [row[0] for row in measured][:3] == ["index, in place of scan", "index, in place of keys", "index"]
    assert [row[0] for row in stale] == ["index"]


@pytest.mark.parametrize("told", [True, False])
def test_what_other_programs_ask_for_is_not_the_storefronts(told: bool, folder: Path) -> None:
    """GETs known to be others', as of the compose stack's own probe, do not count as the storefront's reads."""
    plain = PROOFS.healthy()
    for way in cures.WAYS:
        phase = plain.phase(f"{way}-load")
        phase.commands["GET"]["calls"] += 200 * phase.seconds
    plain.facts.load["others_gets_per_second"] = 200.0 if told else 0.0
    run = plain.write(folder)
    finding = cures.generation_reads_twice(1.5).check(run)
    assert finding.holds is told, finding
    measured = run.phase("generation-load")
    assert measured
    assert cures.reading(run, measured) == pytest.approx(2.0 if told else 7.0, rel=0.1)


@pytest.mark.parametrize("kept", range(len(SCENARIO.phases)))
def test_a_partial_run_has_dashes(kept: int, folder: Path) -> None:
    """What was not measured is a dash, and a strategy that never had its turn has no row."""
    plain = PROOFS.healthy()
    del plain.facts.phases[kept:]
    rows = SCENARIO.listings[0].rows(plain.write(folder))
    assert len(rows) == kept // 2
    assert [row for row in rows[:-1] if UNKNOWN in row] == []
    if rows:
        assert (UNKNOWN in rows[-1]) is (kept % 2 == 0)


@pytest.mark.parametrize("gone", ["reads", "GETs"])
def test_a_run_without_reads_has_a_dash_and_no_verdict(gone: str, folder: Path) -> None:
    """Where no read was asked for, or the server counted none, the table has a dash and the claim does not hold."""
    plain = PROOFS.healthy()
    if gone == "reads":
        plain.facts.load["reads_per_second"] = 0.0
    else:
        for phase in plain.facts.phases:
            phase.commands = {}
    run = plain.write(folder)
    column = 1 + cures.HEADINGS.index("commands a read")
    assert {row[column] for row in cures.side_by_side(run)} == {UNKNOWN}
    with pytest.raises(Missing):
        cures.generation_reads_twice(1.5).check(run)


def test_a_stall_of_the_machine_is_no_cure(folder: Path) -> None:
    """A machine stall of 50 ms in a control moves p99 but not p90, so the claim of a cure does not hold."""
    run = PROOFS.control().write(folder)
    phase = run.phase("scan-load")
    assert phase
    stalled = encode(np.linspace(5_000.0, 50_000.0, 12))
    with (folder / "probe.hlog").open("a") as log:
        log.write(f"Tag=main-intended,{phase.t0 + 1:.3f},0.250,50000.000,{stalled}\n")
    run = Run(folder)
    [claim] = [claim for claim in SCENARIO.claims if claim.id == "index-relieves"]
    found = claim.check(run)
    assert found.figures["ratio"] > 4 > 2 > found.figures["p90_ratio"]
    assert not found.holds


def test_every_strategy_of_the_scenario_is_described() -> None:
    """Every strategy, and no other, has commands to count and an account of what can go stale."""
    assert set(COMMANDS) == set(STALE) == set(cures.WAYS)
