"""The helpers by which claims read a run: exact figures from hand-made latencies, and words for what is missing."""

from dataclasses import asdict, replace
from math import isnan
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from lab.claims import base, wording
from lab.claims.base import Missing
from lab.claims.check import verdict_of
from lab.claims.planned import _figure
from lab.claims.shards import node_rows
from lab.claims.verdict import as_result
from lab.results import operational
from lab.results.folder import Run
from lab.runner.judging import reach
from tests.lab.claims.bending import recorded_run
from tests.lab.results.test_operational import STEADY


def latencies(*intervals: list[float]) -> Run:
    """Return a run whose main probe measured these milliseconds, interval by interval, in every phase."""
    parts = [np.asarray(each) * 1000 for each in intervals]
    return cast(Run, SimpleNamespace(latencies=lambda phase, probe: parts, arm=lambda name: []))


def test_typical_p99_is_the_median_of_the_intervals() -> None:
    """The typical p99 (ms) is the median over the intervals, each counted once, the first and the last included."""
    of_each = latencies([1.0], [9.0], [2.0], [8.0], [3.0])
    assert base.need_typical_p99(of_each, STEADY) == 3.0
    assert base.need_typical_p99(latencies([5.0], [7.0]), STEADY) == 6.0
    assert base.need_typical_p99(latencies(list(range(101))), STEADY) == 99.0


def test_typical_p99_of_several_intervals_on_end() -> None:
    """Intervals are grouped in sequence, whole groups only; a phase shorter than a group is taken as one."""
    pairs = latencies([1.0], [3.0], [5.0], [7.0], [100.0])
    assert base.need_typical_p99(pairs, STEADY, 2) == pytest.approx((2.98 + 6.98) / 2)
    assert base.need_typical_p99(latencies([4.0]), STEADY, 2) == 4.0


def test_what_is_missing_is_named() -> None:
    """`Missing` names the phase and the figure that a claim needed."""
    bare = replace(STEADY, utilisation=None)
    with pytest.raises(Missing, match=r"^the loads of 'a' did not measure speed$"):
        base.need_figure(bare, "speed")
    with pytest.raises(Missing, match=r"^phase 'a' does not say its chunk$"):
        base.need_param(bare, "chunk")
    with pytest.raises(Missing, match=r"^the server does not report its CPU time$"):
        base.need_utilisation(bare)
    with pytest.raises(Missing, match=r"^0 of at least 2 phases of 'grow' were measured$"):
        base.elevation(latencies([1.0]), "grow")


def test_elevation_is_the_last_plateau_over_the_first() -> None:
    """Elevation needs two plateaus; those in between do not count."""
    p99 = {"a": 2.0, "b": 50.0, "c": 8.0}
    phases = [replace(STEADY, id=name) for name in p99]
    run = SimpleNamespace(arm=lambda name: phases, p99_ms=lambda phase, probe: p99[phase.id])
    assert base.elevation(cast(Run, run), "grow") == 4.0
    del phases[1]
    assert base.elevation(cast(Run, run), "grow") == 4.0


def test_a_reference_to_a_missing_figure_is_nan() -> None:
    """A reference to a missing figure is NaN, so that every comparison with it fails."""
    figures = {"look": {"capacityX": 7.0}}
    assert _figure(figures, "look[capacityX]") == 7.0
    assert isnan(_figure(figures, "look[rate]")) and isnan(_figure(figures, "other[capacityX]"))


def test_words_are_those_of_a_run_with_the_cause_unless_said_otherwise() -> None:
    """Wordings are those of a run with the cause, unless the caller says that it is a control."""
    assert (wording.outcome(True), wording.signed(False)) == ("holds", "✗ refuted")
    assert wording.tally([{"holds": True}, {"holds": None}]) == "all 1 hold"
    checks = [{"check": "one", "ok": False}, {"check": "two", "ok": False}, {"check": "three", "ok": True}]
    assert "Not fulfilled: one; two. The report" in wording.sentence({"holds": None, "validity": checks})
    checks.append({"check": "the machine was quiet", "ok": False})
    assert "the machine was quiet. Close" in wording.sentence({"holds": None, "validity": checks})


def test_the_result_has_all_of_the_run_and_of_the_verdict(healthy: Run) -> None:
    """The result has run.json's fields, p99 and demand of each phase, and each claim with bound and measurement."""
    verdict = reach(healthy)
    result: dict[str, Any] = as_result(healthy, verdict)
    assert set(result) == {*asdict(healthy.facts), "claims", "validity", "holds", "repeated"}
    for told, phase in zip(result["phases"], healthy.phases, strict=True):
        kinds = {
            f"{probe}_{kind}": (probe, kind) for probe in phase.probes for kind in ("intended", "service")
        }
        assert told["p99_ms"] == {name: healthy.p99_ms(phase, *which) for name, which in kinds.items()}
        assert told["demand"] == operational.demand(phase, healthy.facts)
        assert set(told) == {*asdict(phase), "p99_ms", "demand"}
    turns = next(told for told in result["phases"] if told["id"] == "turns")
    assert {"main_intended", "pool_intended", "pool_service"} <= set(turns["p99_ms"])
    assert result["claims"] == [
        {
            "id": one.claim.id, "statement": one.claim.statement, "bound": one.claim.bound, "measured": one.measured,
            "figures": one.figures, "holds": one.holds,
        }
        for one in verdict.outcomes
    ]  # fmt: skip
    facts = replace(healthy.facts, phases=healthy.facts.phases[1:])
    with pytest.raises(ValueError, match="zip"):
        as_result(
            cast(Run, SimpleNamespace(facts=facts, phases=healthy.phases, p99_ms=healthy.p99_ms)), verdict
        )


def test_what_is_wrong_is_counted() -> None:
    """A check names the first two things that are wrong, and counts the others."""
    assert [verdict_of("c", ["a", "b", "c", "d"][:many], "fine").detail for many in range(5)] == [
        "fine", "a", "a; b", "a; b; and 1 more", "a; b; and 2 more",
    ]  # fmt: skip


def test_a_silent_probe_is_named_with_its_phase() -> None:
    """The message says which probe recorded nothing, and where."""
    with pytest.raises(Missing, match=f"probe 'pool' recorded nothing in phase '{STEADY.id}'"):
        base.need_latencies(latencies(), STEADY, "pool")


def test_throttling_is_shown() -> None:
    """The table has a row for each phase: how busy a node was, and in how many of its periods it was held."""
    rows = node_rows(recorded_run("shards"))
    assert len(rows) == len(recorded_run("shards").phases)
    assert rows[3][1:] == ["100 %, 99 %", "–", "–"]
    assert rows[6][1:] == ["99 %, 97 %", "100 %, 98 %", "100 %, 98 %"]
