"""Locust with the lab's locustfile against a stand-in for the storefront, as real processes."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.app.servicekit import Service


def rate(moments: list[tuple[float, str]]) -> float:
    """Requests per second between the first and the last request."""
    return (len(moments) - 1) / (moments[-1][0] - moments[0][0])


def gaps(moments: list[tuple[float, str]]) -> list[float]:
    """The times between requests, ascending."""
    return sorted(b[0] - a[0] for a, b in itertools.pairwise(moments))


def wait_for_load(storefront: Any, count: int) -> None:
    """Wait until that many events have come."""
    deadline = time.monotonic() + 60
    while len(storefront.events) < count:
        assert time.monotonic() < deadline, "no load"
        time.sleep(0.05)


@pytest.mark.whole
def test_headless_asks_at_the_asked_rates(
    storefront: Any, run_locust: Callable[..., tuple[int, str]]
) -> None:
    """`--headless --run-time` delivers both rates within a tenth, evenly, by valid requests, and exits 0."""
    code, output = run_locust(
        "--host", storefront.url, "--headless", "--run-time", "6s",
        LOADTEST_READS_PER_SECOND="40", LOADTEST_EVENTS_PER_SECOND="20", LOADTEST_USERS="30",
    )  # fmt: skip
    assert code == 0, output
    assert "Traceback" not in output
    assert rate(storefront.events) == pytest.approx(20, rel=0.1)
    assert rate(storefront.reads) == pytest.approx(40, rel=0.1)
    between = gaps(storefront.events)
    assert between[len(between) // 2] == pytest.approx(1 / 20, rel=0.2)
    assert between[len(between) * 9 // 10] < 2 / 20
    assert all(re.fullmatch(r"/users/\d+/events", path) for _, path in storefront.events)
    asked = [
        re.fullmatch(r"/users/(\d+)/fragments/((?:page|cart|offer)-\d)", path) for _, path in storefront.reads
    ]
    assert all(asked)
    assert {int(match[1]) for match in asked if match} <= set(range(1, 31))
    assert all(body["type"] in ("order", "profile", "price") for body in storefront.bodies)


@pytest.mark.whole
def test_rates_change_while_it_runs(storefront: Any, start_locust: Callable[..., Any]) -> None:
    """PUT /load takes effect within a second: up, down to 0, and up again; GET /load counts what was sent."""
    locust = start_locust(storefront.url, LOADTEST_READS_PER_SECOND="0", LOADTEST_EVENTS_PER_SECOND="10")
    wait_for_load(storefront, 10)
    assert rate(storefront.events) == pytest.approx(10, rel=0.2)

    locust.change(events_per_second=50)
    time.sleep(1)
    storefront.events.clear()
    time.sleep(2)
    assert rate(list(storefront.events)) == pytest.approx(50, rel=0.1)

    locust.change(events_per_second=0)
    time.sleep(1)
    storefront.events.clear()
    assert locust.ask("POST", "/load/reset")[1]["events"]["count"] == 0
    time.sleep(1)
    assert storefront.events == []
    assert storefront.reads == []

    locust.change(events_per_second=20, reads_per_second=5)
    time.sleep(2)
    locust.change(events_per_second=0, reads_per_second=0)
    time.sleep(0.5)
    report = locust.ask("GET", "/load")[1]
    assert report["events"]["count"] == len(storefront.events) == pytest.approx(40, rel=0.15)
    assert report["reads"]["count"] == len(storefront.reads) == pytest.approx(10, rel=0.3)
    assert report["events"]["missed"] == report["reads"]["missed"] == report["events"]["failures"] == 0
    assert 0 < report["events"]["p50_ms"] <= report["events"]["p99_ms"]
    assert report["users"] > 0


def test_failures_are_counted(storefront: Any, start_locust: Callable[..., Any]) -> None:
    """A storefront that answers 500 shows as failures, and the rate is still asked for."""
    storefront.broken = True
    locust = start_locust(storefront.url, LOADTEST_EVENTS_PER_SECOND="20")
    wait_for_load(storefront, 40)
    report = locust.ask("GET", "/load")[1]
    assert report["events"]["failures"] == report["events"]["count"] > 0
    assert rate(list(storefront.events)) == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize(
    "body",
    [
        '{"events_per_second": -1}',
        '{"events_per_second": "x"}',
        '{"pace": 1}',
        "[1]",
        "no json",
        " " * 5000 + "{}",
        "[" * 4000,
        '{"events_per_second": 1' + "0" * 400 + "}",
    ],
)
def test_a_bad_change_is_a_problem_and_changes_nothing(quiet_locust: Any, body: str) -> None:
    """A wrong PUT /load is answered by problem+json with status 400; every dial stays where it was."""
    before = quiet_locust.ask("GET", "/load")[1]
    status, problem = quiet_locust.ask("PUT", "/load", body)
    assert status == problem["status"] == 400
    assert problem["detail"]
    after = quiet_locust.ask("GET", "/load")[1]
    assert after["events_per_second"] == before["events_per_second"]


def test_locusts_pages_answer_to_names_of_this_machine_only(quiet_locust: Any) -> None:
    """Locust's own pages, which can stop the load, and the lab's answer 421 to any name that is not this machine's."""
    for method, path in (("GET", "/"), ("GET", "/stats/requests"), ("GET", "/stop"), ("PUT", "/load")):
        assert quiet_locust.ask(method, path, "{}", host="evil.example")[0] == 421, path
    assert quiet_locust.ask("GET", "/load")[0] == 200


def test_no_page_of_another_site_acts_on_locust(quiet_locust: Any) -> None:
    """Changes by Locust's own interface are refused to other origins, and so is another host."""
    evil = {"Origin": "http://evil.example"}
    for method, path in (("POST", "/swarm"), ("GET", "/stop"), ("PUT", "/load"), ("OPTIONS", "/load")):
        assert quiet_locust.ask(method, path, "{}", headers=evil)[0] == 403, path
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    swarm = "user_count=1&spawn_rate=1&host=http://192.0.2.1"
    user = json.dumps({"user_class_name": "Customer", "host": "http://192.0.2.1"})
    for path, body, headers in (("/swarm", swarm, form), ("/user", user, form), ("/user", user, {})):
        status, problem = quiet_locust.ask("POST", path, body, headers=headers)
        assert status == 400 and "--host" in problem["detail"], path


@pytest.mark.whole
def test_growth_adds_customers_and_load_step_by_step(
    storefront: Any, run_locust: Callable[..., tuple[int, str]]
) -> None:
    """Under LOADTEST_SHAPE=growth each step has more events than the one before, up to the asked rate."""
    code, output = run_locust(
        "--host", storefront.url, "--headless", "--run-time", "12s",
        LOADTEST_SHAPE="growth", LOADTEST_STEP_SECONDS="2", LOADTEST_READS_PER_SECOND="50",
        LOADTEST_EVENTS_PER_SECOND="50", LOADTEST_USERS="1000",
    )  # fmt: skip
    assert code == 0, output
    first = storefront.events[0][0]
    steps = [sum(first + 2 * n <= at < first + 2 * n + 2 for at, _ in storefront.events) for n in range(5)]
    assert steps == sorted(steps)
    assert steps[0] == pytest.approx(2 * 10, rel=0.5)
    assert steps[4] == pytest.approx(2 * 50, rel=0.2)
    early = [int(path.split("/")[2]) for at, path in storefront.reads if at < first + 1]
    late = [int(path.split("/")[2]) for at, path in storefront.reads if at > first + 8]
    assert max(early) <= 200
    assert max(late) > 800


@pytest.mark.whole
def test_hold_asks_for_the_whole_load_and_ends_by_run_time(
    storefront: Any, run_locust: Callable[..., tuple[int, str]]
) -> None:
    """Under LOADTEST_SHAPE=hold the rate is the asked one from the start, and --run-time still ends it."""
    code, output = run_locust(
        "--host", storefront.url, "--headless", "--run-time", "4s",
        LOADTEST_SHAPE="hold", LOADTEST_EVENTS_PER_SECOND="20",
    )  # fmt: skip
    assert code == 0, output
    assert rate(storefront.events) == pytest.approx(20, rel=0.1)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("arguments", "environment", "hint"),
    [
        (
            ["--host", "http://127.0.0.1:1"],
            {"LOADTEST_EVENTS_PER_SECOND": "ten"},
            "LOADTEST_EVENTS_PER_SECOND",
        ),
        (["--host", "http://127.0.0.1:1"], {"LOADTEST_USERS": "-5"}, "LOADTEST_USERS"),
        (["--host", "http://127.0.0.1:1"], {"LOADTEST_SHAPE": "square"}, "LOADTEST_SHAPE"),
        (["--host", "http://127.0.0.1:1"], {"LOADTEST_STEP_SECONDS": "0"}, "LOADTEST_STEP_SECONDS"),
        (["--host", "127.0.0.1:1"], {}, "--host"),
        ([], {}, "--host"),
    ],
)
def test_bad_settings_are_one_line_and_exit_code_2(
    run_locust: Callable[..., tuple[int, str]], arguments: list[str], environment: dict[str, str], hint: str
) -> None:
    """Locust does not start with invalid settings; one line names the setting."""
    code, output = run_locust("--headless", "--run-time", "5s", *arguments, **environment)
    complaints = [line for line in output.splitlines() if line.startswith("loadtest: ")]
    assert code == 2
    assert len(complaints) == 1
    assert hint in complaints[0]
    assert "Traceback" not in output


def test_the_real_storefront_understands_the_load(
    shop: Service, server: Any, start_locust: Callable[..., Any]
) -> None:
    """The storefront answers every request of the load without a failure, and caches what was read."""
    locust = start_locust(shop.base, LOADTEST_READS_PER_SECOND="50", LOADTEST_EVENTS_PER_SECOND="10")
    report: dict[str, Any] = {"events": {"count": 0}}
    deadline = time.monotonic() + 60
    while report["events"]["count"] < 30:
        assert time.monotonic() < deadline, report
        time.sleep(0.2)
        report = locust.ask("GET", "/load")[1]
    assert report["events"]["failures"] == report["reads"]["failures"] == 0
    assert report["reads"]["count"] > 0
    assert list(server.client().scan_iter("shop:*:*-*", count=1000))
