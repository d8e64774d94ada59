"""Measures an event of a user who shares a slot with a user of many entries: fills the neighbour, then sends events.

`python -m loadtest.incidents.slots --storefront http://127.0.0.1:8000 --first-user 100001 --neighbour 100000` has two
users of its own whose ids, as hash tags, fall into the same of the 16,384 slots of a cluster. The neighbour gets
--neighbour entries, in bulk. Then, in each round, all usual fragments of the first user are read, and so cached, and
one event is sent; nothing is read until the storefront says that the event is done. At the end an event removes the
neighbour's entries.

One JSON line for each round (t, round, event_ms); the last line holds the `figures`:

    neighbour_entries          entries of the neighbour in the slot
    commands_per_event         calls of --commands on the server, by its own counters, for each event
    execution_per_event_us     their median execution time
    event_ms                   median time from an event to its end (to 10 ms, because its state is asked that often)
    rounds                     number of events

Ends by itself, after --seconds at the earliest.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import sys
from dataclasses import dataclass
from time import monotonic, perf_counter, time

from loadtest import cluster
from loadtest.arguments import ServerPlan, number, option, words
from loadtest.customers.load import AREAS, fragment_name
from loadtest.incidents.freshness import CounterSample
from loadtest.incidents.storefront import Storefront, StorefrontPlan
from loadtest.process import Stop, run_load, say
from loadtest.resp import connect

MOST_ENTRIES = 1_000_000
FAR = 10**6
"""A neighbour's id lies at most so far beyond the user's: of so many ids about sixty share a slot."""


def slot_of(user: int) -> int:
    """The slot of a user whose id is a key's hash tag."""
    return cluster.slot_of(str(user))


def neighbour_of(user: int) -> int:
    """The first user id beyond this one that falls into the same slot."""
    return next(other for other in range(user + 1, user + FAR) if slot_of(other) == slot_of(user))


@dataclass(frozen=True, kw_only=True)
class Plan(StorefrontPlan, ServerPlan):
    """The options of the load: user, rounds, the neighbour's entries, commands counted."""

    first_user: int = option("id of its own user, whom no other client reads", number(1, 10**9 - FAR, int))
    neighbour: int = option("entries of another user in the same slot", number(0, MOST_ENTRIES, int), 0)
    rounds: int = option("number of events", number(1, 10_000, int), 5)
    each: int = option("fragments of the user", number(len(AREAS), 1000, int), 20)
    commands: tuple[str, ...] = option(
        "commands that only invalidations use, separated by commas", words, ("SCAN", "UNLINK")
    )
    seconds: float = option("least number of seconds", number(0, 10**6), 0.0)


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Fill the neighbour, send the events, and remove the neighbour's entries again; returns the figures."""
    end = monotonic() + plan.seconds
    neighbour = neighbour_of(plan.first_user)
    with contextlib.closing(Storefront(*plan.storefront)) as front, connect(plan.server) as line:
        if not plan.neighbour:
            return _rounds(plan, front, line, end, stop)
        try:
            front.ask("PUT", f"/users/{neighbour}/fragments", {"count": plan.neighbour})
            return _rounds(plan, front, line, end, stop)
        finally:
            front.await_end(neighbour, front.send_event(neighbour))


def _rounds(plan: Plan, front: Storefront, line: socket.socket, end: float, stop: Stop) -> dict[str, float]:
    calls: list[float] = []
    execution_us: list[float] = []
    took_ms: list[float] = []
    names = [fragment_name(i) for i in range(plan.each)]
    while len(calls) < plan.rounds and not stop.requested:
        for name in names:
            front.cached(plan.first_user, name)
        before, sent = CounterSample.at(line, plan.commands), perf_counter()
        front.await_end(plan.first_user, front.send_event(plan.first_user))
        took_ms.append((perf_counter() - sent) * 1e3)
        after = CounterSample.at(line, plan.commands)
        calls.append(after.calls - before.calls)
        execution_us.append(after.execution_us - before.execution_us)
        say({"t": time(), "round": len(calls), "event_ms": took_ms[-1]})
    stop.wait(end - monotonic())
    figures = {"neighbour_entries": float(plan.neighbour), "rounds": float(len(calls))}
    if calls:
        figures |= {
            "commands_per_event": statistics.mean(calls),
            "execution_per_event_us": statistics.median(execution_us),
            "event_ms": statistics.median(took_ms),
        }
    return figures


if __name__ == "__main__":
    sys.exit(run_load("slots", __doc__, Plan, work))
