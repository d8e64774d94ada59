"""The probe's loop: requests leave on a fixed schedule, whether or not earlier replies came back.

A closed-loop client stops asking while the server stalls and so never measures the stall ("coordinated
omission", Gil Tene, "How NOT to Measure Latency"). Here request number i is due at start + i / rate, and its
latency from that moment is recorded, whoever held it up: the server, the network or this process.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass

import hiredis

from loadtest.quiet import tidy
from loadtest.record import Interval, Observer
from loadtest.wire import Connection, ConnectionLost, Sent, Server, command, resolve

clock = time.perf_counter_ns

SECOND = 1_000_000_000
# A sleeper wakes 50 to 90 µs late: sleep that much less, poll for the rest (at most 1.6 % of a core at 200/s).
WAKE_EARLY = 80_000
LONGEST_SLEEP = SECOND // 10  # so that a signal is noticed soon at any rate
BURST = 64  # requests sent in one go after a pause, before looking at replies again
CONNECT_TIMEOUT = SECOND
FIRST_BACKOFF, LONGEST_BACKOFF = SECOND // 100, SECOND // 4
QUIET_GAP = SECOND // 1000  # a line costs well under 1 ms of work: wait for a gap between requests that long,
QUIET_PATIENCE = SECOND // 50  # but not longer than this
DRAIN = 5 * SECOND  # after --duration, wait this long for replies under way


@dataclass(frozen=True)
class Plan:
    """What to ask, how often, over how many connections. Times in seconds."""

    server: Server
    name: str = "main"
    rate: float = 200.0
    connections: int = 1
    reconnect_seconds: float | None = None
    duration: float | None = None
    command: str = "get"
    keys: int = 100
    key_prefix: str = "bystander"


class Slot:
    """A place for one connection: the current one, perhaps its successor, and when to open the next."""

    def __init__(self, opens_at: int) -> None:
        self.current: Connection | None = None
        self.successor: Connection | None = None
        self.opens_at = opens_at
        self.backoff = FIRST_BACKOFF


class OpenLoop:
    """Run with `run()`; end from a signal handler with `stop()`."""

    def __init__(
        self,
        plan: Plan,
        emit: Callable[[str], None],
        complain: Callable[[str], None],
        observer: Observer | None,
    ) -> None:
        """`emit` takes a JSON line a second, `complain` a line for people when the server comes or goes."""
        self._plan = plan
        self._emit = emit
        self._complain = complain
        self._observer = observer
        self._address: tuple[int, tuple[str | int, ...]] | None = None
        self._stopping = False
        self._down = False
        self._keys_missing = False
        self._last_error: str | None = None
        self._turn = 0
        now = clock()
        self._slots = [Slot(now) for _ in range(plan.connections)]
        self._draining: list[Connection] = []
        self._by_fd: dict[int, Connection] = {}
        self._read_fds: list[int] = []
        self._interval = Interval(now)
        sign_in = [command("CLIENT", "SETNAME", f"probe:{plan.name}")]
        if plan.server.database:
            sign_in.insert(0, command("SELECT", plan.server.database))
        if plan.server.password:
            user = (plan.server.username,) if plan.server.username else ()
            sign_in.insert(0, command("AUTH", *user, plan.server.password))
        self._sign_in = sign_in
        names = [f"{plan.key_prefix}:{number}" for number in range(plan.keys)]
        self._writes = (
            [command("SET", name, "b" * 200, "EX", 3600) for name in names] if plan.command == "get" else []
        )
        self._requests = (
            [command("GET", name) for name in names] if plan.command == "get" else [command("PING")]
        )

    def stop(self) -> None:
        """Ask `run()` to print its last line and return. Safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Ask on schedule until the duration is over or `stop()` is called."""
        plan = self._plan
        self._settle()
        start = clock() + SECOND // 100
        self._interval = Interval(start)
        total = None if plan.duration is None else int(plan.rate * plan.duration)
        number = 0
        due = start
        closes_at = start + SECOND
        while not self._stopping and (total is None or number < total):
            now = clock()
            burst = 0
            while due <= now and burst < BURST and (total is None or number < total):
                self._ask(self._requests[number % len(self._requests)], due, now)
                number += 1
                burst += 1
                due = start + int(number * SECOND / plan.rate)
                now = clock()
            self._look_after_slots(now)
            if now >= closes_at and self._is_quiet(now, due, closes_at):
                self._close_interval(now)
                closes_at = max(closes_at + SECOND, now)
            self._take_replies(min(due - WAKE_EARLY, closes_at if closes_at > now else due) - now)
        deadline = clock() + DRAIN
        while not self._stopping and self._in_flight() and clock() < deadline:
            now = clock()
            if now >= closes_at:
                self._close_interval(now)
                closes_at = max(closes_at + SECOND, now)
            self._take_replies(SECOND // 100)
        self._close_interval(clock())
        for connection in list(self._by_fd.values()):
            self._forget(connection)

    def _settle(self) -> None:
        """Give the first connections and keys up to a second, so that their cost is not measured."""
        deadline = clock() + SECOND
        while clock() < deadline and not self._stopping:
            self._look_after_slots(clock())
            if all(slot.current and not slot.current.waiting for slot in self._slots):
                return
            self._take_replies(SECOND // 1000)

    # --- requests and replies

    def _ask(self, request: bytes, due: int, now: int) -> None:
        """Send one request on the next connection in turn that stands; with none it is an error at once."""
        self._interval.request_was_due(now - due)
        for _ in self._slots:
            connection = self._slots[self._turn].current
            self._turn = (self._turn + 1) % len(self._slots)
            if connection is None:
                continue
            try:
                connection.send(request, Sent(due, now))
                return
            except ConnectionLost as lost:
                self._lose(connection, lost)
        self._interval.errors += 1

    def _take_replies(self, patience: int) -> None:
        """Wait up to `patience` ns for replies or for room to send, and handle what came."""
        timeout = min(max(patience, 0), LONGEST_SLEEP) / SECOND
        write_fds = [c.fd for c in self._by_fd.values() if c.has_outgoing or not c.ready]
        readable, writable, _ = select.select(self._read_fds, write_fds, (), timeout)
        for fd in writable:
            self._attend(self._by_fd.get(fd), self._write)
        for fd in readable:
            self._attend(self._by_fd.get(fd), self._read)

    def _attend(self, connection: Connection | None, work: Callable[[Connection], None]) -> None:
        if connection is None:  # lost a moment ago, in the same round
            return
        try:
            work(connection)
        except ConnectionLost as lost:
            self._lose(connection, lost)

    def _write(self, connection: Connection) -> None:
        if not connection.ready:
            connection.finish_connecting()
            self._put_to_use(connection)
        if connection.has_outgoing:
            connection.flush()

    def _read(self, connection: Connection) -> None:
        answers = connection.receive()
        now = clock()
        for sent, reply in answers:
            failed = isinstance(reply, hiredis.ReplyError)
            if failed:
                self._last_error = str(reply)
            if sent is None:
                continue
            if failed:
                self._interval.errors += 1
                continue
            if reply is None:  # expired, evicted or flushed
                self._keys_missing = True
            self._interval.reply_came(now - sent.due, now - sent.at)
            if self._observer:
                self._observer(now - sent.due, now - sent.at)
        if not connection.waiting and connection in self._draining:
            self._forget(connection)

    # --- connections

    def _look_after_slots(self, now: int) -> None:
        """Open what is missing, replace what is due for replacement, give up on connects that hang."""
        for slot in self._slots:
            opening = slot.successor
            if opening is None:
                if now >= slot.opens_at:
                    self._open(slot, now)
            elif now - opening.opened_at > CONNECT_TIMEOUT:
                self._lose(opening, ConnectionLost("cannot connect: no answer"))

    def _open(self, slot: Slot, now: int) -> None:
        try:
            if self._address is None:
                self._address = resolve(self._plan.server)
            slot.successor = Connection(*self._address, now)
        except ConnectionLost as lost:
            self._retry_later(slot, lost)
            return
        self._by_fd[slot.successor.fd] = slot.successor
        self._read_fds = [c.fd for c in self._by_fd.values() if c.ready]

    def _put_to_use(self, connection: Connection) -> None:
        """A new connection stands: it takes over its slot; the former one stays until its last reply."""
        self._read_fds.append(connection.fd)
        slot = next(slot for slot in self._slots if slot.successor is connection)
        former, slot.current, slot.successor = slot.current, connection, None
        slot.backoff = FIRST_BACKOFF
        slot.opens_at = self._next_replacement(slot)
        for request in self._sign_in:
            connection.send(request, None)
        if former is None and sum(1 for each in self._slots if each.current) == 1:
            self._write_keys(connection)  # the first one after a start or an outage: the server may be empty
        if self._down:
            self._down = False
            self._complain(f"connected to {self._plan.server} again")
        if former:
            if former.waiting:
                self._draining.append(former)
            else:
                self._forget(former)

    def _next_replacement(self, slot: Slot) -> int:
        """Each connection lives `reconnect_seconds`; the slots take turns, evenly spaced."""
        seconds = self._plan.reconnect_seconds
        if seconds is None:
            return clock() + 10**9 * SECOND
        period = int(seconds * SECOND)
        phase = period * self._slots.index(slot) // len(self._slots)
        now = clock()
        return now + period - (now - phase) % period

    def _lose(self, connection: Connection, lost: ConnectionLost) -> None:
        """Count what was in flight as errors and try again soon."""
        self._interval.errors += sum(1 for sent in connection.waiting if sent)
        connection.waiting.clear()
        self._forget(connection)
        for slot in self._slots:
            if slot.current is connection:
                slot.current = None
                slot.opens_at = clock()
                self._last_error = str(lost)
                self._note_if_down(lost)
            elif slot.successor is connection:
                slot.successor = None
                self._retry_later(slot, lost)

    def _retry_later(self, slot: Slot, lost: ConnectionLost) -> None:
        self._last_error = str(lost)
        slot.opens_at = clock() + slot.backoff
        slot.backoff = min(slot.backoff * 2, LONGEST_BACKOFF)
        self._note_if_down(lost)

    def _note_if_down(self, lost: ConnectionLost) -> None:
        if not self._down and not any(slot.current for slot in self._slots):
            self._down = True
            self._address = None  # a restarted container may come back under another address
            self._complain(f"{self._plan.server}: {lost}; trying again until it is there")

    def _forget(self, connection: Connection) -> None:
        del self._by_fd[connection.fd]
        self._read_fds = [c.fd for c in self._by_fd.values() if c.ready]
        if connection in self._draining:
            self._draining.remove(connection)
        connection.close()

    def _write_keys(self, connection: Connection) -> None:
        self._keys_missing = False
        for request in self._writes:
            connection.send(request, None)

    # --- intervals

    def _is_quiet(self, now: int, due: int, closes_at: int) -> bool:
        """Whether writing a line now delays no measurement; past the patience any moment will do."""
        if now > closes_at + QUIET_PATIENCE:
            return True
        return due - now > QUIET_GAP and not self._in_flight()

    def _in_flight(self) -> int:
        return sum(len(connection.waiting) for connection in self._by_fd.values())

    def _close_interval(self, now: int) -> None:
        waiting = [sent.due for c in self._by_fd.values() for sent in c.waiting if sent]
        standing = [slot.current for slot in self._slots if slot.current]
        line = self._interval.line(
            name=self._plan.name,
            now_ns=now,
            in_flight=len(waiting),
            oldest_due_ns=min(waiting, default=None),
            more={"connected": len(standing), "last_error": self._last_error},
        )
        self._emit(line)
        self._last_error = None
        self._interval = Interval(now)
        if self._keys_missing and standing:
            self._attend(standing[0], self._write_keys)
        tidy()
