"""A crowd of clients on a cache: large reads, writes that fill it, and a sample of the server ten times a second.

`python -m loadtest.incidents.crowd --url redis://127.0.0.1:6379 --rate 3000 --seconds 20` opens its connections, fills
the server with pages of small entries (`loadtest.incidents.pages`) up to a share of its `maxmemory`, then offers the
load (the model: `loadtest.incidents.crowd_model`) and prints a JSON line for each sample of the server's INFO, taken on
a connection of its own every --interval-seconds or as soon as the server answers again:

    t (the server's clock), interval_s, offered_per_s (the crowd's requests when no client waits),
    sent, answered, stalled (requests not made because their client was still waiting or had gone away),
    in_flight, away, p50_ms, p99_ms (of the requests answered, from the time they were due), inserted (entries),
    evicted, expired (entries, by the server's count), keys, used_mb, limit_mb (maxmemory), clients_mb
    (mem_clients_normal), busy (share of the main thread)

The last line holds the `figures`: rate, busy, busy_us (of the main thread, for one request), answered_per_s, p50_ms,
p99_ms, evicted, inserted, expired, most_in_flight, most_clients_mb, fitting_ttl_s (time to live with which the entries
of such a load fill the share --fits of the limit), next_page (for a later crowd on the same server: --first-page),
clients (how many there were).

With --find-utilisation U it searches for the rate that would keep the server's main thread busy to the share U, in
steps that approach it from below; `rate` is the result. If U exceeds 1, the rate is one that the server cannot keep up
with, computed from the cost of a request just below saturation.

Entries are written with a time to live and never removed: the server must be the load's own. Ends on SIGTERM, or with
`--until-stdin-ends` at the end of stdin: figures, exit code 0. Bad arguments: 2. A server that refuses, or is gone: 3.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

from loadtest.arguments import Parser, number, word
from loadtest.incidents.crowd_model import Crowd, Plan, Stretch
from loadtest.incidents.pages import MOST_PAGES, Layout, Pages, fill
from loadtest.info import ServerInfo
from loadtest.process import Stop, run_load
from loadtest.resp import LoadFailed, ask, command, connect

FIRST_RATE = 500.0
FIRST_PART = 0.15
STEPS = ((0.5, 0.15), (0.8, 0.2), (1.0, 0.2), (1.0, 0.3))
"""Steps after `FIRST_PART` of the time at `FIRST_RATE`: (share of the wanted utilisation, share of the time).

They come nearer and nearer, because the cost of a request depends on the rate: an idle server finds its data cold, a
busy one reads several requests a turn.
"""
MOST_BUSY = 0.85
"""The highest utilisation of a step: with a standing queue clients hold back, and the queue adds to the cost."""
SHORT_S = 3600.0
"""With a shorter time to live, entries are of all ages from the beginning, as in a cache in balance with their expiry.
"""


def wait(seconds: float, stop: Stop) -> None:
    """Wait for `seconds`, or until the load is told to end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.requested:
        time.sleep(0.05)


def cost_s(stretch: Stretch) -> float:
    """CPU seconds of the main thread for one request. Raises `LoadFailed` if the server does not report them."""
    if stretch.busy <= 0 or not stretch.answered:
        raise LoadFailed("the server does not report its main thread's CPU time, or answered no request")
    return stretch.busy * stretch.seconds / stretch.answered


def find_rate(crowd: Crowd, wanted: float, seconds: float, stop: Stop) -> tuple[float, Stretch]:
    """The rate at which the main thread is busy to the share `wanted`, and the last step. Raises `LoadFailed`."""
    stretch = crowd.run(FIRST_RATE, seconds * FIRST_PART, stop)
    for share, part in STEPS:
        if stop.requested:
            break
        stretch = crowd.run(min(share * wanted, MOST_BUSY) / cost_s(stretch), seconds * part, stop)
    return wanted / cost_s(stretch), stretch


def fitting_ttl(sample: ServerInfo, room: float, entries_per_s: float) -> float:
    """The time to live, in seconds, at which the entries that are alive fill `room` bytes."""
    each = (sample.used - sample.clients) / max(sample.keys, 1)
    return room / each / entries_per_s


def figures(stretch: Stretch, rate: float, next_page: int, fitting_ttl_s: float) -> dict[str, float]:
    """The figures of a stretch."""
    found = sorted(stretch.latencies)
    first, last = stretch.first, stretch.last
    return {
        "rate": rate,
        "busy": stretch.busy,
        "busy_us": stretch.busy * stretch.seconds / max(stretch.answered, 1) * 1e6,
        "answered_per_s": stretch.answered / stretch.seconds,
        "p50_ms": found[len(found) // 2] / 1e6 if found else 0.0,
        "p99_ms": found[int(0.99 * len(found))] / 1e6 if found else 0.0,
        "evicted": last.evicted - first.evicted,
        "expired": last.expired - first.expired,
        "inserted": stretch.inserted,
        "most_in_flight": stretch.most_in_flight,
        "most_clients_mb": stretch.most_clients / 1e6,
        "fitting_ttl_s": fitting_ttl_s,
        "next_page": next_page,
    }


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """The crowd's arguments. Bad arguments end the process: one line on stderr, exit code 2."""
    parser = Parser(
        "crowd", "A crowd of clients on a cache that evicts; one JSON line for each sample of the server."
    )
    add = parser.add_argument
    add("--rate", type=number(1, 200_000), help="requests a second of the whole crowd when no client waits")
    add("--share", type=number(0.01, 10), default=1.0, help="share of --rate to offer (1)")
    add(
        "--find-utilisation",
        type=number(0.1, 5),
        help="find the rate instead: busy share of the main thread, above 1 more than it can do",
    )
    add("--seconds", type=number(0.5, 3600), required=True, help="seconds of load, without the filling")
    add("--clients", type=number(1, 20_000, int), default=1000, help="clients in the crowd (1000)")
    add(
        "--asks-every",
        type=number(0.01, 3600),
        help="seconds between a client's requests: with a low --rate there are fewer clients (always --clients)",
    )
    add(
        "--connections",
        type=number(1, 20_000, int),
        help="connections that the clients share (one for each client)",
    )
    add(
        "--write-every",
        type=number(1, 10_000, int),
        default=10,
        help="one request of this many writes a page (10)",
    )
    add(
        "--patience-seconds",
        type=number(0, 3600),
        default=0.25,
        help="seconds after which a waiting client goes away (0.25)",
    )
    add(
        "--away-seconds",
        type=number(0, 3600),
        default=1.0,
        help="seconds, about, until such a client returns (1)",
    )
    add(
        "--fill",
        type=number(0, 0.99),
        default=0.0,
        help="share of maxmemory to fill first (0)",
    )
    add("--limit-mb", type=number(8, 10**6), help="maxmemory to set on the server first, in MB (unchanged)")
    add(
        "--settle-seconds",
        type=number(0, 60),
        default=0.0,
        help="seconds after connecting in which the server shrinks buffers of idle connections (0)",
    )
    add(
        "--ttl-seconds",
        type=number(0.1, 10**8),
        default=1_209_600.0,
        help="time to live of all entries (two weeks)",
    )
    add("--fits", type=number(0.01, 1), default=0.7, help="share of maxmemory for fitting_ttl_s (0.7)")
    add("--first-page", type=number(1, MOST_PAGES // 2, int), default=1, help="number of the first page (1)")
    add("--entries", type=number(1, 999, int), default=150, help="entries of a page (150)")
    add("--pages-read", type=number(1, 8, int), default=2, help="pages read by one request (2)")
    add(
        "--key-bytes", type=number(24, 500, int), default=48, help="length of a key, the prefix included (48)"
    )
    add("--value-bytes", type=number(1, 10_000, int), default=16, help="length of a value (16)")
    add(
        "--interval-seconds",
        type=number(0.02, 10),
        default=0.1,
        help="seconds between samples of the server (0.1)",
    )
    add("--prefix", type=word, default="crowd", help="own keys are PREFIX:PAGE:ENTRY (crowd)")
    add("--seed", type=number(0, 2**63, int), default=0, help="seed of the random numbers (0)")
    options = parser.read(arguments)
    if (options.rate is None) == (options.find_utilisation is None):
        parser.error("either --rate or --find-utilisation is needed")
    if len(options.prefix) + 14 > options.key_bytes:
        parser.error(f"--key-bytes {options.key_bytes} leaves no room for the prefix {options.prefix}")

    return options


def crowd_size(options: argparse.Namespace) -> int:
    """Number of clients: --clients, or fewer where each asks once in --asks-every seconds at the whole rate."""
    clients: int = options.clients
    if options.asks_every and options.rate:
        clients = min(clients, max(1, round(options.rate * options.asks_every)))
    return clients


def offer(options: argparse.Namespace, stop: Stop) -> dict[str, float]:
    """Connect, fill and offer the load; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
    sizes = (options.entries, options.pages_read, options.key_bytes, options.value_bytes)
    pages = Pages(Layout(options.prefix, *sizes), options.ttl_seconds)
    clients = crowd_size(options)
    connections = options.connections or clients
    times = (options.patience_seconds, options.away_seconds, options.interval_seconds)
    plan = Plan(clients, connections, options.write_every, *times)
    with connect(options.url) as line:
        if options.limit_mb:
            ask(line, command("CONFIG", "SET", "maxmemory", round(options.limit_mb * 1e6)))
        crowd = Crowd(options.url, plan, pages, options.seed)
        wait(options.settle_seconds, stop)
        spread = options.ttl_seconds < SHORT_S
        crowd.next_page, sample = fill(line, pages, options.first_page, options.fill, spread, stop)
        crowd.readable = max(1, sample.keys // options.entries)
    try:
        gc.freeze()  # a collection would come in the middle of the measurement; nothing here makes cycles
        gc.disable()
        if options.find_utilisation:
            rate, stretch = find_rate(crowd, options.find_utilisation, options.seconds, stop)
        else:
            rate = options.rate * options.share
            stretch = crowd.run(rate, options.seconds, stop)
        entries_per_s = rate * options.entries / options.write_every
        ttl_s = fitting_ttl(stretch.last, options.fits * stretch.last.limit, entries_per_s)
        return figures(stretch, rate, crowd.next_page, ttl_s) | {"clients": clients}
    finally:
        crowd.close()


def main(arguments: list[str] | None = None) -> int:
    """Run the load; returns the exit code."""
    options = read_arguments(arguments)
    return run_load("crowd", lambda stop: offer(options, stop), options.until_stdin_ends)


if __name__ == "__main__":
    sys.exit(main())
