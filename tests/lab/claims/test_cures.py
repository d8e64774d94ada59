"""The tables of `cures`, of whole and of partial runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.claims import cures
from lab.results.folder import Run
from lab.results.numbers import UNKNOWN
from lab.scenarios.cures import COMMANDS, SCENARIO, STALE
from tests.lab.scenarios.cures import PROOFS
from tests.lab.synthetic import encode


def test_every_strategy_has_its_row(folder: Path) -> None:
    """In the order of the run, with what was measured of each."""
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
    }


def test_a_control_names_what_stands_in_the_place(folder: Path) -> None:
    """Its rows are not taken for those of the strategies that they stand for."""
    run = PROOFS.control().write(folder)
    measured, stale = (listing.rows(run) for listing in SCENARIO.listings)
    assert [row[0] for row in measured][:3] == ["index, in place of scan", "index, in place of keys", "index"]
    assert [row[0] for row in stale] == ["index"]


@pytest.mark.parametrize("told", [True, False])
def test_what_other_programs_ask_for_is_not_the_storefronts(told: bool, folder: Path) -> None:
    """On the compose stack a probe of its own goes on: known of, it is nobody's read; else it would blur the ratio."""
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


def test_a_stall_of_the_machine_is_no_cure(folder: Path) -> None:
    """Fifty milliseconds in which nothing ran, during the first way's plateau of a control: p99 moves, p90 does not."""
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
    """Commands to count and an account of what can go stale, for each and no other."""
    assert set(COMMANDS) == set(STALE) == set(cures.WAYS)
