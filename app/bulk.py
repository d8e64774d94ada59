"""Bulk writing: prebuilt protocol bytes for whole users, several times faster than packing each command.

A user's transaction is the same bytes for every user except the user id, whose number of digits decides the
length fields. So the bytes are built once per number of digits, and filling a user in is one
``bytes.replace``. Replies are not awaited one by one: up to `_WINDOW` chunks of transactions are in flight.
Server work: per user MULTI, one SET per fragment, SADD, PEXPIREAT, EXEC, the same commands as a single put,
so the index is complete at every moment.
"""

import socket
from collections.abc import Iterable, Mapping, Sequence

import hiredis

from app.fragments import Keyspace, render, written

CHUNK_BYTES = 256 * 1024
_WINDOW = 2


class BulkError(Exception):
    """The server refused a write; the message is its error reply."""


def encode(*words: str | int) -> bytes:
    """Return a command in RESP."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class UserTemplate:
    """The bytes that put all of a user's fragments; valid for one moment (``now``, unix seconds)."""

    def __init__(self, keyspace: Keyspace, names: Sequence[str], value_bytes: int, now: float) -> None:
        self._keyspace, self._names, self._size, self._now = keyspace, names, value_bytes, now
        self._by_digits: dict[int, bytes] = {}
        self.replies = len(self._framed(self._commands("0")))
        """Number of replies per user: one for each command, MULTI and EXEC included."""

    def _framed(self, commands: list[bytes]) -> list[bytes]:
        """The commands as one transaction: all are carried out or none."""
        return [encode("MULTI"), *commands, encode("EXEC")]

    def _entries(self, hole: str) -> list[bytes]:
        keyspace, expires = self._keyspace, self._keyspace.entry_expires_ms(self._now)
        return [
            encode("SET", keyspace.entry(hole, name), render(hole, name, self._size), "PXAT", expires)
            for name in self._names
        ]

    def _commands(self, hole: str) -> list[bytes]:
        """The commands for one user; `hole` stands in for the user id."""
        keyspace = self._keyspace
        bucket = keyspace.bucket(self._now)
        index = keyspace.index(hole, bucket)
        return [
            *self._entries(hole),
            encode("SADD", index, *map(keyspace.member, self._names)),
            encode("PEXPIREAT", index, keyspace.index_expires_ms(bucket)),
        ]

    def _build(self, digits: int) -> bytes:
        return b"".join(self._framed(self._commands("\0" * digits)))

    def user(self, user: int) -> bytes:
        """The bytes that put one user's fragments."""
        digits = b"%d" % user
        width = len(digits)
        template = self._by_digits.get(width)
        if template is None:
            template = self._by_digits[width] = self._build(width)
        return template.replace(b"\0" * width, digits)


class HashTemplate(UserTemplate):
    """The template of the layout `hash`: MULTI, one HSET of all fragments, PEXPIREAT, EXEC."""

    def _commands(self, hole: str) -> list[bytes]:
        keyspace, expires = self._keyspace, self._keyspace.entry_expires_ms(self._now)
        fields: list[str] = []
        for name in self._names:
            fields += [keyspace.member(name), f"{expires:013d}{render(hole, name, self._size)}"]
        key = keyspace.user_hash(hole)
        return [encode("HSET", key, *fields), encode("PEXPIREAT", key, expires)]


class PlainTemplate(UserTemplate):
    """The template of the layout `plain`: one SET per fragment. No transaction: no index must match the entries."""

    def _framed(self, commands: list[bytes]) -> list[bytes]:
        return commands

    def _commands(self, hole: str) -> list[bytes]:
        return self._entries(hole)


class GenerationTemplate(UserTemplate):
    """The template of the layout `generation`. `generations` has the number of each user; it is filled in like the id.

    Server work per user: MULTI, one SET per fragment, PEXPIREAT of the number, EXEC.
    """

    def __init__(
        self,
        keyspace: Keyspace,
        names: Sequence[str],
        value_bytes: int,
        now: float,
        generations: Mapping[int, int],
    ) -> None:
        self._generations, self._by_widths = generations, dict[tuple[int, int], bytes]()
        self._hole = "\1"
        super().__init__(keyspace, names, value_bytes, now)

    def _commands(self, hole: str) -> list[bytes]:
        keyspace, expires = self._keyspace, self._keyspace.entry_expires_ms(self._now)
        keys = [keyspace.entry_in(hole, self._hole, name) for name in self._names]
        values = [render(hole, name, self._size) for name in self._names]
        return [
            *(encode("SET", key, value, "PXAT", expires) for key, value in zip(keys, values, strict=True)),
            encode("PEXPIREAT", keyspace.generation(hole), expires),
        ]

    def user(self, user: int) -> bytes:
        """The bytes that put one user's fragments in the user's generation."""
        digits, number = b"%d" % user, written(self._generations[user]).encode()
        widths = len(digits), len(number)
        template = self._by_widths.get(widths)
        if template is None:
            self._hole = "\1" * widths[1]
            template = self._by_widths[widths] = self._build(widths[0])
        return template.replace(b"\0" * widths[0], digits).replace(b"\1" * widths[1], number)


def write_users(sock: socket.socket, template: UserTemplate, users: Iterable[int]) -> int:
    """Send the transactions of ``users`` and wait for all replies; returns the number of users written.

    Raises `BulkError` if the server refuses a command, OSError (a timeout included) if the connection fails.
    After either the connection has unread replies and must be closed.
    """
    reader = hiredis.Reader()
    outstanding: list[int] = []
    chunk: list[bytes] = []
    size = users_done = 0
    for user in users:
        data = template.user(user)
        chunk.append(data)
        size += len(data)
        if size >= CHUNK_BYTES:
            sock.sendall(b"".join(chunk))
            outstanding.append(len(chunk))
            chunk, size = [], 0
            if len(outstanding) >= _WINDOW:
                users_done += _await_replies(sock, reader, outstanding.pop(0), template.replies)
    if chunk:
        sock.sendall(b"".join(chunk))
        outstanding.append(len(chunk))
    for count in outstanding:
        users_done += _await_replies(sock, reader, count, template.replies)
    return users_done


def _await_replies(sock: socket.socket, reader: hiredis.Reader, users: int, replies_each: int) -> int:
    left = users * replies_each
    next_reply = reader.gets
    while left:
        reply = next_reply()
        if reply is False:
            data = sock.recv(262_144)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(data)
            continue
        left -= 1
        # A refused command makes EXEC fail as a whole, or puts the error into EXEC's array.
        if isinstance(reply, hiredis.HiredisError):
            raise BulkError(str(reply))
        if isinstance(reply, list):
            for item in reply:
                if isinstance(item, hiredis.HiredisError):
                    raise BulkError(str(item))
    return users
