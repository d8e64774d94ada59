"""Many iterations over a keyspace at once, each on a connection of its own and in a closed loop, in one thread."""

from __future__ import annotations

import contextlib
import select
from socket import socket

import hiredis

from lab.blind.inbox import Inbox
from loadtest.running import connect
from loadtest.wire import ConnectionLost, Server, command

LOOK_S = 0.25


class Iteration:
    """One iteration over the keyspace, on a connection of its own."""

    def __init__(self, line: socket, pattern: str, count: int) -> None:
        self.line = line
        self._pattern, self._count = pattern, count
        self._reader = hiredis.Reader()

    def ask(self, cursor: str | bytes) -> None:
        """Send the next call."""
        self.line.sendall(command("SCAN", cursor, "MATCH", self._pattern, "COUNT", self._count))

    def answer(self) -> None:
        """Read what has come, and go on when the reply is whole. Raises `ConnectionLost`."""
        data = self.line.recv(65536)
        if not data:
            raise ConnectionLost("closed by the server")
        self._reader.feed(data)
        reply = self._reader.gets()
        if isinstance(reply, list):
            self.ask(reply[0])
        elif reply is not False:
            raise ConnectionLost("refused")


def walk(store: Server, pattern: str, count: int, connections: int, inbox: Inbox) -> None:
    """Iterate until an order comes. Raises `ConnectionLost`, `LoadFailed` or `OSError`."""
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        under_way: dict[int, Iteration] = {}
        for _ in range(connections):
            line = stack.enter_context(connect(store))
            under_way[line.fileno()] = Iteration(line, pattern, count)
            poll.register(line.fileno(), select.POLLIN)
        for iteration in under_way.values():
            iteration.ask("0")
        while not inbox.news:
            for descriptor, _ in poll.poll(LOOK_S * 1000):
                under_way[descriptor].answer()
