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

A reply counts in the interval in which it arrives; a request still in flight is recorded later, when its reply
comes. `intended` and `service` hold `received` values, `lag` holds `sent`; sum(sent) = sum(received) + sum(errors) +
the last in_flight.
The probe survives the server's end and restart. SIGTERM, SIGINT, and with `--until-stdin-ends` the end of stdin: a
last line, exit code 0. Bad arguments: 2.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

from loadtest.arguments import Parser, key_prefix, number, stop_with_stdin, word
from loadtest.probe.openloop import OpenLoop, Plan
from loadtest.probe.quiet import become_quiet
from loadtest.probe.record import Observer

MOST_CONNECTIONS = 500  # select(2) handles file descriptors below 1024, and each connection may need two


def read_arguments(arguments: list[str] | None = None) -> tuple[Plan, tuple[str, int] | None, bool]:
    """The plan, the address for metrics, and whether the probe ends with stdin.

    Bad arguments end the process: one line on stderr, exit code 2.
    """
    parser = Parser("probe", "Open-loop latency probe; one JSON line a second.")
    parser.add_argument("--rate", type=number(0.1, 20_000), default=200.0, help="requests a second (200)")
    parser.add_argument(
        "--connections",
        type=number(1, MOST_CONNECTIONS, int),
        default=1,
        help="connections that take turns (1)",
    )
    parser.add_argument(
        "--reconnect-seconds",
        type=number(0.05, 86_400),
        help="seconds after which a connection is replaced (never)",
    )
    parser.add_argument(
        "--duration", type=number(0.1, 10**7), help="seconds until the probe ends (on SIGTERM)"
    )
    parser.add_argument(
        "--name", type=word, default="main", help="name in every line and in CLIENT LIST (main)"
    )
    parser.add_argument("--command", choices=("get", "ping"), default="get", help="command to send (get)")
    parser.add_argument(
        "--keys", type=number(1, 100_000, int), default=100, help="own keys to write and GET in turn (100)"
    )
    parser.add_argument(
        "--key-prefix", type=key_prefix, default="bystander", help="own keys are PREFIX:0, PREFIX:1 ..."
    )
    parser.add_argument(
        "--read-only", action="store_true", help="write no keys: on a replica, another probe has written them"
    )
    parser.add_argument(
        "--interval-seconds",
        type=number(0.1, 60),
        default=1.0,
        help="seconds between lines (1); a --duration that is no longer makes one line",
    )
    parser.add_argument(
        "--arrivals",
        choices=("even", "jittered"),
        default="even",
        help="each request at the beginning of its slot, or at a random moment of it (even)",
    )
    parser.add_argument(
        "--seed", type=number(0, 2**63, int), default=0, help="seed of --arrivals jittered (0)"
    )
    parser.add_argument(
        "--metrics-port", type=number(1, 65_535, int), help="port for Prometheus metrics (none)"
    )
    parser.add_argument("--metrics-host", default="127.0.0.1", help="address for --metrics-port (127.0.0.1)")
    options = parser.read(arguments)
    plan = Plan(
        server=options.url,
        name=options.name,
        rate=options.rate,
        connections=options.connections,
        reconnect_seconds=options.reconnect_seconds,
        duration=options.duration,
        command=options.command,
        keys=options.keys,
        key_prefix=options.key_prefix,
        interval_seconds=options.interval_seconds,
        jitter_seed=options.seed if options.arrivals == "jittered" else None,
        read_only=options.read_only,
    )
    metrics = (options.metrics_host, options.metrics_port) if options.metrics_port else None
    return plan, metrics, options.until_stdin_ends


def serve_metrics(host: str, port: int, name: str) -> tuple[Observer, Callable[[], None]]:
    """Serve `probe_latency_seconds{probe,from}` over HTTP. Returns a function that records into it, and one that sets
    `probe_heartbeat_timestamp_seconds`, by which a health check tells a probe that hangs from one that waits.

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


def main(arguments: list[str] | None = None) -> int:
    """Run the probe; returns the exit code."""
    plan, metrics, until_stdin_ends = read_arguments(arguments)
    observer, beat = None, None
    if metrics:
        try:
            observer, beat = serve_metrics(*metrics, plan.name)
        except OSError as error:
            print(
                f"probe: cannot serve metrics on {metrics[0]}:{metrics[1]}: {error.strerror}", file=sys.stderr
            )
            return 2

    def emit(line: str) -> None:
        print(line, flush=True)
        if beat:
            beat()

    def complain(text: str) -> None:
        print(f"probe {plan.name}: {text}", file=sys.stderr, flush=True)

    loop = OpenLoop(plan, emit, complain, observer)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: loop.stop())
    if until_stdin_ends:
        threading.Thread(target=stop_with_stdin, args=(loop.stop,), name="stdin", daemon=True).start()
    become_quiet()
    try:
        loop.run()
    except BrokenPipeError:  # nobody reads the lines any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps the interpreter's last flush quiet
    return 0


if __name__ == "__main__":
    sys.exit(main())
