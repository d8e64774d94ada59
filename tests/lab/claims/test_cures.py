"""The tables of `cures`, of whole and of partial runs."""

from __future__ import annotations

import pytest

from lab.claims import cures
from lab.results.numbers import UNKNOWN
from lab.scenarios.cures import COMMANDS, SCENARIO, STALE
from tests.lab.claims.bending import bent, recorded_run


def test_every_strategy_has_its_row() -> None:
    """Every strategy has a row with what was measured, in the order of the run."""
    measured, stale = (listing.rows(recorded_run("cures")) for listing in SCENARIO.listings)
    assert [row[0] for row in measured] == [row[0] for row in stale] == list(cures.STRATEGIES)
    for listing, rows in zip(SCENARIO.listings, (measured, stale), strict=True):
        assert {len(row) for row in rows} == {len(listing.headings)}
        assert all(cell for row in rows for cell in row)
    assert not any(UNKNOWN in row for row in measured)
    assert dict(zip(("strategy", *cures.HEADINGS), measured[-1], strict=True)) == {
        "strategy": "generation",
        "p99 of a bystander": "1.04 ms",
        "main thread busy": "1 %",
        "commands an event": "4",
        "execution an event": "5.50 µs",
        "commands a read": "2.0",
        "memory an entry": "342 bytes",
        "entries left behind by an event": "20",
        "old values served for": "14.8 ms",
        "served of those computed before an event and put after it": "0 of 9",
    }


def test_a_control_names_what_stands_in_the_place() -> None:
    """A control's rows say that the index was measured in place of the strategy."""
    run = bent("cures", {"*.strategy": "index"})
    measured, stale = (listing.rows(run) for listing in SCENARIO.listings)
    assert [row[0] for row in measured][:3] == ["index, in place of scan", "index, in place of keys", "index"]
    assert [row[0] for row in stale] == ["index"]


@pytest.mark.parametrize("known", [True, False])
def test_what_other_programs_ask_for_is_not_the_storefronts(known: bool) -> None:
    """GETs known to be others', as of the compose stack's own probe, do not count as the storefront's reads."""
    more = {f"{way}-load.commands.GET.calls": "+800" for way in ("index", "generation")}
    run = bent("cures", more | {"run.load.others_gets_per_second": 202.0 if known else 2.0})
    assert cures.generation_reads_twice(1.5).check(run).holds is known
    measured = run.phase("generation-load")
    assert measured
    assert cures.reading(run, measured) == pytest.approx(1.97 if known else 6.9, rel=0.1)


@pytest.mark.parametrize("count", range(1, len(SCENARIO.phases)))
def test_a_partial_run_has_dashes(count: int) -> None:
    """A figure that was not measured is a dash, and a strategy without a phase has no row."""
    run = bent("cures", {phase.id: "remove" for phase in recorded_run("cures").phases[count:]})
    rows = SCENARIO.listings[0].rows(run)
    ways = count // 2
    assert len(rows) == ways
    assert [row for row in rows[:-1] if UNKNOWN in row] == []
    if rows:
        assert (UNKNOWN in rows[-1]) is (count % 2 == 0)


@pytest.mark.parametrize("bends", [{"run.load.reads_per_second": 0}, {"*.commands": {}}])
def test_a_run_without_reads_has_a_dash(bends: dict[str, object]) -> None:
    """Where no read was asked for, or the server counted none, the table has a dash."""
    column = 1 + cures.HEADINGS.index("commands a read")
    assert {row[column] for row in cures.side_by_side(bent("cures", bends))} == {UNKNOWN}


def test_every_strategy_of_the_scenario_is_described() -> None:
    """Every strategy, and no other, has commands to count and an account of what can go stale."""
    assert set(COMMANDS) == set(STALE) == set(cures.STRATEGIES)
