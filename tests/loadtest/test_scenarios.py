"""The scenarios, headless, for some seconds each, against a real storefront on a real server."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest

from tests.app.servicekit import Service, eventually
from tests.loadtest.conftest import Locust, Server

KEYS, GROWTH_S, HOLD_S = 6_000, 12, 5
USUAL = ("--keys", str(KEYS), "--growth-seconds", str(GROWTH_S), "--hold-seconds", str(HOLD_S))
VISITS = KEYS / 20 / GROWTH_S


class Line(NamedTuple):
    """A row of the printed table."""

    seconds: float
    strategy: str
    keys: int
    visits: float
    events: float
    missed: int
    get_ms: str
    page_ms: str


def table(output: str) -> list[Line]:
    """The rows of the table that a scenario printed."""
    found = re.findall(
        r"^ +(\d+) ([a-z-]+) +([\d,]+) +([\d.]+) +([\d.]+) +(\d+) +([\d.,]+|-) +([\d.,]+|-)$",
        output,
        re.MULTILINE,
    )
    return [
        Line(
            float(one[0]),
            one[1],
            int(one[2].replace(",", "")),
            float(one[3]),
            float(one[4]),
            int(one[5]),
            *one[6:],
        )
        for one in found
    ]


def is_as_planned(rows: list[Line], holds: int) -> None:
    """Check that keys grew linearly up to the plan, and that visits and events came at constant rates to the end."""
    assert len(rows) == pytest.approx(GROWTH_S + holds * HOLD_S, abs=1)
    for number, row in enumerate(rows, start=1):
        assert row.keys == pytest.approx(min(KEYS, number * KEYS / GROWTH_S), abs=0.08 * KEYS)
        assert (row.visits, row.events) == pytest.approx((VISITS, 5.0), rel=0.3), row
    assert rows[-1].keys == KEYS
    assert sum(row.visits for row in rows) / len(rows) == pytest.approx(VISITS, rel=0.05)
    assert sum(row.missed for row in rows) == 0


@pytest.mark.whole
def test_keys_grow_by_visits_at_a_constant_load(
    shop: Service, server: Server, run_locust: Callable[..., tuple[int, str]]
) -> None:
    """A table of the growth is printed, with both p99s of each window and their rank correlations; all keys are there.

    Two processes do it as one does: between them they have every customer, and no rate is doubled.
    """
    words = ("--host", shop.base, "--headless", "--only-summary", *USUAL, "--events-per-second", "5")
    code, output = run_locust(*words, "--processes", "2", file="key_growth")
    assert code == 0 and "Traceback" not in output, output
    rows = table(output)
    is_as_planned_by_two(rows, output)
    assert 0.8 * KEYS < server.client().dbsize() <= 1.05 * KEYS  # each index is a key, and events delete some

    server.client().flushall()
    code, output = run_locust(*words, file="key_growth")
    assert code == 0 and "Traceback" not in output, output
    rows = table(output)
    is_as_planned(rows, 1)
    assert {row.strategy for row in rows} == {"scan"}
    assert all(float(row.get_ms) > 0 and float(row.page_ms) > 0 for row in rows)
    assert (
        len(
            re.findall(
                r"rank correlation of keys and p99 of a (GET|page): -?\d\.\d\d \(95 % interval", output
            )
        )
        == 2
    )
    assert f"at {KEYS:,} keys under scan: p99 of a GET " in output
    assert 0.8 * KEYS < server.client().dbsize() <= 1.05 * KEYS  # each index is a key, and events delete some


def is_as_planned_by_two(rows: list[Line], output: str) -> None:
    """As `is_as_planned`, over the whole, as Locust counted it: workers report every three seconds only."""
    assert [row.seconds for row in rows] == sorted({row.seconds for row in rows})
    assert rows[-1].keys == KEYS
    assert [row.keys for row in rows] == sorted(row.keys for row in rows)
    for request, rate in ((r"GET +/users/\[id\]/page", VISITS), (r"POST +/users/\[id\]/events", 5.0)):
        counts = re.findall(rf"^{request} +(\d+) ", output, re.MULTILINE)
        assert float(counts[0]) == pytest.approx(rate * rows[-1].seconds, rel=0.1)


@pytest.mark.whole
def test_before_and_after_have_the_same_load(
    shop: Service, run_locust: Callable[..., tuple[int, str]]
) -> None:
    """Keys grow under scan, then the same load goes on under index; the strategy that was is put back."""
    shop.put("/settings/invalidation", {"strategy": "exact"})
    code, output = run_locust(
        "--host", shop.base, "--headless", "--only-summary", *USUAL, "--events-per-second", "5", file="before_after"
    )  # fmt: skip
    assert code == 0 and "Traceback" not in output, output
    rows = table(output)
    is_as_planned(rows, 2)
    assert [a.strategy for a, b in pairwise(rows) if a.strategy != b.strategy] == ["scan"]
    for strategy in ("scan", "index"):
        assert f"at {KEYS:,} keys under {strategy}: p99 of a GET " in output
    assert shop.get("/settings/invalidation").json["strategy"] == "exact"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("file", "strategies", "more"),
    [
        ("keys_command", ["keys"], ()),
        (
            "giant_index",
            ["index-naive", "index"],
            ("--giant-fragments", "2000", "--giant-every-seconds", "1"),
        ),
    ],
)
def test_the_other_causes(
    shop: Service, server: Server, run_locust: Callable[..., tuple[int, str]], file: str, strategies: list[str],
    more: tuple[str, ...],
) -> None:  # fmt: skip
    """Each sets its strategies in turn, at one load, and leaves the storefront as it was."""
    words = ("--keys", "2000", "--growth-seconds", "6", "--hold-seconds", "3", "--events-per-second", "5")
    code, output = run_locust("--host", shop.base, "--headless", *words, *more, file=file)
    assert code == 0 and "Traceback" not in output, output
    assert list(dict.fromkeys(row.strategy for row in table(output))) == strategies
    assert shop.get("/settings/invalidation").json["strategy"] == "scan"
    if more:
        found = re.findall(r"the giant's events under ([a-z-]+): (\d+), done after [\d.]+ s", output)
        assert [name for name, _ in found] == strategies and all(int(count) >= 2 for _, count in found)
        eventually(lambda: not list(server.client().scan_iter("shop:user:999999999:*", count=10_000)))


def test_the_load_changes_while_it_runs(shop: Service, start_locust: Callable[..., Locust]) -> None:
    """With --keys 0 nobody comes until PUT /load says so; GET /load tells how many have come; a change is logged."""
    locust = start_locust(shop.base, "--keys", "0", "--events-per-second", "0", file="key_growth")
    before = locust.ask("GET", "/load")[1]
    assert (before["visits_per_second"], before["events_per_second"], before["customers_seen"]) == (0, 0, 0)
    locust.change(visits_per_second=40, users_population=60)
    eventually(lambda: locust.ask("GET", "/load")[1]["customers_seen"] == 60)
    eventually(lambda: locust.ask("GET", "/load")[1]["visits"]["count"] > 80)
    locust.change(users_population=20)
    assert locust.ask("GET", "/load")[1]["customers_seen"] == 20
    said = str(locust.ask("GET", "/logs")[1])
    assert "load: users_population 60 -> 20" in said, said
    assert 'request="visits"' in locust.text("/metrics")
    assert locust.ask("PUT", "/load", {"visits_per_second": -1})[0] == 400


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("words", "environment", "hint"),
    [
        (["--keys", "-1"], {}, "--keys"),
        (["--keys", "many"], {}, "--keys"),
        (["--growth-seconds", "0"], {}, "--growth-seconds"),
        (["--keys", "100000000", "--growth-seconds", "1"], {}, "must be between"),
        (["--hold", "x"], {}, "--hold"),
        ([], {"LOADTEST_EVENTS_PER_SECOND": "ten"}, "ten"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(
    run_locust: Callable[..., tuple[int, str]], words: list[str], environment: dict[str, str], hint: str
) -> None:
    """Nothing is sent; the line names what is wrong."""
    code, output = run_locust(
        "--host", "http://127.0.0.1:1", "--headless", *words, file="key_growth", **environment
    )
    complaints = [line for line in output.splitlines() if line.startswith("loadtest: ")]
    assert code == 2 and len(complaints) == 1 and hint in complaints[0], output
    assert "Traceback" not in output


def test_a_storefront_that_is_gone_ends_a_scenario(run_locust: Callable[..., tuple[int, str]]) -> None:
    """The error names what does not answer, in one line; the exit code is 2."""
    code, output = run_locust(
        "--host", "http://127.0.0.1:1", "--headless", "--only-summary", file="before_after"
    )
    assert code == 2 and "Traceback" not in output, output
    assert "the scenario cannot go on: GET http://127.0.0.1:1/settings/invalidation" in output
