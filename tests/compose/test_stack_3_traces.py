"""A trace leads from the web process over the invalidator to the server, complete however long; exemplars name it."""

from __future__ import annotations

import base64
import json
import secrets
import time
import urllib.parse
from typing import Any

import pytest

from tests.compose.stack import Stack, until

SERVERS = ("dragonfly", "redis")


def post_sampled(stack: Stack, server: str, user: int) -> str:
    """Post an event as a client whose own trace is sampled; return the trace's id."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    code = (
        "import urllib.request as u\n"
        f"r=u.Request('http://web-{server}:8000/users/{user}/events',b'{{\"type\":\"order\"}}',"
        f"{{'Content-Type':'application/json','traceparent':'00-{trace}-{span}-01'}})\n"
        "print(u.urlopen(r,timeout=10).status)"
    )
    assert stack.inside(f"probe-{server}", code) == "202"
    return trace


def spans_of(stack: Stack, trace: str) -> list[dict[str, Any]]:
    """Every span of a trace, with the service it came from."""
    answer = stack.get("TEMPO_PORT", f"/api/traces/{trace}")
    found = []
    for batch in answer["batches"]:
        resource = {a["key"]: a["value"].get("stringValue") for a in batch["resource"]["attributes"]}
        for scope in batch["scopeSpans"]:
            found += [{**span, "service": resource["service.name"]} for span in scope["spans"]]
    return found


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    """A span's attributes as a dictionary of texts."""
    return {a["key"]: str(next(iter(a["value"].values()))) for a in span.get("attributes", ())}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("strategy", ["scan", "index"])
def test_one_trace_from_web_to_server(server: str, strategy: str, stack: Stack) -> None:
    """Web, invalidator and their calls to the server are one trace, linked parent to child, under either strategy."""
    status, _, _ = stack.http(server, "PUT", "/settings/invalidation", {"strategy": strategy})
    assert status == 200
    time.sleep(1.5)  # a change of settings is seen within a second
    trace = post_sampled(stack, server, 7)

    def whole() -> list[dict[str, Any]] | None:
        spans = spans_of(stack, trace)
        names = {(span["service"], span["name"]) for span in spans}
        server_call = "SCAN" if strategy == "scan" else "SSCAN"
        wanted = {("shop-invalidator", "invalidate user"), ("shop-invalidator", server_call)}
        return spans if wanted <= names and any(service == "shop-web" for service, _ in names) else None

    spans = until(whole, f"trace {trace} whole", 30)
    by_id = {span["spanId"]: span for span in spans}
    [request] = [span for span in spans if span["service"] == "shop-web" and "events" in span["name"]]
    [work] = [span for span in spans if span["name"] == "invalidate user"]
    [sent] = [span for span in spans if span["name"] == "send outbox"]
    assert by_id[work["parentSpanId"]] is sent
    assert by_id[sent["parentSpanId"]] is request
    assert work["service"] == "shop-invalidator"
    calls = [span for span in spans if span["service"] == "shop-invalidator" and span is not work]
    assert calls
    assert all(call["parentSpanId"] == work["spanId"] for call in calls)
    assert {attributes(call)["peer.service"] for call in calls} == {server}


def test_storm_of_spans_arrives_whole(stack: Stack) -> None:
    """An event that pages through the keys with a COUNT of 20 makes thousands of spans; every one reaches Tempo."""
    server = "redis"
    assert stack.http(server, "PUT", "/settings/warming", {"target_keys": 20_000})[0] == 200

    def filled() -> bool:
        _, _, text = stack.http(server, "GET", "/settings/warming")
        return bool(json.loads(text)["state"] == "idle" and json.loads(text)["keys"] >= 19_000)

    until(filled, "20 000 keys", 60)
    change = {"strategy": "scan", "scan_count": 20}
    assert stack.http(server, "PUT", "/settings/invalidation", change)[0] == 200
    time.sleep(1.5)
    trace = post_sampled(stack, server, 9)

    def pages() -> list[int] | None:
        found = [attributes(s) for s in spans_of(stack, trace) if s["name"] == "SCAN"]
        last = [a for a in found if a["db.query.parameter.match"]]
        return [int(a["cache.scan.page"]) for a in last] if len(last) > 2000 else None

    numbers = until(pages, "a trace of thousands of spans", 60)
    time.sleep(5)  # for late spans
    numbers = pages() or numbers
    assert len(numbers) > 2000
    for page in range(1, max(numbers)):
        assert page in numbers, "a page's span was lost on the way"
    assert stack.value('sum(otel_spans_dropped_total{job="invalidator",server="redis"})') == 0
    change = {"strategy": "scan", "scan_count": 1000}
    assert stack.http(server, "PUT", "/settings/invalidation", change)[0] == 200


def test_exemplar_leads_to_a_trace_that_exists(stack: Stack) -> None:
    """The trace ids Prometheus shows beside a latency were really exported: each leads to a trace in Tempo."""
    for user in range(20, 24):
        post_sampled(stack, "redis", user)
    now = time.time()
    path = "/api/v1/query_exemplars?" + urllib.parse.urlencode(
        {
            "query": 'db_client_operation_duration_seconds_bucket{server="redis"}',
            "start": now - 600,
            "end": now + 60,
        }
    )

    def ids() -> set[str]:
        rows = stack.get("PROMETHEUS_PORT", path)["data"]
        return {e["labels"]["trace_id"] for row in rows for e in row["exemplars"]}

    found = until(ids, "exemplars in Prometheus", 30)
    time.sleep(4)
    for trace in sorted(found)[:10]:
        assert spans_of(stack, trace), trace


def test_spans_become_metrics_and_a_service_graph(stack: Stack) -> None:
    """Tempo sends Prometheus what it counts in spans: calls by name, and the edges web, invalidator, server."""
    calls = 'sum by (service, span_name) (traces_spanmetrics_calls_total{span_name="invalidate user"})'
    assert until(lambda: stack.value(calls) > 0, calls, 60)
    edge = 'sum(traces_service_graph_request_total{client="shop-invalidator",server=~"redis|dragonfly"})'
    assert until(lambda: stack.value(edge) > 0, edge, 60)
    queue = 'sum(traces_service_graph_request_total{client="shop-web",server="shop-invalidator"})'
    assert until(lambda: stack.value(queue) > 0, queue, 60)
    fine = 'count(count by (le) (traces_spanmetrics_latency_bucket{le=~"0.000[0-9]*|0.001"}))'
    assert stack.value(fine) >= 2, "buckets must suit a cache"


def test_nothing_is_dropped(stack: Stack) -> None:
    """With the trace backend there, spans are exported and none is dropped."""
    until(lambda: stack.value("sum(otel_spans_exported_total) > 0"), "spans exported", 30)
    assert stack.value("sum(otel_spans_dropped_total)") == 0


def test_ids_are_what_they_seem(stack: Stack) -> None:
    """Tempo's JSON holds the ids in base64; a trace asked for by its id is that trace."""
    trace = post_sampled(stack, "dragonfly", 3)
    spans = until(lambda: spans_of(stack, trace), trace, 30)
    assert {base64.b64decode(span["traceId"]).hex() for span in spans} == {trace}
