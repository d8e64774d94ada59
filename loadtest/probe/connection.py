"""A non-blocking connection of the probe, which matches its requests in flight with their replies."""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass

from loadtest.resp import ConnectionLost, Stream, open_socket, refused


@dataclass(frozen=True, slots=True)
class Sent:
    """A request in flight: when it was due and when it was handed to the connection (ns, monotonic)."""

    due: int
    at: int


class Connection(Stream):
    """Requests without a `Sent` (sign-in, keys being written) are matched with their replies but not measured."""

    __slots__ = ("opened_at", "ready", "waiting")

    def __init__(self, family: int, address: tuple[str | int, ...], now: int) -> None:
        """Begin to connect. `ready` turns true in `finish_connecting()`.

        Raises:
            ConnectionLost: refused at once, or no file descriptor left.
        """
        super().__init__(open_socket(family, address))
        self.waiting: deque[Sent | None] = deque()
        self.opened_at = now
        self.ready = False

    def finish_connecting(self) -> None:
        """Call when the socket became writable. The connection is then open, or this raises `ConnectionLost`."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise refused(code)
        self.ready = True

    def ask(self, request: bytes, sent: Sent | None) -> None:
        """Send one request; what the socket does not take now, `flush()` sends later.

        Raises:
            ConnectionLost: the request is then not in `waiting`.
        """
        self.send(request)
        self.waiting.append(sent)

    def answers(self) -> list[tuple[Sent | None, object]]:
        """The replies that have come, each with its request. Raises `ConnectionLost`, as `receive()` does."""
        replies = self.receive()
        if len(replies) > len(self.waiting):
            raise ConnectionLost("the server sent a reply without a request")
        return [(self.waiting.popleft(), reply) for reply in replies]
