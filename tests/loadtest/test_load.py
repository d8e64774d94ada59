"""The dials and tallies of the load, without Locust."""

from __future__ import annotations

import math

import pytest

from loadtest.customers.load import BadLoad, Load, Tally, fragment_name, seconds_to_answer


def test_fragment_names_are_the_storefronts() -> None:
    """A user's twenty fragment names go round the three areas."""
    names = [fragment_name(number) for number in range(20)]
    assert names[:4] == ["page-0", "cart-0", "offer-0", "page-1"]
    assert len(set(names)) == 20


def test_dials_come_from_the_environment() -> None:
    """Each LOADTEST_ variable sets its dial; a dial without a variable keeps its default."""
    load = Load.from_environment({"LOADTEST_EVENTS_PER_SECOND": "2.5", "LOADTEST_USERS": " 77 "})
    asked = load.describe(0)
    assert (asked["reads_per_second"], asked["events_per_second"], asked["users_population"]) == (50, 2.5, 77)
    assert load.events.per_second == 2.5


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("LOADTEST_READS_PER_SECOND", "many"),
        ("LOADTEST_READS_PER_SECOND", "-1"),
        ("LOADTEST_EVENTS_PER_SECOND", "nan"),
        ("LOADTEST_EVENTS_PER_SECOND", "inf"),
        ("LOADTEST_EVENTS_PER_SECOND", "10001"),
        ("LOADTEST_USERS", "0"),
        ("LOADTEST_USERS", "1.5"),
    ],
)
def test_a_bad_variable_is_one_line_and_exit_code_2(
    variable: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid value ends the process before it begins, and the line names the variable."""
    with pytest.raises(SystemExit) as ended:
        Load.from_environment({variable: text})
    complaint = capsys.readouterr().err
    assert ended.value.code == 2
    assert len(complaint.splitlines()) == 1
    assert variable in complaint


def test_customers_wait_as_long_as_the_environment_says() -> None:
    """Ten seconds without the variable."""
    assert seconds_to_answer({}) == seconds_to_answer({"LOADTEST_TIMEOUT_SECONDS": " "}) == 10
    assert seconds_to_answer({"LOADTEST_TIMEOUT_SECONDS": "300"}) == 300


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "3601", "long"])
def test_a_bad_patience_is_one_line_and_exit_code_2(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends the process before a request is sent."""
    with pytest.raises(SystemExit) as ended:
        seconds_to_answer({"LOADTEST_TIMEOUT_SECONDS": text})
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("loadtest: LOADTEST_TIMEOUT_SECONDS: ")


@pytest.mark.parametrize(
    "values",
    [
        {"reads_per_second": "5"},
        {"reads_per_second": True},
        {"reads_per_second": None},
        {"reads_per_second": math.inf},
        {"reads_per_second": math.nan},
        {"reads_per_second": 10**400},
        {"users_population": math.inf},
        {"users_population": 1.5},
        {"events_per_second": -0.1},
        {"users_population": 10**10},
        {"speed": 1},
        {"reads_per_second": 1, "events_per_second": -1},
    ],
)
def test_a_bad_change_changes_nothing(values: dict[str, object]) -> None:
    """A change with one wrong dial changes none."""
    load = Load()
    before = load.describe(0)
    with pytest.raises(BadLoad):
        load.change(values)
    assert {**load.describe(0), "seconds": 0} == {**before, "seconds": 0}


def test_a_share_scales_the_load_and_keeps_what_was_asked() -> None:
    """A share of a half halves both rates and the population; the end of the test restores them."""
    load = Load({"reads_per_second": 40, "events_per_second": 10, "users_population": 10})
    load.share = 0.5
    assert (load.reads.per_second, load.events.per_second) == (20, 5)
    assert {load.random_user() for _ in range(500)} == set(range(1, 6))
    load.change({"events_per_second": 20})
    assert load.events.per_second == 10
    load.end()
    assert (load.reads.per_second, load.events.per_second) == (40, 20)
    assert {load.random_user() for _ in range(500)} == set(range(1, 11))


def test_tallies_count_failures_and_percentiles() -> None:
    """A tally counts failures, and its percentiles are those of the latencies within 0.2 %; without any it has none."""
    tally = Tally()
    assert tally.percentile_ms(99) is None
    for milliseconds in range(1, 101):
        tally.add(float(milliseconds), failed=milliseconds > 90)
    assert (tally.count, tally.failures) == (100, 10)
    assert tally.percentile_ms(50) == pytest.approx(50, rel=0.002)
    assert tally.percentile_ms(99) == pytest.approx(99, rel=0.002)


def test_a_reset_forgets_the_tallies_only() -> None:
    """After a reset the counts are 0 and the dials are where they were."""
    load = Load({"events_per_second": 3})
    load.count("events", 1.0, failed=True)
    load.events.missed = 4
    load.reset()
    events = load.describe(0)["events"]
    assert events == {"count": 0, "failures": 0, "missed": 0, "due": 0, "p50_ms": None, "p99_ms": None}
    assert load.events.per_second == 3
