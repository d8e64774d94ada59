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

Entries are written with a time to live and never removed: the server must be the load's own.
"""

from __future__ import annotations

import gc
import sys

from loadtest.incidents.crowd_model import Crowd, Plan, Stretch
from loadtest.incidents.pages import Pages, fill
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


def offer(plan: Plan, stop: Stop) -> dict[str, float]:
    """Connect, fill and offer the load; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
    pages = Pages(plan.layout, plan.ttl_seconds)
    with connect(plan.server) as line:
        if plan.limit_mb:
            ask(line, command("CONFIG", "SET", "maxmemory", round(plan.limit_mb * 1e6)))
        crowd = Crowd(plan, pages)
        stop.wait(plan.settle_seconds)
        spread = plan.ttl_seconds < SHORT_S
        crowd.next_page, sample = fill(line, pages, plan.first_page, plan.fill, spread, stop)
        crowd.readable = max(1, sample.keys // plan.entries)
    try:
        gc.freeze()  # a collection would come in the middle of the measurement; nothing here makes cycles
        gc.disable()
        if plan.rate:
            rate = plan.rate * plan.share
            stretch = crowd.run(rate, plan.seconds, stop)
        else:
            rate, stretch = find_rate(crowd, plan.find_utilisation or 0.0, plan.seconds, stop)
        entries_per_s = rate * plan.entries / plan.write_every
        ttl_s = fitting_ttl(stretch.last, plan.fits * stretch.last.limit, entries_per_s)
        return figures(stretch, rate, crowd.next_page, ttl_s) | {"clients": plan.size}
    finally:
        crowd.close()


if __name__ == "__main__":
    sys.exit(run_load("crowd", __doc__, Plan, offer))
