"""The default story: customers come, keys grow, p99 climbs on both servers; nobody steers; no panel is empty.

Slow on purpose: it takes as long as a participant watches, and the time serves every test that needs a stack with
history.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from lab import ROOT
from tests.compose.stack import Stack, until
from tests.compose.stalls import Stalls

SERVERS = ("dragonfly", "redis")
INCIDENT_SECONDS = 300
ILL, WELL, LEFT = 10.0, 2.0, 0.1
RISE = 5
CURED_S = 15.0
P99 = "server:probe_latency:p99_10s"

MAY_BE_EMPTY = ("max by (server) (lab_knee_keys",)
"""How queries begin that may have no data here: saturation is drawn from half its number of keys on."""


def expressions() -> Iterator[tuple[str, str, str]]:
    """(dashboard, panel, PromQL) of every query of every committed dashboard."""

    def panels(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for panel in row.get("panels", ()):
            yield panel
            yield from panels(panel)

    for path in sorted((ROOT / "grafana" / "dashboards").glob("*.json")):
        for panel in panels(json.loads(path.read_text(encoding="utf-8"))):
            for target in panel.get("targets", ()):
                if "expr" in target:
                    yield path.stem, panel.get("title", ""), target["expr"]


def filled_in(expression: str, server: str) -> str:
    """A query with the dashboards' variables as Grafana would put them in."""
    values = {
        "server": server,
        "__rate_interval": "15s",
        "__interval": "5s",
        "__range": "15m",
        "__interval_ms": "5000",
    }
    # ${name:format} or $name; in `[$__range:2s]` the colon is the subquery's.
    return re.sub(
        r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))",
        lambda found: values.get(found[1] or found[2], found[0]),
        expression,
    )


def empty_panels(story: Stack) -> list[str]:
    """Queries that give no number for half a minute, on the dashboard's own server or else on each server.

    Half a minute, because a server in the middle of a stall misses some scrapes, and a gap is then right.
    """
    missing = {
        f"{board}: {panel} ({server}): {expression}": filled_in(expression, server)
        for board, panel, expression in expressions()
        if not expression.startswith(MAY_BE_EMPTY)
        for server in ([board] if board in SERVERS else SERVERS)
    }
    until = time.monotonic() + 30
    while True:
        missing = {
            name: query
            for name, query in missing.items()
            if not any(value == value for value in story.query(query).values())
        }
        if not missing or time.monotonic() > until:
            return list(missing)
        time.sleep(2)


def growth_began(story: Stack, server: str) -> float:
    """The Unix time from which all customers came. Raises LookupError if it has not yet."""
    rows = story.history(f'lab_growth{{server="{server}"}}', story.began - 60, time.time())
    grown = [at for at, value in rows if value == 1]
    if not grown:
        raise LookupError(f"{server} does not grow yet")
    return grown[0]


@pytest.fixture(scope="module")
def incident(story: Stack) -> dict[str, tuple[float, float, float]]:
    """Per server, in seconds: p99 on its first plateau, p99 after the climb, and the time from healthy until then."""
    found: dict[str, tuple[float, float, float]] = {}

    def look() -> bool:
        now = time.time()
        for server in set(SERVERS) - set(found):
            began = until(partial(growth_began, story, server), f"{server} grows", 180)
            rows = story.history(f'{P99}{{server="{server}"}}', began, now)
            first = [value for at, value in rows if at < began + 30]
            last = [value for at, value in rows if at > now - 15]
            if now > began + 40 and first and last:
                plateau, climbed = statistics.median(first), statistics.median(last)
                if climbed >= RISE * plateau:
                    found[server] = (plateau, climbed, now - story.began)
        return len(found) == len(SERVERS)

    until(look, f"p99 {RISE} times its first plateau on both servers", INCIDENT_SECONDS + 60, every=3)
    return found


def test_first_data_within_a_minute(story: Stack) -> None:
    """A minute after everything is healthy the dashboards' main series are there."""
    for server in SERVERS:
        for expression in (f'{P99}{{server="{server}"}}', f'lab_store_up{{server="{server}"}}'):
            seconds = max(5, story.began + 60 - time.time())
            until(partial(story.above, expression, 0), expression, seconds)


@pytest.mark.parametrize("server", SERVERS)
def test_incident_comes_by_itself(
    server: str, story: Stack, incident: dict[str, tuple[float, float, float]]
) -> None:
    """Without another command p99 climbs to several times its first plateau, within five minutes."""
    plateau, climbed, seconds = incident[server]
    print(f"{server}: p99 {plateau * 1000:.1f} -> {climbed * 1000:.1f} ms, {seconds:.0f} s after healthy")
    assert seconds <= INCIDENT_SECONDS


@pytest.mark.parametrize("server", SERVERS)
def test_slow_log_blames_scan(server: str, story: Stack, incident: dict[str, Any]) -> None:
    """SCAN dominates the slow log: the clue of the incident."""
    entries = {
        dict(k)["command"]: v
        for k, v in story.query(f'lab_slowlog_entries_total{{server="{server}"}}').items()
    }
    assert entries["SCAN"] > 0
    assert entries["SCAN"] >= 0.9 * sum(entries.values()), entries


def test_no_panel_is_empty_under_scan(story: Stack, incident: dict[str, Any]) -> None:
    """Every query of every dashboard returns data while the incident is on."""
    assert empty_panels(story) == []


def times_healthy(row: dict[str, Any]) -> float:
    """p99 over the last ten seconds as a multiple of the healthy one; NaN if there is none yet."""
    return float("nan") if row["p99_ms"] is None else float(row["p99_ms"]) / float(row["healthy_p99_ms"])


@pytest.fixture(scope="module")
def level(story: Stack, incident: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The state of both servers once all customers have come."""
    until(
        lambda: all(row["shown_phase"] == "level" for row in story.servers().values()),
        "all keys on both servers",
        story.began + INCIDENT_SECONDS + 120 - time.time(),
        every=2,
    )
    return story.servers()


def test_nobody_steers(story: Stack, level: dict[str, dict[str, Any]]) -> None:
    """Events arrive at the planned rate from the first customer on, and visits, too: the dashboards show constants."""
    for server in SERVERS:
        began = growth_began(story, server)
        for metric in ("lab_events_per_second", "lab_events_planned_per_second"):
            rows = story.history(f'{metric}{{server="{server}"}}', began + 5, time.time())
            assert {value for _, value in rows} == {level[server]["calibrated_events_per_second"]}
        done = f'sum(cache_invalidation_events_total{{outcome="done",server="{server}"}})'
        rows = story.history(done, began + 5, time.time())
        (first, before), (last, after) = rows[0], rows[-1]
        rate = (after - before) / (last - first)
        print(
            f"{server}: {rate:.3f} events a second of {level[server]['events_planned_per_second']:.3f} planned"
        )
        assert rate == pytest.approx(level[server]["events_planned_per_second"], rel=0.1)


def test_it_stays_ill_and_does_not_drown(story: Stack, level: dict[str, dict[str, Any]]) -> None:
    """For half a minute p99 is ten times the healthy one in 90 % of the samples, and backlog and keys stay bounded."""
    rows = []
    end = time.monotonic() + 30
    while time.monotonic() < end:
        rows.append(story.servers())
        time.sleep(2)
    for server in SERVERS:
        times = [times_healthy(row[server]) for row in rows]
        print(f"{server}: {min(times):.0f} to {max(times):.0f} times the healthy p99")
        assert sum(one >= ILL for one in times) >= 0.9 * len(times)
        assert max(row[server]["events_in_flight"] for row in rows) < 100
        assert all(abs(row[server]["keys"] / level[server]["keys"] - 1) < 0.1 for row in rows)


def test_climb_is_a_rank_correlation(level: dict[str, dict[str, Any]]) -> None:
    """Keys and p99 rise together: the rank correlation that the console reports is 0.8 or more."""
    assert all(row["rank_correlation"] >= 0.8 for row in level.values())


def test_those_who_watch_are_cheap_in_the_incident(story: Stack, level: dict[str, Any]) -> None:
    """Everything that is neither a server nor a storefront uses at most 35 % of a core."""
    cores = story.cores("dragonfly-", "redis-1", "web-", "invalidator-", "warmer-")
    print(f"those who watch: {cores:.2f} cores")
    assert cores <= 0.35


def all_on(story: Stack, action: str, body: dict[str, Any]) -> None:
    """Pull a lever on both servers; each must answer within five seconds, with every part done."""
    for server in SERVERS:
        began = time.monotonic()
        told = story.post("CONTROL_PORT", f"/api/servers/{server}/{action}", body)
        assert time.monotonic() - began < 5
        assert all(part["done"] for part in told["parts"]), told


def seconds_until(story: Stack, check: Any, what: str, seconds: float) -> float:
    """Wait until `check` is true of both servers' states; return how many seconds that took."""
    began = time.monotonic()
    try:
        until(lambda: all(check(row) for row in story.servers().values()), what, seconds, every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}; seen at the end: {story.servers()}") from None
    return time.monotonic() - began


def cured(row: dict[str, Any], before: float) -> bool:
    """True if the incident is gone from p99, which was `before` times the healthy one.

    It is gone below twice the healthy p99; or below ten times, if nine tenths of what the incident had added are gone:
    on a busy machine other programs double the few milliseconds that are healthy.
    """
    return times_healthy(row) < max(WELL, min(ILL, 1 + LEFT * (before - 1)))


def cured_in(story: Stack, pull: Callable[[], None]) -> float:
    """Pull the levers that cure; return after how many seconds each server had been seen cured, the later one of both.

    Seconds that a stall of the machine spoiled do not count.
    """
    before = {name: times_healthy(row) for name, row in story.servers().items()}
    began, ill, took = time.monotonic(), set(before), 0.0
    with Stalls() as stalls:
        pull()
        while ill and took < 60:
            rows = story.servers()
            took = time.monotonic() - began
            ill -= {name for name, row in rows.items() if cured(row, before[name])}
            seen = (f"{name} {times_healthy(row):.1f} times healthy" for name, row in rows.items())
            print(f"{took:.1f} s after the cure began: {', '.join(seen)}; ill: {sorted(ill)}")
            time.sleep(0.5)
    undisturbed = stalls.undisturbed(began, took)
    print(f"before it {before}; {undisturbed:.1f} s undisturbed by {len(stalls.at)} stalls of the machine")
    return float("inf") if ill else undisturbed


@pytest.fixture(scope="module")
def fixed(story: Stack, level: dict[str, Any]) -> float:
    """Switch both servers to the index, check that this cures them in time, and return the Unix time of the switch."""
    began = time.time()
    assert cured_in(story, lambda: all_on(story, "strategy", {"strategy": "index"})) <= CURED_S
    for server in SERVERS:
        done = f'cache_invalidation_strategy{{job="invalidator",server="{server}",strategy="index"}}'
        until(partial(story.above, f"{done} == bool 1", 0), done, 15)
    time.sleep(25)
    return began


@pytest.mark.parametrize("server", SERVERS)
def test_fix_brings_p99_down(server: str, story: Stack, incident: dict[str, Any], fixed: float) -> None:
    """With the same keys and events, the fix brings p99 below half of what it was."""
    assert story.value(f'{P99}{{server="{server}"}}') < incident[server][1] / 2
    assert story.servers()[server]["shown_phase"] == "cured"


def test_no_panel_is_empty_under_the_index(story: Stack, fixed: float) -> None:
    """Every query of every dashboard returns data after the fix, too."""
    assert empty_panels(story) == []


def test_actions_become_annotations(story: Stack, fixed: float) -> None:
    """Each dashboard's annotation queries find the switch."""
    seen = 0
    for path in sorted((ROOT / "grafana" / "dashboards").glob("*.json")):
        for annotation in json.loads(path.read_text(encoding="utf-8")).get("annotations", {}).get("list", ()):
            if "lab_actions_total" not in annotation.get("expr", ""):
                continue
            for server in SERVERS:
                text = re.sub(r"\[\$\w+\]", "[15s]", annotation["expr"])
                span = f"max_over_time(({filled_in(text, server)})[3m:2s])"
                rows = story.query(span)
                seen += any(dict(labels).get("action") == "strategy_index" for labels in rows)
    assert seen >= len(SERVERS)


def test_alerts_fire_in_the_incident(story: Stack, incident: dict[str, Any]) -> None:
    """An alert on a symptom fired for each server while the incident was on."""
    rows = story.query('max by (server) (max_over_time(ALERTS{alertstate="firing"}[5m]))')
    assert {dict(labels).get("server") for labels in rows} >= set(SERVERS)


def drown(story: Stack) -> None:
    """Send both servers fifteen times the planned events until hundreds are in flight.

    A server that was restarted is empty for twenty seconds. The number in flight rises and falls once events are held
    back, so a server counts as drowned once it has been seen so.
    """
    all_on(story, "strategy", {"strategy": "scan"})
    for server, row in story.servers().items():
        story.post(
            "CONTROL_PORT",
            f"/api/servers/{server}/rate",
            {"events_per_second": 15 * row["calibrated_events_per_second"]},
        )
    drowned: set[str] = set()

    def drowns(row: dict[str, Any]) -> bool:
        if (row["events_in_flight"] or 0) > 200 and times_healthy(row) > ILL:
            drowned.add(row["name"])
        return row["name"] in drowned

    seconds_until(story, drowns, "both servers drown", 150)


def test_ill_again_under_scan(story: Stack, fixed: float) -> None:
    """With the cause back, p99 is ten times the healthy one again."""
    all_on(story, "strategy", {"strategy": "scan"})
    seconds_until(story, lambda row: times_healthy(row) >= ILL, "both servers ill again", 90)


def test_over_the_edge_ends_by_itself(story: Stack, fixed: float) -> None:
    """Three times the events come for a minute, and then as many as planned, without a hand."""
    all_on(story, "over", {"on": True})
    for row in story.servers().values():
        assert row["over"] and row["events_per_second"] == 3 * row["events_planned_per_second"]
    seconds_until(story, lambda row: not row["over"], "the minute is over", 75)
    for row in story.servers().values():
        assert row["events_per_second"] == row["events_planned_per_second"]


def test_the_fix_works_when_everything_drowns(story: Stack, fixed: float) -> None:
    """With hundreds of events in flight the switch answers, and cures within `CURED_S`.

    The rate is first set back to the usual one: fifteen times as many events keep p99 near twice the healthy one on two
    cores, even with the index.
    """
    drown(story)

    def cure() -> None:
        all_on(story, "rate", {"events_per_second": None})
        all_on(story, "strategy", {"strategy": "index"})

    assert cured_in(story, cure) <= CURED_S


def test_restart_works_when_everything_drowns(story: Stack, fixed: float) -> None:
    """A drowned server can be restarted: the answer comes within 5.5 s, and the server starts again within 30 s."""
    drown(story)
    before = {server: story.inspect(server)["State"]["StartedAt"] for server in SERVERS}
    for server in SERVERS:
        began = time.monotonic()
        story.post("CONTROL_PORT", f"/api/servers/{server}/restart", {})
        assert time.monotonic() - began < 5.5
    for server in SERVERS:
        until(
            partial(story.started_since, server, before[server]),
            f"{server} restarted",
            30,
        )


def test_stop_and_start_when_everything_drowns(story: Stack, fixed: float) -> None:
    """A stop of everything reaches every part within 5 s, and a new start gives a fresh scene within 30 s."""
    drown(story)
    began = time.monotonic()
    told = story.post("CONTROL_PORT", "/api/stop", {})
    assert time.monotonic() - began < 5.5 and all(part["done"] for part in told["parts"]), told
    assert {row["events_per_second"] for row in story.servers().values()} == {0}
    story.post("CONTROL_PORT", "/api/start", {})
    took = seconds_until(
        story, lambda row: row["shown_phase"] == "healthy", "a fresh scene on both servers", 60
    )
    print(f"a fresh scene {took:.0f} s after the start")
    assert took <= 30
