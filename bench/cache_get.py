"""A cached GET through `Cache`, with metrics and sampled tracing, against raw redis-py: time per call, as a
ratio.

Run as ``python -m bench.cache_get``. Blocks of both kinds take turns, so that a noisy machine slows both.
Each cached read happens inside a request's span, one in ten sampled, as in the service; making that span is
not timed, the server's span and metric inside it are. Goal: at most 1.5.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import redis

from bench.kit import report, server

CALLS = 200
BLOCKS = 60


def main() -> None:
    """Print the medians and the ratio."""
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    raw_execute = redis.Redis.execute_command
    with server() as url:
        from opentelemetry import trace

        from app.cache import Cache, connection_options
        from app.settings import Settings
        from app.telemetry import Telemetry

        telemetry = Telemetry("bench", "valkey")
        cache = Cache(Settings(store_url=url))
        cache.put_users(range(1, 101))
        pool = redis.ConnectionPool.from_url(url, **connection_options(5, url))
        raw: Any = redis.Redis(connection_pool=pool)
        # The instrumentation patches the class; the yardstick is the client without it.
        raw.execute_command = raw_execute.__get__(raw)
        tracer = trace.get_tracer("bench")
        clock = time.perf_counter

        def block(read: Callable[[int], Any]) -> float:
            spent = 0.0
            for user in range(1, CALLS + 1):
                with tracer.start_as_current_span("request"):
                    started = clock()
                    value = read(1 + user % 100)
                    spent += clock() - started
                assert value is not None
            return spent / CALLS * 1e6

        def cached(user: int) -> Any:
            return cache.get(user, "page-3")

        def plain(user: int) -> Any:
            return raw.get(f"shop:user:{user}:page-3:r1")

        block(cached), block(plain)
        pairs = [(block(cached), block(plain)) for _ in range(BLOCKS)]
        telemetry.stop(0.1)
    report(
        "cached GET through Cache / raw redis-py",
        statistics.median(ours / theirs for ours, theirs in pairs),
        goal="<= 1.5",
        cache_us=statistics.median(ours for ours, _ in pairs),
        raw_us=statistics.median(theirs for _, theirs in pairs),
    )


if __name__ == "__main__":
    main()
