"""The probe's loop: requests leave on a fixed schedule, whether or not earlier replies came back.

A closed-loop client stops asking while the server stalls and so never measures the stall ("coordinated
omission", Gil Tene, "How NOT to Measure Latency"). Here request number i is due at start + i / rate, and its
latency from that moment is recorded, whether the server, the network or this process held it up.

With `jitter_seed` request i is due at a random moment of its slot, start + (i + u) / rate: the rate stays
exact, but the schedule cannot fall into step with something periodic in the server, as even spacing could.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns as clock
from time import time_ns

import hiredis

from loadtest.arguments import ServerPlan, key_prefix, number, option, word
from loadtest.probe.connection import Connection, Sent
from loadtest.probe.pool import SECOND, Pool
from loadtest.probe.quiet import tidy
from loadtest.probe.record import Interval, Observer
from loadtest.resp import command

# A sleeper wakes 50 to 90 us late: sleep that much less and poll for the rest (1.6 % of a core at 200/s).
WAKE_EARLY = 80_000
BURST = 64  # requests sent in one go after a pause, before looking at replies again
QUIET_GAP = SECOND // 1000  # a line costs well under 1 ms of work: wait for a gap between requests that long,
QUIET_PATIENCE = SECOND // 50  # but not longer than this
DRAIN = 5 * SECOND  # after --duration, wait this long for replies under way
KEY_TTL_SECONDS = 3600
MOST_CONNECTIONS = 500  # select(2) handles file descriptors below 1024, and each connection may need two


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the probe: command, rate, connections. Times in seconds."""

    rate: float = option("requests a second", number(0.1, 20_000), 200.0)
    connections: int = option("connections that take turns", number(1, MOST_CONNECTIONS, int), 1)
    reconnect_seconds: float | None = option(
        "seconds after which a connection is replaced (never)", number(0.05, 86_400), None
    )
    duration: float | None = option("seconds until the probe ends (on SIGTERM)", number(0.1, 10**7), None)
    name: str = option("name in every line and in CLIENT LIST", word, "main")
    command: str = option("command to send", default="get", choices=("get", "ping"))
    keys: int = option("own keys to write and GET in turn", number(1, 100_000, int), 100)
    key_prefix: str = option("own keys are PREFIX:0, PREFIX:1 ...", key_prefix, "bystander")
    read_only: bool = option("write no keys: on a replica, another probe has written them", default=False)
    interval_seconds: float = option(
        "seconds between lines; a --duration that is no longer makes one line", number(0.1, 60), 1.0
    )
    by_due_time: bool = option(
        "a second line for each interval, of the requests that were due in it, once all are answered",
        default=False,
    )
    arrivals: str = option(
        "each request at the beginning of its slot, or at a random moment of it",
        default="even",
        choices=("even", "jittered"),
    )
    seed: int = option("seed of --arrivals jittered", number(0, 2**63, int), 0)
    metrics_port: int | None = option("port for Prometheus metrics (none)", number(1, 65_535, int), None)
    metrics_host: str = option("address for --metrics-port", default="127.0.0.1")

    @property
    def jitter_seed(self) -> int | None:
        """The seed of the random moments; None for requests that are evenly spaced."""
        return self.seed if self.arrivals == "jittered" else None

    def greeting(self) -> list[bytes]:
        """The commands that each new connection sends first."""
        return [*self.server.greeting(), command("CLIENT", "SETNAME", f"probe:{self.name}")]

    def writes(self) -> list[bytes]:
        """The commands that write the keys to be read; none if another probe writes them, or if PINGs are measured."""
        if self.command == "ping" or self.read_only:
            return []
        value = "b" * 200
        return [
            command("SET", f"{self.key_prefix}:{index}", value, "EX", KEY_TTL_SECONDS)
            for index in range(self.keys)
        ]

    def requests(self) -> list[bytes]:
        """The requests to measure, sent in turn."""
        if self.command == "ping":
            return [command("PING")]
        return [command("GET", f"{self.key_prefix}:{index}") for index in range(self.keys)]


def due_times(start: int, rate: float, jitter_seed: int | None, total: int | None) -> Iterator[int]:
    """The moments (ns) at which requests are due: `rate` a second from `start` on, `total` of them or without end.

    Evenly spaced without a seed; with one, each at a random moment of its slot.
    """
    offset: Callable[[], float] = float if jitter_seed is None else random.Random(jitter_seed).random
    for index in itertools.count() if total is None else range(total):
        yield start + int((index + offset()) * SECOND / rate)


class OpenLoop:
    """Run with `run()`; end from a signal handler with `stop()`."""

    def __init__(
        self,
        plan: Plan,
        emit: Callable[[str], None],
        complain: Callable[[str], None],
        observer: Observer | None = None,
    ) -> None:
        """`emit` takes a JSON line an interval; `complain` a line for people."""
        self._plan = plan
        self._emit = emit
        self._complain = complain
        self._observer = observer
        self._requests = plan.requests()
        self._writes = plan.writes()
        self._pool = Pool(plan.server, plan.connections, plan.reconnect_seconds, plan.greeting(), self)
        self._interval = Interval(clock())
        self._due = Interval(clock())
        self._unsettled: deque[Interval] = deque()  # by due time: ended, and perhaps not all answered
        self._interval_ns = int(plan.interval_seconds * SECOND)
        self._closed: Interval | None = None
        self._closes_at = 0
        self._writes_by = 0
        self._keys_missing = False
        self._last_error: str | None = None
        self._stopping = False

    def stop(self) -> None:
        """Ask `run()` to print its last line and return. Safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Ask on schedule until the duration is over or `stop()` is called."""
        self._settle()
        start = clock() + SECOND // 100
        self._interval, self._due = Interval(start), Interval(start)
        self._closes_at = self._first_close(start)
        self._ask_on_schedule(start)
        self._drain(start)
        self._close_interval(clock())
        self._write_line()
        self._write_settled(unanswered=True)
        self._pool.close()

    def _first_close(self, start: int) -> int:
        """Return the end of the first interval: a whole multiple of its length on the wall clock, so that the intervals
        of several probes coincide, and at least half an interval after the start. If one interval holds the whole run,
        it ends after everything."""
        plan = self._plan
        if plan.duration is not None and plan.duration <= plan.interval_seconds:
            return start + int(plan.duration * SECOND) + DRAIN + SECOND
        first = self._interval_ns - (time_ns() + SECOND // 100) % self._interval_ns
        return start + (first if 2 * first >= self._interval_ns else first + self._interval_ns)

    def _settle(self) -> None:
        """Give the first connections and keys up to a second, so that their cost is not measured."""
        deadline = clock() + SECOND
        while not self._stopping and clock() < deadline and not (self._pool.complete and self._pool.idle):
            self._pool.look_after(clock())
            self._pool.wait(SECOND // 1000)

    def _ask_on_schedule(self, start: int) -> None:
        plan, pool, requests = self._plan, self._pool, itertools.cycle(self._requests)
        total = None if plan.duration is None else math.ceil(plan.rate * plan.duration - 1e-6)
        schedule = due_times(start, plan.rate, plan.jitter_seed, total)
        due = next(schedule, None)
        while not self._stopping and due is not None:
            now = clock()
            burst = 0
            while due is not None and due <= now and burst < BURST:
                self._interval.request_was_due(now - due)
                self._due.request_was_due(now - due)
                if not pool.send(next(requests), Sent(due, now)):
                    self._count_error(self._due)
                burst += 1
                due = next(schedule, None)
                now = clock()
            pool.look_after(now)
            if due is None:
                return
            if now >= self._closes_at:
                self._close_interval(now)
            if self._closed and self._is_quiet(now, due):
                self._write_line()
            elif self._settled and self._is_quiet(now, due):
                self._write_settled()
            next_event = due - WAKE_EARLY
            if now < self._closes_at < next_event:
                next_event = self._closes_at
            pool.wait(next_event - now)

    def _drain(self, start: int) -> None:
        """After the last request: wait until the duration is over, then up to `DRAIN` for replies still to come."""
        end = start + int((self._plan.duration or 0) * SECOND)
        while not self._stopping and ((now := clock()) < end or (not self._pool.idle and now < end + DRAIN)):
            if now >= self._closes_at:
                self._close_interval(now)
            self._write_settled()
            self._pool.look_after(now)
            self._pool.wait(min(SECOND // 100, max(end - now, SECOND // 1000)))

    def _is_quiet(self, now: int, due: int) -> bool:
        """True if writing a line now delays no measurement, or if the line is overdue by `QUIET_PATIENCE`."""
        if now > self._writes_by:
            return True
        return due - now > QUIET_GAP and self._pool.idle

    def _close_interval(self, now: int) -> None:
        """End the interval: what happens from now on, and what is due from now on, belongs to the next one."""
        self._write_line()
        waiting = self._pool.waiting
        self._interval.end(
            now,
            len(waiting),
            min((sent.due for sent in waiting), default=None),
            connected=len(self._pool.standing),
            last_error=self._last_error,
        )
        self._due.end_with(self._interval)
        self._unsettled.append(self._due)
        self._closed, self._interval, self._due = self._interval, Interval(now), Interval(now)
        # After a stall the next whole interval: all probes' intervals end at the same moments.
        self._closes_at += self._interval_ns * (1 + max(0, now - self._closes_at) // self._interval_ns)
        self._writes_by = now + QUIET_PATIENCE
        self._last_error = None

    def _write_line(self) -> None:
        """Write the line of the interval that has ended, if that was not done yet."""
        if self._closed is None:
            return
        self._emit(self._closed.line(self._plan.name))
        self._closed = None
        if self._keys_missing:
            self._keys_missing = False
            for request in self._writes:
                self._pool.send(request, None)
        tidy()

    @property
    def _settled(self) -> bool:
        """True if the oldest interval by due time has no unanswered request."""
        return bool(self._unsettled) and not self._unsettled[0].unanswered

    def _write_settled(self, unanswered: bool = False) -> None:
        """Write the intervals by due time in order, up to the first with unanswered requests, or all of them."""
        while self._settled or (unanswered and self._unsettled):
            settled = self._unsettled.popleft()
            if self._plan.by_due_time:
                self._emit(settled.line(self._plan.name))

    def _interval_of(self, sent: Sent) -> Interval:
        """Return the interval by due time that counts the request: the one in which its time came."""
        ended = reversed(self._unsettled)
        return next((each for each in (self._due, *ended) if each.began_ns <= sent.at), self._due)

    def _count_error(self, due_in: Interval) -> None:
        self._interval.errors += 1
        due_in.errors += 1

    # Called by the pool (see `Owner`):

    def reply_came(self, sent: Sent | None, reply: object, now: int) -> None:
        """Record the latency of a measured request; an error reply is an error."""
        failed = isinstance(reply, hiredis.ReplyError)
        if failed:
            self._last_error = str(reply)
        if sent is None:
            return
        due_in = self._interval_of(sent)
        if failed:
            self._count_error(due_in)
            return
        if reply is None:  # the key expired, or was evicted or flushed
            self._keys_missing = True
        self._interval.reply_came(now - sent.due, now - sent.at)
        due_in.reply_came(now - sent.due, now - sent.at)
        if self._observer:
            self._observer(now - sent.due, now - sent.at)

    def requests_lost(self, lost: Sequence[Sent], reason: str) -> None:
        """Count the requests in flight that were lost with their connection as errors."""
        for sent in lost:
            self._count_error(self._interval_of(sent))
        self._last_error = reason

    def server_is_back(self, connection: Connection) -> None:
        """Write the keys before any request is measured."""
        for request in self._writes:
            connection.ask(request, None)

    def complain(self, text: str) -> None:
        """Pass on a line for people."""
        self._complain(text)
