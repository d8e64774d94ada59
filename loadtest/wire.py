"""One non-blocking connection to a Redis-compatible server, with its requests in flight."""

from __future__ import annotations

import errno
import socket
from collections import deque
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import hiredis


class ConnectionLost(Exception):
    """The server closed the connection, refused it, or spoke something that is not RESP."""


@dataclass(frozen=True)
class Server:
    """Where the server is and how to sign in."""

    host: str
    port: int
    database: int = 0
    username: str = ""
    password: str = ""

    @classmethod
    def from_url(cls, url: str) -> Server:
        """Read `redis://[[user]:password@]host[:port][/database]`.

        Raises:
            ValueError: with a sentence for the user.
        """
        parts = urlsplit(url)
        if parts.scheme != "redis" or not parts.hostname:
            raise ValueError(f"not a redis://host:port address: {url}")
        database = parts.path.strip("/") or "0"
        if not database.isascii() or not database.isdigit():
            raise ValueError(f"the database must be a number: {url}")
        try:
            port = 6379 if parts.port is None else parts.port
        except ValueError:
            raise ValueError(f"the port must be a number from 1 to 65535: {url}") from None
        return cls(
            parts.hostname, port, int(database), unquote(parts.username or ""), unquote(parts.password or "")
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request in flight: when it was due and when it was handed to the connection (ns, monotonic)."""

    due: int
    at: int


class Connection:
    """A TCP connection whose every call returns at once. Replies come back in the order of the requests.

    Requests without a `Sent` (sign-in, keys being written) are matched with their replies but not measured.
    """

    __slots__ = ("_outgoing", "_reader", "_socket", "fd", "opened_at", "ready", "waiting")

    def __init__(self, family: int, address: tuple[str | int, ...], now: int) -> None:
        """Begin to connect. `ready` turns true in `finish_connecting()`.

        Raises:
            ConnectionLost: refused at once, or no file descriptor left.
        """
        self._reader = hiredis.Reader()
        self._outgoing = bytearray()
        self.waiting: deque[Sent | None] = deque()
        self.opened_at = now
        self.ready = False
        try:
            self._socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        self.fd = self._socket.fileno()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._socket.close()
            raise ConnectionLost(f"cannot connect: {errno.errorcode.get(code, code)}")

    def finish_connecting(self) -> None:
        """Call when the socket became writable: the connection stands, or this raises `ConnectionLost`."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise ConnectionLost(f"cannot connect: {errno.errorcode.get(code, code)}")
        self.ready = True

    @property
    def has_outgoing(self) -> bool:
        """Whether bytes wait for room in the socket's send buffer."""
        return bool(self._outgoing)

    def send(self, request: bytes, sent: Sent | None) -> None:
        """Send one request; what the socket does not take now, `flush()` sends later.

        Raises:
            ConnectionLost: the request is then not in `waiting`.
        """
        if self._outgoing:
            self._outgoing += request
        else:
            try:
                taken = self._socket.send(request)
            except (BlockingIOError, InterruptedError):
                taken = 0
            except OSError as error:
                raise ConnectionLost(str(error)) from None
            if taken < len(request):
                self._outgoing += request[taken:]
        self.waiting.append(sent)

    def flush(self) -> None:
        """Send what is left over from earlier calls."""
        try:
            taken = self._socket.send(self._outgoing)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        del self._outgoing[:taken]

    def receive(self) -> list[tuple[Sent | None, object]]:
        """The replies that have come, each with its request; error replies are `hiredis.ReplyError` values.

        Raises:
            ConnectionLost: end of stream, reset, or bytes that are not RESP.
        """
        try:
            data = self._socket.recv(65536)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ConnectionLost(str(error)) from None
        if not data:
            raise ConnectionLost("closed by the server")
        answers: list[tuple[Sent | None, object]] = []
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                if not self.waiting:
                    raise ConnectionLost("a reply that nobody asked for")
                answers.append((self.waiting.popleft(), reply))
        except hiredis.ProtocolError as error:
            raise ConnectionLost(f"not a Redis-compatible server: {error}") from None
        return answers

    def close(self) -> None:
        """Close the socket; what was in flight stays in `waiting` for the caller to count."""
        self._socket.close()


def resolve(server: Server) -> tuple[int, tuple[str | int, ...]]:
    """Socket family and address of the server; may block on DNS.

    Raises:
        ConnectionLost: the name does not resolve.
    """
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConnectionLost(f"cannot resolve {server.host}: {error}") from None
    family, _, _, _, address = found[0]
    return family, address  # type: ignore[return-value] # typeshed adds the Bluetooth address family


def command(*words: str | bytes | int) -> bytes:
    """One command in RESP, ready to send."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # its stub says exactly one word
    return packed
