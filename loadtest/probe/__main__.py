"""The open-loop probe: how long does a bystander's GET take, from the moment it was due?

`python -m loadtest.probe --url redis://127.0.0.1:6379` prints one JSON line a second (or every
`--interval-seconds`, and a single one if `--duration` is no longer than that):

    name, t (unix time of the interval's end), interval_s,
    sent (requests whose time came), received, in_flight, oldest_in_flight_us,
    errors (requests without an open connection, lost with their connection, or answered with an error),
    lag_p99_us (send - intended: this process's own lateness),
    p50_us, p99_us, max_us (from the intended time),
    intended, service, lag (HdrHistogram V2, base64, microseconds: from the intended time, from the send time, and
    between the two),
    connected (open connections), last_error (text or null)

A reply counts in the interval in which it arrives ("by": "arrival"); a request still in flight is recorded later, when
its reply comes. `intended` and `service` hold `received` values, `lag` holds `sent`; sum(sent) = sum(received) +
sum(errors) + the last in_flight.
With `--by-due-time` each interval has a second line ("by": "due"), of the requests that were due in it, whenever their
replies came: a stall is then in the figures of the interval that it made wait. The line is printed once all are
answered, so in_flight is 0, but for a probe that ended before.
The probe survives the server's end and restart. SIGTERM, SIGINT, and with `--until-stdin-ends` the end of stdin: a
last line, exit code 0. Bad arguments: 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from loadtest.arguments import read_plan
from loadtest.probe.openloop import OpenLoop, Plan
from loadtest.probe.quiet import become_quiet
from loadtest.probe.record import Observer
from loadtest.process import heed_endings, hush


def serve_metrics(host: str, port: int, name: str) -> tuple[Observer, Callable[[], None]]:
    """Serve `probe_latency_seconds{probe,from}` over HTTP. Returns a function that records into it, and one that sets
    `probe_heartbeat_timestamp_seconds`, by which a health check distinguishes a probe that hangs from one that waits.

    Raises:
        OSError: the port is taken.
    """
    from prometheus_client import Gauge, Histogram, start_http_server

    buckets = [round(step * 10.0**power, 6) for power in range(-4, 1) for step in range(1, 10)] + [10.0]
    latency = Histogram(
        "probe_latency_seconds",
        "Latency of the probe's requests, from the intended time and from the send time",
        ["probe", "from"],
        buckets=buckets,
    )
    intended, service = (latency.labels(name, origin) for origin in ("intended", "send"))
    heartbeat = Gauge("probe_heartbeat_timestamp_seconds", "Unix time of the probe's last line of output")
    start_http_server(port, host)

    def observe(since_due_ns: int, since_sent_ns: int) -> None:
        intended.observe(since_due_ns / 1e9)
        service.observe(since_sent_ns / 1e9)

    return observe, heartbeat.set_to_current_time


def main() -> int:
    """Run the probe; returns the exit code."""
    plan = read_plan(Plan, "probe", __doc__)
    observer, beat = None, None
    if plan.metrics_port:
        try:
            observer, beat = serve_metrics(plan.metrics_host, plan.metrics_port, plan.name)
        except OSError as error:
            where = f"{plan.metrics_host}:{plan.metrics_port}"
            print(f"probe: cannot serve metrics on {where}: {error.strerror}", file=sys.stderr)
            return 2

    def emit(line: str) -> None:
        print(line, flush=True)
        if beat:
            beat()

    def complain(text: str) -> None:
        print(f"probe {plan.name}: {text}", file=sys.stderr, flush=True)

    loop = OpenLoop(plan, emit, complain, observer)
    heed_endings(plan, loop.stop)
    become_quiet()
    try:
        loop.run()
    except BrokenPipeError:
        hush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
