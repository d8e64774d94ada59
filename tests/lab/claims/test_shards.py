"""The knee of a cluster, and what is predicted of it: on the kept run of `shards`, and against `bin/lab predict`."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.repeat import predicted_again
from docs.pages.frompredict import cluster_checks
from lab import scenarios
from lab.claims.shards import NODES, ONE, THREE, demand, knee, predicted_knee
from tests.lab.claims.bending import bent, recorded_run


def test_the_knee_of_three_nodes_is_predicted_from_one() -> None:
    """Both knees lie among the plateaus, that of three nodes at three times the keys of one, as predicted."""
    run = recorded_run("shards")
    one, three = knee(run, ONE), knee(run, THREE)
    assert one is not None and three is not None
    assert one == pytest.approx(47_365, rel=0.001)
    assert three / one == pytest.approx(NODES, rel=0.05)
    found = [predicted_knee(run, nodes) for nodes in (1, NODES)]
    assert found[0].low < one < found[0].high
    assert found[1].likely / found[0].likely == pytest.approx(NODES, rel=0.03)


def test_predict_has_a_row_of_it() -> None:
    """The page's table holds the predicted knee beside the observed one; none where there was no knee."""
    [row] = cluster_checks(recorded_run("shards"))
    assert abs(row.off) < 0.15
    assert list(cluster_checks(bent("shards", {"*.utilisation": 0.05, "*.commands.SCAN": "remove"}))) == []


def test_repeated_runs_say_how_far_the_prediction_is_off() -> None:
    """A run that was not valid is counted, and has no part in it; a knee outside the stated range is seen."""
    claim = next(each for each in scenarios.find("shards").claims if each.id == "knee-moves")
    figures = claim.check(recorded_run("shards")).figures
    beyond = figures | {"knee_three": 2 * figures["high_three"]}
    rows = [{"figures": figures}, {"figures": {}}, {"figures": beyond}]
    repeated = {"command": "c", "machine": "m", "date": "d", "rows": rows}
    said = predicted_again({"repeat shards on embedded": repeated})
    assert said is not None
    assert "2 of 3 runs (the others" in said
    assert said.endswith("and in 1 of them within the stated range.")
    assert predicted_again({}) is None


def test_beyond_the_knee_the_demand_goes_on() -> None:
    """Above what the nodes can do, the demand is counted in the calls that were asked for."""
    run = bent("shards", {})
    asked = [demand(phase, run.facts.scan_count) for phase in run.arm(THREE)]
    assert asked == sorted(asked, key=lambda value: value or 0.0)
    assert asked[-1] is not None
    assert asked[-1] > 1.1
    top = run.arm(THREE)[-1]
    top.utilisation = None
    assert demand(top, run.facts.scan_count) is None


@pytest.mark.parametrize("name", ["shards", "shards-control"])
def test_the_number_of_nodes_changes_only_where_the_cluster_is_emptied(name: str) -> None:
    """A phase with more nodes than the one before begins empty; its probes ask nodes that there are."""
    phases = scenarios.find(name).phases
    for before, phase in pairwise(phases):
        assert phase.empty or phase.shards == before.shards
    for phase in phases:
        assert all(1 <= probe.node <= phase.shards for probe in phase.probes)


def test_two_plateaus_beside_the_knee_are_enough() -> None:
    """Where the first plateau is far below the knee and the last far beyond, the knee is where the two between say."""
    whole = knee(recorded_run("shards"), THREE)
    run = bent("shards", {"three-1.utilisation": 0.2, "three-4.events.offered_per_s": "x1.5"})
    near = [
        one for phase in run.arm(THREE) if (one := demand(phase, run.facts.scan_count)) and 0.4 <= one <= 1.6
    ]
    assert len(near) == 2
    assert knee(run, THREE) == pytest.approx(whole, rel=0.1)
