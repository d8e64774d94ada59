"""The knee of a cluster, and what is predicted of it: on synthetic runs of `shards`, and against `bin/lab predict`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bench.repeat import predicted_again
from docs.pages.frompredict import cluster_checks
from lab import scenarios
from lab.claims.shards import NODES, ONE, THREE, demand, knee, nodes_of, predicted_knee
from lab.runner.judging import validate
from tests.lab.claims.checknames import STEADY
from tests.lab.scenarios.shards import KNEE, control, healthy, moved, search


def test_the_knee_of_three_nodes_is_predicted_from_one(folder: Path) -> None:
    """Both knees are found where the synthetic nodes have them, and three lie at three times the keys of one."""
    run = healthy().write(folder)
    assert knee(run, ONE) == pytest.approx(KNEE, rel=0.01)
    assert knee(run, THREE) == pytest.approx(NODES * KNEE, rel=0.02)
    found = [predicted_knee(run, nodes) for nodes in (1, NODES)]
    assert found[0].low < KNEE < found[0].high
    assert found[1].likely / found[0].likely == pytest.approx(NODES, rel=0.03)


def test_predict_has_a_row_of_it(folder: Path) -> None:
    """The page's table holds the predicted knee beside the observed one; none where there was no knee."""
    [row] = cluster_checks(healthy().write(folder / "one"))
    assert abs(row.off) < 0.15
    assert list(cluster_checks(control().write(folder / "two"))) == []


def test_repeated_runs_say_how_far_the_prediction_is_off(folder: Path) -> None:
    """A run that was not valid is counted, and has no part in it; a knee outside the stated range is seen."""
    claim = next(each for each in scenarios.find("shards").claims if each.id == "knee-moves")
    figures = claim.check(healthy().write(folder / "one")).figures
    beyond = figures | {"knee_three": 2 * figures["high_three"]}
    rows = [{"figures": figures}, {"figures": {}}, {"figures": beyond}]
    kept = {"command": "c", "machine": "m", "date": "d", "rows": rows}
    said = predicted_again({"repeat shards on embedded": kept})
    assert said is not None
    assert "2 of 3 runs (the others" in said
    assert said.endswith("and in 1 of them within the stated range.")
    assert predicted_again({}) is None


def test_beyond_the_knee_the_demand_goes_on(folder: Path) -> None:
    """Above what the nodes can do, the demand is counted in the calls that were asked for."""
    plain = healthy()
    run = plain.write(folder)
    asked = [demand(phase, run.facts.scan_count) for phase in run.arm(THREE)]
    assert asked == sorted(asked, key=lambda value: value or 0.0)
    assert asked[-1] is not None
    assert asked[-1] > 1.1
    top = run.arm(THREE)[-1]
    top.utilisation = None
    assert demand(top, run.facts.scan_count) is None


def test_a_knee_far_beyond_the_plateaus_was_not_observed(folder: Path) -> None:
    """A cluster that bears ten times as many keys has no knee among them."""
    plain = healthy()
    moved(10.0)(plain)
    assert knee(plain.write(folder), THREE) is None


@pytest.mark.parametrize(
    ("one", "three", "kept"),
    [
        (1.0, 1.0, True),
        (0.8, 1.0, True),
        (1.4, 1.0, False),
        (0.5, 1.0, False),
        (1.0, 1.15, True),
        (1.0, 1.4, False),
        (1.0, 0.5, False),
        (0.75, 1.2, False),  # each within its bounds, but too far apart
    ],
)
def test_a_machine_that_changed_since_the_calibration_has_no_verdict(
    one: float, three: float, kept: bool, folder: Path
) -> None:
    """Where a knee is far from the planned one, the last plateau may lie below it, and shows nothing."""
    plain = healthy()
    plain.facts.calibration["planned_knee_keys"] = KNEE
    for phase in plain.arm(ONE):
        search(plain, phase.id, 1, KNEE * one)
    for phase in plain.arm(THREE):
        search(plain, phase.id, NODES, KNEE * three)
    [check] = [each for each in validate(plain.write(folder)) if each.check == STEADY]
    assert check.ok == kept, check.detail


def test_throttling_is_shown(folder: Path) -> None:
    """The table has a row for each phase: how busy a node was, and in how many of its periods it was held."""
    run = healthy().write(folder)
    rows = {row[0]: row[1:] for row in nodes_of(run)}
    assert len(rows) == len(run.phases)
    assert rows["one node, 40% of the keys"] == ["100 %, 100 %", "–", "–"]
    assert all("%" in cell for cell in rows["3 nodes, 50% of the keys"])


@pytest.mark.parametrize("name", ["shards", "shards-control"])
def test_the_number_of_nodes_changes_only_where_the_cluster_is_emptied(name: str) -> None:
    """A phase with more nodes than the one before begins empty; its probes ask nodes that there are."""
    phases = scenarios.find(name).phases
    for before, phase in pairwise(phases):
        assert phase.empty or phase.shards == before.shards
    for phase in phases:
        assert all(1 <= probe.node <= phase.shards for probe in phase.probes)


def test_two_plateaus_beside_the_knee_are_enough(folder: Path) -> None:
    """Where the first plateau is far below the knee and the last far beyond, the knee is told by the two between."""
    made = healthy()
    run = made.write(folder)
    first, *_, last = run.arm(THREE)
    first.utilisation = 0.3
    last.events["offered_per_s"] *= 1.5
    near = [
        one for phase in run.arm(THREE) if (one := demand(phase, run.facts.scan_count)) and 0.4 <= one <= 1.6
    ]
    assert len(near) == 2
    assert knee(run, THREE) == pytest.approx(NODES * KNEE, rel=0.05)
