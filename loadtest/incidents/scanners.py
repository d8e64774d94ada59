"""Events that each walk the whole keyspace in small steps: what do a great many short SCAN calls cost?

`python -m loadtest.incidents.scanners --url redis://127.0.0.1:6379 --match 'shop:user:@:page-*' --rate 20` starts
events at a rate, however many are under way (open loop). An event walks once for each --match, all its walks at once,
with SCAN MATCH COUNT until the cursor is 0; the at sign stands for a user id, drawn for each event. Nothing is
deleted. A tool that browses keys does the same: --type adds a TYPE, --client a name in CLIENT LIST, and --calls
ends each walk after so many calls.

Walks share few connections (--lines), as those of a multiplexing client do (ioredis, Lettuce, StackExchange.Redis):
each walk has one call in flight, and the calls of many travel together. So little time goes into anything but SCAN,
here and in the server, that the server's main thread saturates first.

Without --rate, --most events are under way at once (closed loop); this is how `capacity_per_s` is measured. The first
event walks alone; from then on they follow each other at equal distances. Events started together would stay together,
each finding in the processor's caches what the one before has just read: a SCAN then costs a third of what it costs
when every event is at another place.

A JSON line a second (t, arrived, finished, calls: so far), and a last one that holds the `figures`:

    arrived_per_s, finished_per_s, calls_per_s      events that came due, events done, and calls, each second
    in_flight               events that have come due and are not done, at the end
    calls_per_event         mean calls of the events done; if none is done, the most calls of one event so far, which
                            is fewer than an event needs
    capacity_per_s          events a second that the server can carry: calls a second / calls_per_event. Counted from
                            the moment when --most events were under way for the first time, if they ever were. Left
                            out if no event is done

Events that find --most others under way wait for their turn.
"""

from __future__ import annotations

import itertools
import random
import selectors
import sys
from collections import deque
from dataclasses import dataclass, replace
from time import perf_counter_ns as clock
from time import time

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.probe.openloop import due_times
from loadtest.process import Stop, run_load, say
from loadtest.resp import LoadFailed, Server, Stream, command, connect

SECOND = 1_000_000_000
READ_BYTES = 256 * 1024
LONGEST_SLEEP_S = 0.1
CURSOR = b"$1\r\n\0"
"""Stands in a request in place of the cursor."""
READ, READ_AND_WRITE = selectors.EVENT_READ, selectors.EVENT_READ | selectors.EVENT_WRITE


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the load: patterns, COUNT, rate, duration."""

    match: list[str] = option("a pattern to search; @ is the user (may be repeated)", action="append")
    users: int = option("users 1 to N", number(1, 10**9, int), 1000)
    count: int = option("COUNT of each call", number(1, 10**9, int), 10)
    type: str | None = option("TYPE of each call (none)", word, None)
    calls: int | None = option("calls of a walk at most (until the cursor is 0)", number(1, 10**9, int), None)
    client: str | None = option("name of the connections in CLIENT LIST (none)", word, None)
    rate: float | None = option(
        "events a second (without it: always --most at once)", number(0.001, 1e6), None
    )
    most: int = option("events under way at once", number(1, 100_000, int), 1000)
    lines: int = option("connections that all events share", number(1, 100, int), 8)
    seed: int = option("seed of the random users and arrivals", number(0, 2**63, int), 0)
    seconds: float = option("seconds until the load ends", number(0.1, 86_400), 3_600.0)


@dataclass(slots=True, eq=False)
class SearchEvent:
    """An event under way. `walks`: those not over; `calls`: made so far."""

    walks: int
    calls: int = 0


@dataclass(slots=True)
class Walk:
    """A walk of an event. `head` and `tail`: the parts of its requests before and behind the cursor. `calls`: made."""

    event: SearchEvent
    head: bytes
    tail: bytes
    calls: int = 0

    def call(self, cursor: bytes) -> tuple[bytes, bytes, bytes]:
        """The parts of the request that goes on from a cursor."""
        return self.head, b"$%d\r\n%b" % (len(cursor), cursor), self.tail


class Line(Stream):
    """A connection that many walks share: their calls leave in one piece, and replies come in the same order."""

    def __init__(self, server: Server) -> None:
        """Connect and sign in. Raises `LoadFailed` or `ConnectionLost`."""
        super().__init__(connect(server), READ_BYTES)
        self.waiting: deque[Walk] = deque()

    @property
    def interest(self) -> int:
        """The events to select: replies, and room to send while something is left to send."""
        return READ_AND_WRITE if self.has_outgoing else READ


class Scanners:
    """All events, in one loop."""

    def __init__(self, plan: Plan) -> None:
        """Connect. Raises `LoadFailed` or `ConnectionLost`."""
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._selector = selectors.DefaultSelector()
        server = replace(plan.server, client_name=plan.client or "")
        self._lines = [Line(server) for _ in range(plan.lines)]
        for line in self._lines:
            self._selector.register(line.fd, READ, line)
        self._turns = itertools.cycle(self._lines)
        self._under_way: set[SearchEvent] = set()
        self._youngest = SearchEvent(0)
        self._full: tuple[int, int] | None = None
        self._arrived = self._begun = self._finished = self._calls = self._calls_of_finished = 0

    def run(self, stop: Stop) -> dict[str, float]:
        """Start events and answer calls until it is time to end; returns the figures."""
        plan = self._plan
        began = now = clock()
        end, line_due = began + int(plan.seconds * SECOND), began + SECOND
        schedule = due_times(began, plan.rate, plan.seed, None) if plan.rate else itertools.repeat(end)
        due = next(schedule)
        while not stop.requested and now < end:
            while due <= now:
                self._arrived += 1
                due = next(schedule)
            if not plan.rate and self._may_follow():
                self._arrived += 1
            while self._begun < self._arrived and len(self._under_way) < plan.most:
                self._begin()
            if not self._full and len(self._under_way) == plan.most:
                self._full = clock(), self._calls
            for key, ready in self._selector.select(min(max(0, due - clock()) / SECOND, LONGEST_SLEEP_S)):
                self._attend(key.data, ready)
            now = clock()
            if now >= line_due:
                line_due += SECOND
                say({"t": time(), "arrived": self._arrived, "finished": self._finished, "calls": self._calls})
        for line in self._lines:
            line.close()
        return self._figures(began, now)

    def _may_follow(self) -> bool:
        """True if the next event of a closed loop may begin: the youngest has made 1 / --most of an event's calls."""
        if not self._under_way:
            return True
        share = self._calls_of_finished / max(1, self._finished) / self._plan.most
        return self._finished > 0 and len(self._under_way) < self._plan.most and self._youngest.calls >= share

    def _begin(self) -> None:
        """Begin the walks of the next event."""
        plan = self._plan
        self._begun += 1
        event = self._youngest = SearchEvent(len(plan.match))
        self._under_way.add(event)
        user = str(self._random.randint(1, plan.users))
        for pattern in plan.match:
            typed = ("TYPE", plan.type) if plan.type else ()
            words = command("SCAN", "\0", "MATCH", pattern.replace("@", user), "COUNT", plan.count, *typed)
            head, _, tail = words.partition(CURSOR)
            walk, line = Walk(event, head, tail), next(self._turns)
            line.waiting.append(walk)
            self._send(line, [*walk.call(b"0")])

    def _send(self, line: Line, parts: list[bytes]) -> None:
        before = line.interest
        line.send(b"".join(parts))
        if line.interest != before:
            self._selector.modify(line.fd, line.interest, line)

    def _attend(self, line: Line, ready: int) -> None:
        """Answer each reply with the walk's next call."""
        replies = line.receive() if ready & selectors.EVENT_READ else []
        parts: list[bytes] = []
        for reply in replies:
            walk = line.waiting.popleft()
            if not isinstance(reply, list):
                raise LoadFailed(f"the server refuses: {reply}")
            walk.event.calls += 1
            walk.calls += 1
            if reply[0] == b"0" or walk.calls == self._plan.calls:
                self._walked(walk.event)
            else:
                parts += walk.call(reply[0])
                line.waiting.append(walk)
        self._calls += len(replies)
        if parts or ready & selectors.EVENT_WRITE:
            self._send(line, parts)

    def _walked(self, event: SearchEvent) -> None:
        event.walks -= 1
        if event.walks == 0:
            self._under_way.remove(event)
            self._finished += 1
            self._calls_of_finished += event.calls

    def _figures(self, began: int, now: int) -> dict[str, float]:
        seconds = max(now - began, 1) / SECOND  # the end may be requested before it has begun
        full_at, calls_then = self._full or (began, 0)
        figures = {
            "arrived_per_s": self._arrived / seconds,
            "finished_per_s": self._finished / seconds,
            "in_flight": self._arrived - self._finished,
            "calls_per_s": self._calls / seconds,
            "calls_per_event": float(max((event.calls for event in self._under_way), default=0)),
        }
        if self._finished:
            each = self._calls_of_finished / self._finished
            capacity = (self._calls - calls_then) * SECOND / max(now - full_at, 1) / each
            figures |= {"calls_per_event": each, "capacity_per_s": capacity}
        return figures


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Connect and search; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
    return Scanners(plan).run(stop)


if __name__ == "__main__":
    sys.exit(run_load("scanners", __doc__, Plan, work))
