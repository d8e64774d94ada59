"""Measures the cost of an invalidation, and for how long old values are served: caches, sends an event, reads again.

`python -m loadtest.incidents.freshness --storefront http://127.0.0.1:8000 --first-user 100001` has users of its own,
which no other client reads. It caches all of their fragments through the storefront's HTTP interface. Then, in each
round, for each user, it sends one event of each kind:

    First kind: from the event's acceptance on, one fragment of each area is read again and again, until each was a miss
    once; then all others are read once. A hit before the first miss is an old value, and so is a hit among the others.

    Second kind: nothing is read until the storefront says that the event is done, so what the server counts meanwhile
    is the event's work alone. Then everything is read, and so cached, again.

At the end as many other users have one event each, while a fragment of each area is computed: the race of cache-aside
(`loadtest.incidents.race`).

One JSON line for each event of the first kind (t, user, stale_for_ms, stale_entries); the last holds the `figures`:

    stale_for_ms               upper bound of the time after an event's acceptance for which old values are served:
                               until the read that first misses the last of them is sent; the median over the events
    stale_for_worst_ms         the longest over the events
    stale_entries              old values among the other fragments, read after that; the sum over all events
    commands_per_event         calls of --commands on the server, by its own counters, for each event of the second kind
    execution_per_event_us     their execution time (without EXEC's, which repeats that of the commands it executes)
    left_per_event             keys added to the server per event, after the reads that cached everything again
    events                     number of events, of both kinds
    race_tries                 values that were being computed while an event was carried out, and were put after it;
                               only if there was one
    raced_values               how many of them were served from the cache after the event
    memory_per_entry_bytes     memory used at the beginning, less --base-mb, for each of --entries
    memory_mb                  memory used at the beginning, by the server's own count of what it has allocated

Without users (--users 0) only the figures of memory. Ends by itself, after --seconds at the earliest.
"""

from __future__ import annotations

import contextlib
import random
import socket
import statistics
import sys
from dataclasses import dataclass, field
from time import monotonic, sleep, time

from loadtest import info
from loadtest.arguments import ServerPlan, number, option, words
from loadtest.customers.load import AREAS, fragment_name
from loadtest.incidents import race
from loadtest.incidents.storefront import Storefront, StorefrontPlan
from loadtest.process import Stop, run_load, say
from loadtest.resp import ANSWER_S, LoadFailed, ask, command, connect

PAUSE_S = 0.002
"""Pause between two passes over the fragments being watched: without it the loop would take a core."""
MOST_USERS = 10_000
RACES_MOST = 4
"""Attempts at the race: on a machine too slow for a single try, all is repeated with twice as much time."""


@dataclass(frozen=True)
class CounterSample:
    """The server's own counters at one moment: keys, memory in bytes, and (calls, execution in µs) of commands."""

    keys: int
    memory: int
    calls: float
    execution_us: float

    @classmethod
    def at(cls, line: socket.socket, commands: tuple[str, ...]) -> CounterSample:
        """Take a sample of the server. Raises `LoadFailed` or `ConnectionLost`."""
        requests = [command("DBSIZE"), command("INFO", "memory"), command("INFO", "commandstats")]
        keys, memory, stats = ask(line, *requests)
        assert isinstance(keys, int) and isinstance(memory, bytes) and isinstance(stats, bytes)
        calls = execution = 0.0
        for name, (count, usec) in info.counters(info.fields(stats)).items():
            if name in commands:
                calls += count
                execution += usec if name != "EXEC" else 0.0
        return cls(keys, int(info.fields(memory)["used_memory"]), calls, execution)


@dataclass
class Tally:
    """Results and costs of the events so far; `silent` counts the events of the second kind.

    `longest_s`: from the moment that one of these was sent until it was known to be done, at most.
    """

    stale_ms: list[float] = field(default_factory=list)
    stale_entries: int = 0
    silent: int = 0
    calls: float = 0.0
    execution_us: float = 0.0
    longest_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan(StorefrontPlan, ServerPlan):
    """The options of the load: users, rounds, and the server's content at the beginning."""

    first_user: int = option(
        "id of the first of its own users, whom no other client reads", number(1, 10**9 - 2 * MOST_USERS, int)
    )
    users: int = option("number of its own users", number(0, MOST_USERS, int), 4)
    rounds: int = option("rounds of events for all users", number(1, 10_000, int), 2)
    each: int = option("fragments of each user", number(len(AREAS), 1000, int), 20)
    entries: int = option("entries cached already", number(0, 10**9, int), 0)
    base_mb: float = option("memory without --entries, in MB", number(0, 10**6), 0.0)
    commands: tuple[str, ...] = option(
        "commands that only invalidations use, with commas between them", words, ()
    )
    seconds: float = option("least number of seconds", number(0, 10**6), 0.0)

    @property
    def last_user(self) -> int:
        """The end of the range of users that are its own."""
        return self.first_user + 2 * MOST_USERS

    @property
    def names(self) -> list[str]:
        """A user's fragments."""
        return [fragment_name(i) for i in range(self.each)]


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Run all rounds of all users; returns the figures."""
    end = monotonic() + plan.seconds
    with contextlib.closing(Storefront(*plan.storefront)) as front, connect(plan.server) as line:
        figures = _measure(plan, front, line, stop)
    stop.wait(end - monotonic())
    return figures


def _measure(plan: Plan, front: Storefront, line: socket.socket, stop: Stop) -> dict[str, float]:
    first = CounterSample.at(line, plan.commands)
    figures = {"memory_mb": first.memory / 1e6}
    if plan.entries:
        figures["memory_per_entry_bytes"] = (first.memory - plan.base_mb * 1e6) / plan.entries
    users = range(plan.first_user, plan.first_user + plan.users)
    for user in users:
        _cache(plan, front, user)
    before, tally = CounterSample.at(line, plan.commands), Tally()
    for _ in range(plan.rounds):
        for user in users:
            if stop.requested:
                break
            _watch(plan, front, user, tally)
            _count(plan, front, line, user, tally)
    if not tally.silent:
        return figures
    events = len(tally.stale_ms) + tally.silent
    figures |= {
        "stale_for_ms": statistics.median(tally.stale_ms),
        "stale_for_worst_ms": max(tally.stale_ms),
        "stale_entries": float(tally.stale_entries),
        "commands_per_event": tally.calls / tally.silent,
        "execution_per_event_us": tally.execution_us / tally.silent,
        "left_per_event": (CounterSample.at(line, plan.commands).keys - before.keys) / events,
        "events": float(events),
    }
    return figures | _race(plan, front, tally.longest_s, stop)


def _race(plan: Plan, front: Storefront, event_s: float, stop: Stop) -> dict[str, float]:
    """The figures of the race; none if there was no try.

    Its users are others, drawn at random: what it leaves behind must not be counted in the next phase of a run.
    """
    races, names = race.Races(event_s), plan.names[: len(AREAS)]
    for _ in range(RACES_MOST):
        for user in random.sample(range(plan.first_user + plan.users, plan.last_user), plan.users):
            if not stop.requested:
                race.provoke(front, user, names, races)
        if races.tries:
            break
        races.patience *= 2
    if not races.tries:
        return {}
    return {"race_tries": float(races.tries), "raced_values": float(races.served)}


def _cache(plan: Plan, front: Storefront, user: int) -> None:
    """Cache all of a user's fragments. Raises `LoadFailed` if the server does not keep them."""
    for name in plan.names:
        front.cached(user, name)
    missing = [name for name in plan.names if not front.cached(user, name)]
    if missing:
        raise LoadFailed(
            f"the server does not keep entries: {missing[0]} of user {user} is gone right after it was cached"
        )


def _watch(plan: Plan, front: Storefront, user: int, tally: Tally) -> None:
    """Send an event of the first kind, and watch what is served after it.

    In the end all is cached again, because each read that misses puts.
    """
    names = plan.names
    watched, others = names[: len(AREAS)], names[len(AREAS) :]
    event = front.send_event(user)
    accepted = missed_at = monotonic()
    while watched:
        for name in list(watched):
            asked_at = monotonic()
            if not front.cached(user, name):
                watched.remove(name)
                missed_at = asked_at  # when it was asked, not when it was answered: a miss takes its time
        if monotonic() - accepted > ANSWER_S:
            raise LoadFailed(f"an entry of user {user} is still cached {ANSWER_S:g} s after the event")
        if watched:
            sleep(PAUSE_S)
    took = (missed_at - accepted) * 1e3
    stale = sum(front.cached(user, name) for name in others)
    tally.stale_ms.append(took)
    tally.stale_entries += stale
    front.await_end(user, event)
    say({"t": time(), "user": user, "stale_for_ms": took, "stale_entries": stale})


def _count(plan: Plan, front: Storefront, line: socket.socket, user: int, tally: Tally) -> None:
    """Send an event of the second kind, and count what it costs the server. Then cache all again."""
    before, sent = CounterSample.at(line, plan.commands), monotonic()
    front.await_end(user, front.send_event(user))
    tally.longest_s = max(tally.longest_s, monotonic() - sent)
    after = CounterSample.at(line, plan.commands)
    tally.silent += 1
    tally.calls += after.calls - before.calls
    tally.execution_us += after.execution_us - before.execution_us
    for name in plan.names:
        front.cached(user, name)


if __name__ == "__main__":
    sys.exit(run_load("freshness", __doc__, Plan, work))
