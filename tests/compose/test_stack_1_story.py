"""The default story: without another command keys grow, p99 climbs on both servers, and no panel is empty.

Slow on purpose: it takes the five minutes a participant is promised, and uses them for everything that needs a
stack with history.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab.preflight import ROOT
from tests.compose.stack import Stack, until

SERVERS = ("dragonfly", "redis")
INCIDENT_SECONDS = 300
RISE = 5
P99 = "server:probe_latency:p99_10s"

MAY_BE_EMPTY: dict[str, str] = {}
"""Queries (their dashboard and panel) that may have no data here, and why."""


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
    """Queries without a value that is a number, on the server whose dashboard it is or on either, for half a minute: a
    store in the middle of a stall is not heard of for some scrapes, and a gap is the right thing to show then.
    """
    missing = {
        f"{board}: {panel} ({server}): {expression}": filled_in(expression, server)
        for board, panel, expression in expressions()
        if f"{board}: {panel}" not in MAY_BE_EMPTY
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
    """When the director let keys grow."""
    rows = story.history(f'lab_growth{{server="{server}"}}', story.began - 60, time.time())
    return next(at for at, value in rows if value == 1)


@pytest.fixture(scope="module")
def incident(story: Stack) -> dict[str, tuple[float, float, float]]:
    """Per server: p99 on its first plateau and later (s), and seconds from healthy until it was there."""
    found: dict[str, tuple[float, float, float]] = {}

    def look() -> bool:
        now = time.time()
        for server in set(SERVERS) - set(found):
            began = until(lambda name=server: growth_began(story, name), f"{server} grows", 120)
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
            until(lambda wanted=expression: story.value(wanted) > 0, expression, seconds)


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


@pytest.fixture(scope="module")
def fixed(story: Stack, incident: dict[str, Any]) -> float:
    """The fix, one switch away: both servers on the index; when that was."""
    for server in SERVERS:
        story.post("CONTROL_PORT", f"/api/servers/{server}/strategy", {"strategy": "index"})
    began = time.time()
    for server in SERVERS:
        done = f'cache_invalidation_strategy{{job="invalidator",server="{server}",strategy="index"}}'
        until(lambda wanted=done: story.value(wanted) == 1, done, 15)
        drained = f'sum(cache_invalidation_events_pending{{job="invalidator",server="{server}"}})'
        until(lambda wanted=drained: story.value(wanted) < 5, drained, 120)
    time.sleep(25)
    return began


@pytest.mark.parametrize("server", SERVERS)
def test_fix_brings_p99_down(server: str, story: Stack, incident: dict[str, Any], fixed: float) -> None:
    """Same keys, same events, p99 far below what it was."""
    assert story.value(f'{P99}{{server="{server}"}}') < incident[server][1] / 2


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
