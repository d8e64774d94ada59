"""Traces and exemplars, with a real OTLP receiver and with none."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.app.servicekit import Collector, ServerProcess, Service, attributes, eventually, free_port, http

NewService = Callable[..., Service]


@pytest.fixture
def collector() -> Iterator[Collector]:
    receiver = Collector()
    yield receiver
    receiver.close()


def traced(endpoint: str) -> dict[str, str]:
    """Environment that samples everything and sends it to ``endpoint``."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }


def test_an_event_is_one_trace_from_web_to_scan(
    new_service: NewService, server: ServerProcess, collector: Collector
) -> None:
    """The POST, the invalidator's span and each SCAN page share a trace; SCAN spans show pattern, COUNT and
    page.
    """
    service = new_service(server, **traced(collector.url), APP_SCAN_COUNT="10")
    service.start("web", "invalidator", "warmer")
    service.put("/settings/warming", {"target_keys": 200})
    eventually(lambda: service.get("/settings/warming").json["state"] == "idle")
    service.event(7)
    eventually(lambda: [span for span in collector.spans if span.name == "invalidate user"])
    service.stop()
    (work,) = [span for span in collector.spans if span.name == "invalidate user"]
    (post,) = [span for span in collector.spans if span.name.startswith("POST ")]
    assert work.trace_id == post.trace_id
    (sent,) = [span for span in collector.spans if span.name == "send outbox"]
    assert (work.parent_span_id, sent.parent_span_id) == (sent.span_id, post.span_id)
    assert (sent.kind, work.kind) == (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER)
    assert attributes(work)["cache.invalidation.deleted"] == 20
    scans = [span for span in collector.spans if span.name == "SCAN"]
    assert {span.trace_id for span in scans} == {post.trace_id}
    pages: dict[str, list[int]] = {}
    for span in scans:
        shown = attributes(span)
        assert shown["db.query.parameter.count"] == 10
        assert (shown["db.system"], shown["db.system.name"], shown["peer.service"]) == (
            "redis",
            "redis",
            "valkey",
        )
        pages.setdefault(shown["db.query.parameter.match"], []).append(shown["cache.scan.page"])
    assert set(pages) == {"shop:user:7:page-*", "shop:user:7:cart-*", "shop:user:7:offer-*"}
    for numbers in pages.values():
        assert len(numbers) > 1
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


@pytest.mark.whole
def test_reads_are_traced_with_exemplars(
    new_service: NewService, server: ServerProcess, collector: Collector
) -> None:
    """A read's trace holds its calls to the server; /metrics names that trace as an exemplar; health checks make no
    spans.
    """
    service = new_service(server, **traced(collector.url)).start("web")
    for path in ("/users/1/fragments/page-0", "/users/1/fragments/page-0", "/healthz", "/readyz", "/metrics"):
        assert service.get(path).status == 200
    page = http(
        "GET", service.base + "/metrics", headers={"Accept": "application/openmetrics-text"}
    ).body.decode()
    service.stop()
    reads = [span for span in collector.spans if span.name.startswith("GET /")]
    assert {span.name for span in reads} == {"GET /users/<user>/fragments/<name>"}
    first, second = [
        {span.name for span in collector.spans if span.trace_id == read.trace_id} - {read.name}
        for read in reads
    ]
    assert (first, second) == ({"GET", "SET SADD PEXPIREAT"}, {"GET"})
    assert any(f'trace_id="{read.trace_id.hex()}"' in page for read in reads)


def test_a_page_is_one_trace_with_a_span_a_command(
    new_service: NewService, server: ServerProcess, collector: Collector
) -> None:
    """A page's trace has one server span, and below it one span for each command: the reads of what is shown, the
    the one put of a page that was not cached.
    """
    service = new_service(server, **traced(collector.url)).start("web")
    for _ in range(2):
        assert service.get("/users/1/page").status == 200
    service.stop()
    pages = [span for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert [span.name for span in pages] == ["GET /users/<user>/page"] * 2
    found = [
        Counter(span.name for span in collector.spans if span.parent_span_id == page.span_id)
        for page in pages
    ]
    put = " ".join([*["SET"] * 20, "SADD", "PEXPIREAT"])
    assert found == [{"GET": 1, put: 1}, {"GET": 5}]


@pytest.mark.whole
def test_unsampled_requests_make_no_spans(
    new_service: NewService, server: ServerProcess, collector: Collector
) -> None:
    """The standard sampler variables are obeyed, in both processes."""
    environment = {**traced(collector.url), "OTEL_TRACES_SAMPLER": "always_off"}
    service = new_service(server, **environment).start("web", "invalidator")
    assert service.get("/users/1/page").status == 200
    service.event(1)
    done = 'cache_invalidation_events_total{outcome="done",strategy="scan"}'
    eventually(lambda: service.metric(done) == 1)
    service.stop()
    assert collector.spans == []


@pytest.mark.whole
def test_no_backend_means_no_flood_and_a_clean_end(new_service: NewService, server: ServerProcess) -> None:
    """Without a trace backend, spans are dropped and counted, a log has one or two lines at most, and SIGTERM ends
    with 0.
    """
    service = new_service(server, **traced(f"http://127.0.0.1:{free_port()}"), APP_SCAN_COUNT="1")
    service.start("web", "invalidator")
    for user in range(1, 60):
        assert service.get(f"/users/{user}/fragments/page-0").status == 200
    for user in range(1, 30):
        service.event(user)
    eventually(lambda: service.metric("otel_spans_dropped_total") > 0, 30)
    assert service.metric("otel_spans_exported_total") == 0
    assert [service.signal(role) for role in ("web", "invalidator")] == [0, 0]
    assert len(service.log("web").splitlines()) <= 1, service.log("web")
    assert len(service.log("invalidator").splitlines()) <= 2, service.log("invalidator")
