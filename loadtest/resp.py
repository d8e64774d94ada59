"""The one client of the Redis protocol (RESP): blocking where a load prepares, non-blocking where it measures."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import hiredis

ANSWER_S = 60.0
"""Timeout for an answer outside of the measurement: loads make servers stall for seconds, which is no failure."""


class ConnectionLost(Exception):
    """The server closed the connection, refused it, or spoke something that is not RESP."""


class LoadFailed(Exception):
    """The server refused a command, or does not answer; one sentence."""


@dataclass(frozen=True)
class Server:
    """The address of a server, and how to sign in. `client_name`: the name of the connections in CLIENT LIST."""

    host: str
    port: int
    database: int = 0
    username: str = ""
    password: str = ""
    client_name: str = ""

    @classmethod
    def from_url(cls, url: str) -> Server:
        """Read `redis://[[user]:password@]host[:port][/database]`.

        Raises:
            ValueError: with a sentence for the user.
        """
        parts = urlsplit(url)
        if parts.fragment or parts.query:
            raise ValueError(
                "the address holds a # or a ?: write %23 and %3F in a password, and a database as /2"
            )
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

    def greeting(self) -> list[bytes]:
        """The commands that sign in, choose the database and name the connection."""
        words: list[bytes] = []
        if self.password:
            words.append(command("AUTH", *((self.username,) if self.username else ()), self.password))
        if self.database:
            words.append(command("SELECT", self.database))
        if self.client_name:
            words.append(command("CLIENT", "SETNAME", self.client_name))
        return words


def command(*words: str | bytes | int) -> bytes:
    """Return a command in RESP, ready to send."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # its stub says exactly one word
    return packed


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


def connect(server: Server) -> socket.socket:
    """A blocking connection that is signed in. Raises `LoadFailed` or `ConnectionLost`."""
    try:
        line = socket.create_connection((server.host, server.port), ANSWER_S)
    except (OSError, UnicodeError) as error:  # a name with an empty part is no text for a resolver
        raise ConnectionLost(f"{server}: {getattr(error, 'strerror', None) or error}") from None
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if words := server.greeting():
            ask(line, *words)
    except BaseException:
        line.close()
        raise
    return line


def ask(line: socket.socket, *requests: bytes, each: int = 1) -> list[object]:
    """Send requests at once; returns their replies, `each` of them to one request.

    (A request may itself be a pipeline of several commands.) Raises `LoadFailed` if the server refuses or does not
    answer, `ConnectionLost` if it is gone.
    """
    reader, wanted = hiredis.Reader(), each * len(requests)
    replies: list[object] = []
    try:
        line.sendall(b"".join(requests))
        while len(replies) < wanted:
            while (reply := reader.gets()) is False:
                data = line.recv(65536)
                if not data:
                    raise ConnectionLost("the server closed the connection")
                reader.feed(data)
            if isinstance(reply, hiredis.ReplyError):
                raise LoadFailed(f"the server refuses: {reply}")
            replies.append(reply)
    except TimeoutError:
        raise LoadFailed("the server does not answer") from None
    except OSError as error:
        raise ConnectionLost(error.strerror or str(error)) from None
    except hiredis.ProtocolError as error:
        raise ConnectionLost(f"not a Redis-compatible server: {error}") from None
    return replies


class Stream:
    """A non-blocking connection: every call returns at once. Replies come back in the order of the requests."""

    __slots__ = ("_outgoing", "_read_bytes", "_reader", "_socket", "fd")

    def __init__(self, line: socket.socket, read_bytes: int = 65536) -> None:
        """Take over a socket. `read_bytes` is the most that one `receive()` takes from it."""
        line.setblocking(False)
        self._socket = line
        self._read_bytes = read_bytes
        self._reader = hiredis.Reader()
        self._outgoing = bytearray()
        self.fd = line.fileno()

    @property
    def has_outgoing(self) -> bool:
        """True while bytes wait for room in the socket's send buffer."""
        return bool(self._outgoing)

    def send(self, request: bytes) -> None:
        """Send; what the socket does not take now, `flush()` or the next call sends later. Raises `ConnectionLost`."""
        if self._outgoing:
            self._outgoing += request
            self.flush()
            return
        taken = self._give(request)
        if taken < len(request):
            self._outgoing += request[taken:]

    def flush(self) -> None:
        """Send what is left over from earlier calls. Raises `ConnectionLost`."""
        del self._outgoing[: self._give(self._outgoing)]

    def _give(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from None

    def receive(self) -> list[object]:
        """The replies that have come whole; error replies are `hiredis.ReplyError` values.

        Raises:
            ConnectionLost: end of stream, reset, or bytes that are not RESP.
        """
        try:
            data = self._socket.recv(self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from None
        if not data:
            raise ConnectionLost("the server closed the connection")
        replies: list[object] = []
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                replies.append(reply)
        except hiredis.ProtocolError as error:
            raise ConnectionLost(f"not a Redis-compatible server: {error}") from None
        return replies

    def close(self) -> None:
        """Close the connection, whatever is still on its way."""
        self._socket.close()


def open_socket(family: int, address: tuple[str | int, ...]) -> socket.socket:
    """A non-blocking socket that has begun to connect. Raises `ConnectionLost` if that is refused at once."""
    try:
        line = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectionLost(str(error)) from None
    line.setblocking(False)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = line.connect_ex(address)
    if code not in (0, errno.EINPROGRESS):
        line.close()
        raise refused(code)
    return line


def refused(code: int) -> ConnectionLost:
    """The error of a connection that could not be made, from the system's error number."""
    return ConnectionLost(f"cannot connect: {errno.errorcode.get(code, code)}")
