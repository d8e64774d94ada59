"""Prometheus metrics, named after OpenTelemetry's database and HTTP conventions where those have a name.

One process, one registry: prometheus_client's multiprocess mode has no exemplars, so each process runs one
worker.
"""

from collections.abc import Callable

from opentelemetry import trace
from prometheus_client import Counter, Gauge, Histogram

from app.settings import STRATEGY_NAMES

BUCKETS = tuple(float(f"{1e-4 * 10 ** (k / 9):.3g}") for k in range(46))
"""Upper bounds in seconds: nine per decade, in equal steps of 29 % from 0.1 ms to 10 s. A p99 is known to one step."""

CALL_DURATION = Histogram(
    "db_client_operation_duration_seconds",
    "Duration of a call to the server as the application saw it.",
    ["db_system_name", "server", "db_operation_name"],
    buckets=BUCKETS,
)
HTTP_DURATION = Histogram(
    "http_server_request_duration_seconds",
    "Duration of a request as the service saw it.",
    ["http_request_method", "http_route", "http_response_status_code"],
    buckets=BUCKETS,
)
CACHE_REQUESTS = Counter("cache_requests", "Reads by result.", ["result"])
EVENTS = Counter("cache_invalidation_events", "Attempts at events.", ["strategy", "outcome"])
EVENT_DURATION = Histogram(
    "cache_invalidation_duration_seconds",
    "From the start of an event to its end, retries included.",
    ["strategy"],
    buckets=(*BUCKETS, 15.0, 30.0, 60.0, 120.0),
)
EVENTS_IN_FLIGHT = Gauge("cache_invalidation_events_in_flight", "Events started and not finished.")
EVENTS_PENDING = Gauge("cache_invalidation_events_pending", "Events accepted and not finished.")
EVENTS_LOST = Gauge(
    "cache_invalidation_events_lost_at_most",
    "Accepted events lost with a corrupt state database, at most; NaN if unknown. Counted by the storefront.",
)
EVENT_CALLS = Counter(
    "cache_invalidation_store_calls",
    "Calls to the server made for events.",
    ["strategy", "db_operation_name"],
)
STRATEGY = Gauge("cache_invalidation_strategy", "1 for the strategy in force.", ["strategy"])
HEARTBEAT = Gauge(
    "process_loop_heartbeat_timestamp_seconds",
    "Unix time at which the process's working loop last came round; the health check looks at it.",
)
WARMING_KEYS = Gauge("cache_warming_keys", "Cached entries the warmer knows of.")
SPANS_ENDED = Counter("otel_spans_ended", "Sampled spans handed to the exporter's queue.")
SPANS_EXPORTED = Counter("otel_spans_exported", "Spans a trace backend accepted.")
SPANS_DROPPED = Counter("otel_spans_dropped", "Spans given up because no trace backend accepted them.")


def exemplar() -> dict[str, str] | None:
    """The current trace as an exemplar if it is sampled, so that a slow bucket leads to a real trace."""
    context = trace.get_current_span().get_span_context()
    if context.trace_flags & trace.TraceFlags.SAMPLED and context.is_valid:
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    return None


def show_strategy(current: str) -> None:
    """Set the gauge of every known strategy: 1 for ``current``, 0 for the rest."""
    for name in STRATEGY_NAMES:
        STRATEGY.labels(name).set(name == current)


Observe = Callable[[float, dict[str, str] | None], None]


class CallTimer:
    """Remembers the labelled children of `CALL_DURATION`: looking them up costs more than observing."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._children: dict[str, Observe] = {}

    def observe(self, operation: str, seconds: float) -> None:
        """Record one call to the server."""
        child = self._children.get(operation)
        if child is None:
            child = CALL_DURATION.labels("redis", self._server, operation).observe
            self._children[operation] = child
        child(seconds, exemplar())
