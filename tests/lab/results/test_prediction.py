"""Predictions: what a run says of a key, how ranges grow, and recorded runs predicted from their beginning."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from bench.cost_tables import EVIDENCE, visits
from docs.pages.frompredict import Check, checked, checks
from lab.errors import UsageError
from lab.results import numbers, operational
from lab.results.basis import CALL_S, DRIFT, GROWTH, Basis, Costs, Range, read_basis
from lab.results.folder import Run
from lab.results.prediction import STRATEGIES, Question, predict
from tests.lab.labkit import ROOT

RUNS = ROOT / "docs" / "runs"
KEY_S = 0.2e-6
BASIS = Basis(
    source="made up",
    strategy="scan",
    patterns=3,
    keys=100_000,
    events=5.0,
    count=10_000_000,
    base=0.02,
    costs={"SCAN": Costs(((10_000, KEY_S), (100_000, KEY_S), (1_000_000, KEY_S)))},
    call_s=Range(0.0, 0.0, 0.0),
    event_s={},
    floor_ms=0.5,
)
ASKED = Question(keys=100_000, events=5.0, count=10_000_000, shards=1, strategy="scan")


# --- the cost of a key


def test_a_cost_lies_on_the_line_between_the_measured_ones() -> None:
    """Over the logarithm of the keys, level below the smallest count, and within a third where there are few points."""
    costs = Costs(((1000, 1e-7), (100_000, 3e-7)))
    assert costs.at(10_000).likely == pytest.approx(2e-7)
    assert costs.at(10).likely == 1e-7
    assert costs.at(10_000).low == pytest.approx(2e-7 / DRIFT)
    assert costs.at(10_000).high == pytest.approx(2e-7 * DRIFT)


def test_a_key_does_not_get_cheaper_with_more_keys() -> None:
    """Measurements that say so are pooled to their mean."""
    costs = Costs(((1000, 1e-7), (10_000, 4e-7), (100_000, 2e-7)))
    assert costs.at(100_000).likely == pytest.approx(3e-7)
    found = [costs.at(keys).likely for keys in (1e3, 3e3, 1e4, 3e4, 1e5)]
    assert found == sorted(found)


def test_beyond_what_was_measured_a_cost_may_stay_or_grow_on() -> None:
    """The likely cost stays; the high end grows by as much for each tenfold as in the last measured tenfold."""
    costs = Costs(((10_000, 1e-7), (100_000, 3e-7)))
    assert costs.at(1e7).likely == 3e-7
    assert costs.at(1e7).high == pytest.approx((3e-7 + 2 * 2e-7) * DRIFT)
    assert costs.at(1e7).low == pytest.approx(3e-7 / DRIFT)


def test_without_a_measured_tenfold_the_high_end_grows_by_the_known_share() -> None:
    """With one size, or two less than a tenfold apart, nothing is added at the measured size."""
    for costs in (Costs(((100_000, 2e-7),)), Costs(((20_000, 2e-7), (100_000, 2e-7)))):
        assert costs.at(1e5).high == pytest.approx(2e-7 * DRIFT)
        assert costs.at(1e7).likely == pytest.approx(2e-7)
        assert costs.at(1e7).high == pytest.approx(2e-7 * (1 + 2 * GROWTH) * DRIFT)


def test_the_known_growth_is_that_of_the_committed_costs() -> None:
    """From 100,000 keys on every measured cost lies below the high end, and the dearest series is not far from it."""
    powers = []
    for part in EVIDENCE.records().values():
        if part["series"] == "keys":
            for command in ("scan", "keys"):
                found = {keys: ns for name, keys, ns in visits(part) if name == command}
                first = found[100_000]
                costs = Costs(((100_000.0, first),))
                assert all(ns <= costs.at(keys).high for keys, ns in found.items() if keys > 100_000)
                powers.append((found[max(found)] / first - 1) / math.log10(max(found) / 100_000))
    assert GROWTH / 2 <= max(powers) <= 2 * GROWTH


def test_many_measurements_bring_their_own_interval() -> None:
    """Six that agree within a hundredth give the narrowest interval, six that are far apart a wide one."""
    close = Costs(tuple((10_000.0 * i, KEY_S * (1 + 0.01 * (-1) ** i)) for i in range(1, 7)))
    apart = Costs(tuple((10_000.0 * i, KEY_S * (1 + 0.5 * (-1) ** i)) for i in range(1, 7)))
    assert close.spread == 1.1
    assert apart.spread > DRIFT


# --- the prediction


def test_the_figures_are_those_of_the_guide() -> None:
    """Utilisation, knee and both p99s of a made-up server follow from the cost of a key by the guide's formulas."""
    found = predict(BASIS, ASKED)
    event_s = 3 * 100_000 * KEY_S
    assert found.event_s.likely == pytest.approx(event_s)
    assert found.utilisation.likely == pytest.approx(0.02 + 5 * event_s)
    assert found.knee_keys is not None
    assert found.knee_keys.likely == pytest.approx(0.98 / (5 * 3 * KEY_S), rel=1e-3)
    assert found.knee_events.likely == pytest.approx(0.98 / event_s)
    absence_ms = 1000 * event_s / 0.98
    assert found.even_ms.likely == pytest.approx(0.5 + absence_ms * (1 - 0.01 / (5 * event_s / 0.98)))
    assert found.random_ms.likely > 2 * found.even_ms.likely


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_low_is_low_and_high_is_high(strategy: str) -> None:
    """The ends of every range lie on their sides of the likely value."""
    basis = replace(BASIS, call_s=CALL_S)
    found = predict(basis, replace(ASKED, strategy=strategy, shards=3, count=500))
    for range_ in (found.event_s, found.utilisation, found.knee_events, found.even_ms, found.random_ms):
        assert 0 <= range_.low <= range_.likely <= range_.high < math.inf


def test_shards_move_the_knee_and_do_not_remove_it() -> None:
    """Each search goes to every shard: ten shards bear ten times the keys, and hardly any more events than one."""
    one, ten = predict(BASIS, ASKED), predict(BASIS, replace(ASKED, keys=1_000_000, shards=10))
    assert ten.utilisation.likely == pytest.approx(one.utilisation.likely, abs=0.02)
    assert ten.knee_keys is not None
    assert one.knee_keys is not None
    assert ten.knee_keys.likely == pytest.approx(10 * one.knee_keys.likely, rel=0.03)
    assert ten.knee_events.likely == pytest.approx(one.knee_events.likely, rel=0.03)


def test_without_a_search_the_keys_do_not_matter_and_shards_share_the_events() -> None:
    """Under the index there is no knee in keys, and ten shards bear ten times the events."""
    basis = replace(BASIS, call_s=CALL_S)
    few = predict(basis, replace(ASKED, strategy="index"))
    many = predict(basis, replace(ASKED, strategy="index", keys=1e9))
    ten = predict(basis, replace(ASKED, strategy="index", keys=1e9, shards=10))
    assert few.knee_keys is None
    assert many.utilisation == few.utilisation
    assert ten.knee_events.likely == pytest.approx(10 * few.knee_events.likely, rel=0.05)
    assert few.even_ms.likely == pytest.approx(0.5, abs=0.1)


def test_a_small_count_is_more_work_in_shorter_turns() -> None:
    """A thousandth of the keys a call: p99 is a small part, and every call adds its own time to the utilisation."""
    basis = replace(BASIS, call_s=CALL_S)
    whole, paged = predict(basis, ASKED), predict(basis, replace(ASKED, count=100))
    assert paged.even_ms.likely - 0.5 < 0.01 * whole.even_ms.likely
    calls_s = 3 * (100_000 / 100 - 1) * CALL_S.likely
    assert paged.event_s.likely == pytest.approx(whole.event_s.likely + calls_s, rel=1e-6)


def test_a_knee_is_where_the_utilisation_is_one() -> None:
    """At the predicted knee, in keys or in events, the predicted utilisation is one, with paged searches and shards."""
    basis = replace(BASIS, call_s=CALL_S, costs={"SCAN": Costs(((1000, 1e-7), (1_000_000, 4e-7)))})
    asked = replace(ASKED, count=1000, shards=4)
    found = predict(basis, asked)
    assert found.knee_keys is not None
    at_keys = predict(basis, replace(asked, keys=found.knee_keys.likely))
    at_events = predict(basis, replace(asked, events=found.knee_events.likely))
    assert at_keys.utilisation.likely == pytest.approx(1, abs=1e-3)
    assert at_events.utilisation.likely == pytest.approx(1)


def test_p99_has_no_jump_downwards_where_the_simulation_takes_over() -> None:
    """Around a utilisation of 0.9 formula and simulation of even events agree; far beyond there is no p99."""
    keys = [share / (5 * 3 * KEY_S) for share in (0.86, 0.88, 0.9, 0.95)]
    waits = [predict(BASIS, replace(ASKED, keys=each)).even_ms.likely for each in keys]
    assert all(1 < after / before < 1.1 for before, after in pairwise(waits))
    far = predict(BASIS, replace(ASKED, keys=1e7))
    assert far.random_ms.likely == math.inf
    assert any("a bystander waits" in warning for warning in far.warnings)


def test_p99_at_random_moments_has_no_jump_where_the_simulation_takes_over() -> None:
    """It does so earlier than for even distances: around 0.85, where formula and simulation agree."""
    keys = [(share - BASIS.base) / (5 * 3 * KEY_S) for share in (0.82, 0.84, 0.86, 0.88)]
    waits = [predict(BASIS, replace(ASKED, keys=each)).random_ms.likely for each in keys]
    assert all(0.95 < after / before < 1.2 for before, after in pairwise(waits))


def test_a_server_that_is_full_of_other_work_has_no_knee_left() -> None:
    """With everything else at 100 % the knee is at nothing, and p99 has no limit."""
    found = predict(replace(BASIS, base=1.0), ASKED)
    assert found.knee_events.high == 0
    assert found.knee_keys == Range(0, 0, 0)
    assert found.even_ms.low == math.inf


def test_more_keys_than_memory_is_said() -> None:
    """The warning is there with too many keys for one server, and gone on enough shards."""
    basis = replace(BASIS, room_keys=1e6)
    assert any("more keys than memory" in said for said in predict(basis, replace(ASKED, keys=1e7)).warnings)
    assert predict(basis, replace(ASKED, keys=1e7, events=0.01, shards=10)).warnings == ()


def test_every_assumption_is_named() -> None:
    """Assumptions name what was not measured: larger sizes, another command, spread over shards."""
    asked = replace(ASKED, keys=1e8, shards=2, strategy="keys")
    said = " ".join(predict(BASIS, asked).assumptions)
    for words in (
        "the most that was measured",
        "KEYS visits a key in",
        "every search goes to every shard",
        "a whole core",
    ):
        assert words in said
    assert "the most that was measured" not in " ".join(predict(BASIS, ASKED).assumptions)
    one_size = replace(BASIS, costs={"SCAN": Costs(((100_000, KEY_S),))})
    assert "60 % of that more for each tenfold" in " ".join(predict(one_size, asked).assumptions)


def test_the_simulated_time_is_that_of_the_events_of_one_shard() -> None:
    """2,000 events at 5 a second take 400 s; on ten shards that share them ten times as long."""
    basis = replace(BASIS, call_s=CALL_S)
    for strategy, seconds in (("scan", 400), ("index", 4000)):
        said = predict(basis, replace(ASKED, strategy=strategy, shards=10)).assumptions[-1]
        assert f"over 2,000 events ({numbers.ms(1000 * seconds)})" in said


def test_json_has_null_for_what_has_no_limit() -> None:
    """An infinite wait is null, since JSON has no infinity."""
    told = json.loads(json.dumps(predict(BASIS, replace(ASKED, keys=1e9)).as_dict(), allow_nan=False))
    assert told["even_ms"] == {"low": None, "likely": None, "high": None}
    assert told["question"]["keys"] == 1e9


# --- recorded runs


@pytest.fixture(scope="module")
def found() -> list[Check]:
    """The checks of all records."""
    return list(checked(ROOT))


def test_every_run_whose_keys_grow_is_checked(found: list[Check]) -> None:
    """Both records of the main incident, and the one of a held server, have a knee and p99s to predict."""
    for run in ("key-growth", "key-growth-standard", "key-growth-held"):
        figures = [each.figure for each in found if each.run == run]
        assert figures[0].startswith("knee")
        assert len(figures) >= 2


def test_the_rest_of_a_run_follows_from_its_beginning(found: list[Check]) -> None:
    """By calibration and three lowest plateaus the knee is within 15 %, p99 below within 35 %."""
    for each in found:
        assert abs(each.off) <= (0.15 if each.figure.startswith("knee") else 0.35), each


def test_what_was_observed_is_in_the_range(found: list[Check]) -> None:
    """Every figure is in its range, and the knee also in the wider one without the calibration."""
    for each in found:
        assert each.predicted.low <= each.observed <= each.predicted.high, each
        if each.figure.startswith("knee"):
            assert each.alone.low <= each.observed <= each.alone.high, each


def test_a_doctored_run_is_not_predicted() -> None:
    """The check can fail: a knee is off by more if the plateaus were half as busy again as the lowest ones said."""
    run = Run(RUNS / "key-growth")
    for phase in run.arm("grow")[3:]:
        phase.utilisation = (phase.utilisation or 0.0) * 1.5
    assert operational.knee(run, "grow") is not None
    knee = next(checks(run))
    assert knee.figure.startswith("knee")
    assert abs(knee.off) > 0.15


def test_a_run_of_all_strategies_knows_each() -> None:
    """The run of the cures measured SCAN, KEYS and the index. KEYS visits a key in less than half of SCAN's time."""
    basis = read_basis(Run(RUNS / "cures"))
    assert set(basis.costs) == {"SCAN", "KEYS"}
    assert basis.cost("keys").at(120_000).likely < 0.5 * basis.cost("scan").at(120_000).likely
    assert 0 < basis.event("index").likely < 0.002
    assert basis.room_keys is not None
    assert 1e7 < basis.room_keys < 1e9


@pytest.mark.parametrize(
    "name", ["scan-count", "empty-slowlog", "eviction-cycle", "giant-index", "pipelined-delete"]
)
def test_a_run_without_events_that_search_is_refused(name: str) -> None:
    """The error names the scenario and those that would do, in one line."""
    with pytest.raises(
        UsageError, match=f"is a run of {name}, which has no events that search: name a run of"
    ):
        read_basis(Run(RUNS / name))


@pytest.mark.parametrize("name", ["shards", "one-slot"])
def test_a_run_that_searches_otherwise_is_refused(name: str) -> None:
    """Its events do search, so it is not said that they do not."""
    with pytest.raises(
        UsageError, match=f"is a run of {name}, whose events search by scan-tagged: name a run of"
    ):
        read_basis(Run(RUNS / name))


@pytest.mark.parametrize(
    ("server", "whole", "why"),
    [
        ("dragonfly", False, "serves others in the middle of a search"),
        ("keydb", True, "leaves most of a search out of its execution times"),
    ],
)
def test_a_run_on_a_server_of_another_kind_is_refused(server: str, whole: bool, why: str) -> None:
    """The formulas are not about Dragonfly, and the costs of KeyDB are not in its counters."""
    run = Run(RUNS / "key-growth")
    run.facts.whole_scans, run.facts.server = whole, server
    with pytest.raises(UsageError, match=rf"made on {server}, which {why}.*Name a run on valkey or redis\."):
        read_basis(run)
