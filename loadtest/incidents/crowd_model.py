"""The crowd itself: clients that think, ask, wait, and go away when they waited too long. One thread, one selector.

Clients are not simulated one by one. With C clients of which w wait for an answer and a stay away, requests arrive at
RATE * (1 - (w + a) / C): each free client asks RATE / C times a second, and the others do not ask. That is the
machine-repairman model of queueing theory (a finite source). With a short queue it is an open loop; when the server
stalls, arrivals stall with it. A request takes the free connection that was used last; if all connections are in use,
it waits in the client.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import resource
import selectors
from collections import deque
from dataclasses import dataclass
from itertools import repeat
from time import monotonic_ns

import hiredis

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.incidents.pages import MOST_PAGES, Layout, Pages
from loadtest.info import INFO, ServerInfo, read_info
from loadtest.probe.connection import Connection, Sent
from loadtest.process import Stop, say
from loadtest.resp import LoadFailed, command, resolve

SECOND = 1_000_000_000
SPARE_FILES = 64
READING = selectors.EVENT_READ
WRITING = selectors.EVENT_READ | selectors.EVENT_WRITE
ANSWER_S = 30


@dataclass(frozen=True, slots=True)
class PageRequest(Sent):
    """A request in flight, with the number of entries it writes."""

    inserts: int


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the crowd: behaviour of its clients, sizes of its pages, preparation of the server.

    Raises:
        ValueError: options that exclude each other.
    """

    rate: float | None = option(
        "requests a second of the whole crowd when no client waits", number(1, 200_000), None
    )
    share: float = option("share of --rate to offer", number(0.01, 10), 1.0)
    find_utilisation: float | None = option(
        "find the rate instead: busy share of the main thread, above 1 more than it can do",
        number(0.1, 5),
        None,
    )
    seconds: float = option("seconds of load, without the filling", number(0.5, 3600))
    clients: int = option("clients in the crowd", number(1, 20_000, int), 1000)
    asks_every: float | None = option(
        "seconds between a client's requests: with a low --rate there are fewer clients (always --clients)",
        number(0.01, 3600),
        None,
    )
    connections: int | None = option(
        "connections that the clients share (one for each client)", number(1, 20_000, int), None
    )
    write_every: int = option("one request of this many writes a page", number(1, 10_000, int), 10)
    patience_seconds: float = option("seconds after which a waiting client goes away", number(0, 3600), 0.25)
    away_seconds: float = option("seconds, about, until such a client returns", number(0, 3600), 1.0)
    fill: float = option("share of maxmemory to fill first", number(0, 0.99), 0.0)
    limit_mb: float | None = option(
        "maxmemory to set on the server first, in MB (unchanged)", number(8, 10**6), None
    )
    settle_seconds: float = option(
        "seconds after connecting in which the server shrinks buffers of idle connections", number(0, 60), 0.0
    )
    ttl_seconds: float = option("time to live of all entries; two weeks", number(0.1, 10**8), 1_209_600.0)
    fits: float = option("share of maxmemory for fitting_ttl_s", number(0.01, 1), 0.7)
    first_page: int = option("number of the first page", number(1, MOST_PAGES // 2, int), 1)
    entries: int = option("entries of a page", number(1, 999, int), 150)
    pages_read: int = option("pages read by one request", number(1, 8, int), 2)
    key_bytes: int = option("length of a key, the prefix included", number(24, 500, int), 48)
    value_bytes: int = option("length of a value", number(1, 10_000, int), 16)
    interval_seconds: float = option("seconds between samples of the server", number(0.02, 10), 0.1)
    prefix: str = option("own keys are PREFIX:PAGE:ENTRY", word, "crowd")
    seed: int = option("seed of the random numbers", number(0, 2**63, int), 0)

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.find_utilisation is None):
            raise ValueError("either --rate or --find-utilisation is needed")
        if len(self.prefix) + 14 > self.key_bytes:
            raise ValueError(f"--key-bytes {self.key_bytes} leaves no room for the prefix {self.prefix}")

    @property
    def layout(self) -> Layout:
        """The sizes of its pages."""
        return Layout(self.prefix, self.entries, self.pages_read, self.key_bytes, self.value_bytes)

    @property
    def size(self) -> int:
        """Number of clients: --clients, or fewer where each asks once in --asks-every seconds at the whole rate."""
        if not self.asks_every or not self.rate:
            return self.clients
        return min(self.clients, max(1, round(self.rate * self.asks_every)))


class Tally:
    """Counts on the client's side since the last line."""

    def __init__(self) -> None:
        self.sent = self.answered = self.stalled = self.inserted = 0
        self.latencies: list[int] = []

    def quantile_ms(self, q: float) -> float | None:
        """A quantile of the latencies, which count from the time due; None without answers."""
        found = sorted(self.latencies)
        return found[min(len(found) - 1, int(q * len(found)))] / 1e6 if found else None


@dataclass(frozen=True)
class Stretch:
    """A stretch of load at one rate: samples of the server at both ends, and the counts between them."""

    rate: float
    first: ServerInfo
    last: ServerInfo
    answered: int
    inserted: int
    most_in_flight: int
    most_clients: float
    latencies: list[int]

    @property
    def seconds(self) -> float:
        """Length of the stretch, on the server's clock."""
        return max(self.last.at - self.first.at, 1e-6)

    @property
    def busy(self) -> float:
        """Busy share of the server's main thread."""
        return (self.last.busy_s - self.first.busy_s) / self.seconds


def allow_files(wanted: int) -> None:
    """Let this process open at least `wanted` files. Raises `LoadFailed` if the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise LoadFailed(f"{wanted} open files are needed, and the system allows {hard} (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Crowd:
    """A crowd on one server. The next write makes page `next_page`; the `readable` pages before it can be read."""

    def __init__(self, plan: Plan, pages: Pages) -> None:
        """Opens all connections.

        Raises:
            ConnectionLost: the server does not take them.
            LoadFailed: it refuses to sign in, or the system has too few files.
        """
        connections = plan.connections or plan.size
        allow_files(connections + SPARE_FILES)
        self._plan, self._pages, self._random = plan, pages, random.Random(plan.seed)
        self._size = plan.size
        self.next_page = self.readable = 1
        self._selector = selectors.DefaultSelector()
        self._family, self._address = resolve(plan.server)
        self._greeting = plan.server.greeting() or [command("PING")]
        self._lines: dict[int, Connection] = {}
        self._observer = self._open()
        self._free = [self._open() for _ in range(connections)]
        self._queue: deque[int] = deque()
        self._away: list[int] = []  # a heap of times of return
        self._waiting = self._requests = self._sampled_at = 0
        self._sampling = False
        self._tally = Tally()
        self._last_sample: ServerInfo | None = None

    def _open(self) -> Connection:
        """Open a connection, sign in and wait for the answer. (A server accepts a few connections a turn of its loop,
        and none while it stalls, so all are opened before the load.)
        """
        line = Connection(self._family, self._address, monotonic_ns())
        self._selector.register(line.fd, WRITING)
        end = monotonic_ns() + ANSWER_S * SECOND
        answered = False
        while not answered:
            for key, events in self._selector.select(1.0):
                if key.fd != line.fd:
                    continue
                if events & selectors.EVENT_WRITE and not line.ready:
                    line.finish_connecting()
                    self._selector.modify(line.fd, READING)
                    line.waiting.extend(repeat(None, len(self._greeting) - 1))
                    line.ask(b"".join(self._greeting), None)
                elif events & READING:
                    self._refused(line.answers())
                    answered = not line.waiting
            if monotonic_ns() > end:
                raise LoadFailed("the server does not take a connection")
        self._lines[line.fd] = line
        return line

    @staticmethod
    def _refused(answers: list[tuple[Sent | None, object]]) -> None:
        for _, reply in answers:
            if isinstance(reply, hiredis.ReplyError):
                raise LoadFailed(f"the server refuses: {reply}")

    def run(self, rate: float, seconds: float, stop: Stop) -> Stretch:
        """Offer `rate` requests a second for `seconds`. Raises `LoadFailed` for a refusal, `ConnectionLost`."""
        began = monotonic_ns()
        end, slots = began + round(seconds * SECOND), 0
        samples: list[ServerInfo] = []
        total, most_in_flight, most_clients = Tally(), 0, 0.0
        while (now := monotonic_ns()) < end and not stop.requested:
            while self._away and self._away[0] <= now:
                heapq.heappop(self._away)
            due = int((now - began) * rate / SECOND)
            while slots < due:
                slots += 1
                self._arrive(began + int(slots * SECOND / rate))
            if not self._sampling and now >= self._sampled_at + self._plan.interval_seconds * SECOND:
                self._observer.ask(INFO, None)
                self._sampling, self._sampled_at = True, now
            pause = (began + (slots + 1) * SECOND / rate - monotonic_ns()) / SECOND
            for key, events in self._selector.select(min(max(pause, 0.0), 0.02)):
                line = self._lines[key.fd]
                if events & selectors.EVENT_WRITE:
                    line.flush()
                    if not line.has_outgoing:
                        self._selector.modify(line.fd, READING)
                if not events & selectors.EVENT_READ:
                    continue
                if line is not self._observer:
                    self._take(line)
                elif sample := self._observe():
                    most_in_flight = max(most_in_flight, self._waiting)
                    most_clients = max(most_clients, sample.clients)
                    if samples:
                        self._write_line(samples[-1], sample, rate)
                        total.answered += self._tally.answered
                        total.inserted += self._tally.inserted
                        total.latencies += self._tally.latencies
                    samples.append(sample)
                    self._tally = Tally()
        if len(samples) < 2:
            if stop.requested and self._last_sample:
                samples = [self._last_sample, self._last_sample]
            else:
                raise LoadFailed("the server answered INFO fewer than twice: give more --seconds")
        return Stretch(
            rate,
            samples[0],
            samples[-1],
            total.answered,
            total.inserted,
            most_in_flight,
            most_clients,
            total.latencies,
        )

    def _arrive(self, due: int) -> None:
        if self._random.random() * self._size < self._waiting + len(self._away):
            self._tally.stalled += 1
            return
        self._waiting += 1
        if self._free:
            self._send(self._free.pop(), due)
        else:
            self._queue.append(due)

    def _send(self, line: Connection, due: int) -> None:
        self._requests += 1
        self._tally.sent += 1
        inserts = 0
        if self._requests % self._plan.write_every == 0:
            inserts = self._pages.layout.entries
            request = self._pages.write(self.next_page)
            self.next_page += 1
            self.readable += 1
            line.waiting.extend(repeat(None, inserts - 1))
        else:
            oldest = self.next_page - self.readable
            request = self._pages.read(
                [
                    oldest + int(self._random.random() * self.readable)
                    for _ in range(self._pages.layout.pages_read)
                ]
            )
        line.ask(request, PageRequest(due, monotonic_ns(), inserts))
        if line.has_outgoing:
            self._selector.modify(line.fd, WRITING)

    def _take(self, line: Connection) -> None:
        """Take the replies that have come on a connection. With the last reply to a request it is free again."""
        for sent, reply in line.answers():
            if isinstance(reply, hiredis.ReplyError):
                raise LoadFailed(f"the server refuses: {reply}")
            if not isinstance(sent, PageRequest):
                continue
            now = monotonic_ns()
            took = now - sent.due
            self._waiting -= 1
            self._tally.answered += 1
            self._tally.inserted += sent.inserts
            self._tally.latencies.append(took)
            if took > self._plan.patience_seconds * SECOND:
                back = now + round(self._plan.away_seconds * (0.75 + self._random.random() / 2) * SECOND)
                heapq.heappush(self._away, back)
            if self._queue:
                self._send(line, self._queue.popleft())
            else:
                self._free.append(line)

    def _observe(self) -> ServerInfo | None:
        for _, reply in self._observer.answers():
            self._sampling = False
            if not isinstance(reply, bytes):
                raise LoadFailed(f"the server refuses INFO: {reply!r}")
            self._last_sample = read_info(reply)
            # Only pages that are still cached can be read; those evicted or expired are roughly the oldest.
            self.readable = max(1, min(self.readable, self._last_sample.keys // self._pages.layout.entries))
            return self._last_sample
        return None

    def _write_line(self, old: ServerInfo, new: ServerInfo, rate: float) -> None:
        """Print one line about the time between two samples of the server."""
        tally, seconds = self._tally, max(new.at - old.at, 1e-6)
        say(
            {
                "t": new.at,
                "interval_s": seconds,
                "offered_per_s": rate,
                "sent": tally.sent,
                "answered": tally.answered,
                "stalled": tally.stalled,
                "in_flight": self._waiting,
                "away": len(self._away),
                "p50_ms": tally.quantile_ms(0.5),
                "p99_ms": tally.quantile_ms(0.99),
                "inserted": tally.inserted,
                "evicted": new.evicted - old.evicted,
                "expired": new.expired - old.expired,
                "keys": new.keys,
                "used_mb": new.used / 1e6,
                "limit_mb": new.limit / 1e6,
                "clients_mb": new.clients / 1e6,
                "busy": (new.busy_s - old.busy_s) / seconds,
            }
        )

    def close(self) -> None:
        """Close all connections; what was in flight is lost."""
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                line.close()
        self._selector.close()
