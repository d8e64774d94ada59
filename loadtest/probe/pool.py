"""The probe's connections: they take turns, reconnect after an outage, and are replaced by fresh ones without losing a
reply.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from time import perf_counter_ns as clock
from typing import Protocol

from loadtest.probe.connection import Connection, Sent
from loadtest.resp import ConnectionLost, Server, resolve

SECOND = 1_000_000_000
NEVER = 2**63
CONNECT_TIMEOUT = SECOND
FIRST_BACKOFF, LONGEST_BACKOFF = SECOND // 100, SECOND // 4
LONGEST_SLEEP = SECOND // 10  # so that a signal is noticed soon, however low the rate


class Owner(Protocol):
    """The receiver of the connections' events."""

    def reply_came(self, sent: Sent | None, reply: object, now: int) -> None:
        """`reply` (an exception object for an error) answers `sent`, None for a request not measured."""

    def requests_lost(self, lost: Sequence[Sent], reason: str) -> None:
        """A connection ended, or could not be opened; these measured requests were waiting on it."""

    def server_is_back(self, connection: Connection) -> None:
        """The first connection is open, after the start or after an outage; the server may be empty."""

    def complain(self, text: str) -> None:
        """A sentence for people: the server went away or came back."""


class Slot:
    """A place for one connection: the current one, perhaps its successor, and when to open the next."""

    def __init__(self) -> None:
        self.current: Connection | None = None
        self.successor: Connection | None = None
        self.opens_at = 0
        self.backoff = FIRST_BACKOFF


class Pool:
    """A fixed number of connections to one server, driven by `look_after()`, `send()` and `wait()`."""

    def __init__(
        self,
        server: Server,
        size: int,
        reconnect_seconds: float | None,
        greeting: Sequence[bytes],
        owner: Owner,
    ) -> None:
        """`greeting` goes first on each new connection; with `reconnect_seconds` each is replaced after that time."""
        self._server = server
        self._period = None if reconnect_seconds is None else int(reconnect_seconds * SECOND)
        self._greeting = greeting
        self._owner = owner
        self._address: tuple[int, tuple[str | int, ...]] | None = None
        self._down = False
        self._turn = 0
        self._slots = [Slot() for _ in range(size)]
        self._draining: list[Connection] = []
        self._by_fd: dict[int, Connection] = {}
        self._read_fds: list[int] = []

    @property
    def standing(self) -> list[Connection]:
        """The connections that take requests now."""
        return [slot.current for slot in self._slots if slot.current]

    @property
    def waiting(self) -> list[Sent]:
        """Every measured request whose reply has not come."""
        return [sent for connection in self._by_fd.values() for sent in connection.waiting if sent]

    @property
    def idle(self) -> bool:
        """True if no reply is awaited on any connection."""
        return not any(connection.waiting for connection in self._by_fd.values())

    @property
    def complete(self) -> bool:
        """True if every slot has its connection."""
        return all(slot.current for slot in self._slots)

    def send(self, request: bytes, sent: Sent | None) -> bool:
        """Send on the next open connection in turn; returns False if there is none."""
        for _ in self._slots:
            connection = self._slots[self._turn].current
            self._turn = (self._turn + 1) % len(self._slots)
            if connection is None:
                continue
            try:
                connection.ask(request, sent)
                return True
            except ConnectionLost as lost:
                self._lose(connection, lost)
        return False

    def look_after(self, now: int) -> None:
        """Open what is missing, replace what is due for replacement, give up on connects that hang."""
        for slot in self._slots:
            opening = slot.successor
            if opening is None:
                if now >= slot.opens_at:
                    self._open(slot, now)
            elif not opening.ready and now - opening.opened_at > CONNECT_TIMEOUT:
                self._lose(opening, ConnectionLost("cannot connect: no answer"))

    def wait(self, patience: int) -> None:
        """Wait up to `patience` ns, at most 0.1 s, for replies or room to send; handle what came.

        select(2), because its timeout has microseconds; epoll and poll round to milliseconds.
        """
        timeout = min(max(patience, 0), LONGEST_SLEEP) / SECOND
        write_fds = [c.fd for c in self._by_fd.values() if c.has_outgoing or not c.ready]
        readable, writable, _ = select.select(self._read_fds, write_fds, (), timeout)
        for fd in writable:
            self._attend(fd, self._write)
        for fd in readable:
            self._attend(fd, self._read)

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._by_fd.values()):
            self._forget(connection)

    def _attend(self, fd: int, work: Callable[[Connection], None]) -> None:
        connection = self._by_fd.get(fd)
        if connection is None:  # lost a moment ago, in the same round
            return
        try:
            work(connection)
        except ConnectionLost as lost:
            self._lose(connection, lost)

    def _write(self, connection: Connection) -> None:
        if not connection.ready:
            connection.finish_connecting()
            self._greet(connection)
        if connection.has_outgoing:
            connection.flush()

    def _read(self, connection: Connection) -> None:
        answers = connection.answers()
        now = clock()
        for sent, reply in answers:
            self._owner.reply_came(sent, reply, now)
        if not connection.waiting and any(slot.successor is connection for slot in self._slots):
            self._put_to_use(connection)
        if not connection.waiting and connection in self._draining:
            self._forget(connection)

    def _open(self, slot: Slot, now: int) -> None:
        try:
            if self._address is None:
                self._address = resolve(self._server)
            slot.successor = Connection(*self._address, now)
        except ConnectionLost as lost:
            self._retry_later(slot, lost)
            return
        self._by_fd[slot.successor.fd] = slot.successor

    def _greet(self, connection: Connection) -> None:
        """Greet on a new connection. It takes over an empty slot at once, an occupied one after the greeting's replies.

        An open connection is not yet served: the kernel completes it before a busy server accepts it, a turn of the
        server's loop later, and a request sent at once would pay for that turn.
        """
        self._read_fds.append(connection.fd)
        for request in self._greeting:
            connection.ask(request, None)
        slot = next(slot for slot in self._slots if slot.successor is connection)
        if slot.current is None or not connection.waiting:
            self._put_to_use(connection)

    def _put_to_use(self, connection: Connection) -> None:
        """A new connection takes over its slot; the former one stays until its last reply."""
        slot = next(slot for slot in self._slots if slot.successor is connection)
        is_first = not self.standing
        former, slot.current, slot.successor = slot.current, connection, None
        slot.backoff = FIRST_BACKOFF
        slot.opens_at = self._next_replacement(slot)
        if is_first:
            self._owner.server_is_back(connection)
        if self._down:
            self._down = False
            self._owner.complain(f"connected to {self._server}")
        if former and former.waiting:
            self._draining.append(former)
        elif former:
            self._forget(former)

    def _next_replacement(self, slot: Slot) -> int:
        """Return when the slot's connection is to be replaced: the slots take turns, evenly spaced over the period."""
        if self._period is None:
            return NEVER
        now = clock()
        phase = self._period * self._slots.index(slot) // len(self._slots)
        return now + self._period - (now - phase) % self._period

    def _lose(self, connection: Connection, lost: ConnectionLost) -> None:
        """Report what was in flight as lost, and try again soon."""
        self._forget(connection)
        self._owner.requests_lost([sent for sent in connection.waiting if sent], str(lost))
        for slot in self._slots:
            if slot.current is connection:
                slot.current = None
                slot.opens_at = 0
                self._note_if_down(lost)
            elif slot.successor is connection:
                slot.successor = None
                self._retry_later(slot, lost)

    def _retry_later(self, slot: Slot, lost: ConnectionLost) -> None:
        self._owner.requests_lost((), str(lost))
        slot.opens_at = clock() + slot.backoff
        slot.backoff = min(slot.backoff * 2, LONGEST_BACKOFF)
        self._note_if_down(lost)

    def _note_if_down(self, lost: ConnectionLost) -> None:
        if not self._down and not self.standing:
            self._down = True
            self._address = None  # a restarted container may come back under another address
            self._owner.complain(f"{self._server}: {lost}; trying again until it is there")

    def _forget(self, connection: Connection) -> None:
        del self._by_fd[connection.fd]
        self._read_fds = [c.fd for c in self._by_fd.values() if c.ready]
        if connection in self._draining:
            self._draining.remove(connection)
        connection.close()
