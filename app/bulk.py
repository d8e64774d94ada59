"""Bulk writing: prebuilt protocol bytes for whole users, several times faster than packing each command.

A user's transaction is the same bytes for every user except the user id, whose number of digits decides the
length fields. So the bytes are built once per number of digits, and filling a user in is one
``bytes.replace``. Round trips: none are waited for one by one; a window of transactions is always on its way.
Server work: per user MULTI, one SET per fragment, SADD, PEXPIREAT, EXEC, the same commands as a single put,
so the index stays true at every moment.
"""

import socket
from collections.abc import Iterable, Sequence

import hiredis

from app.fragments import Keyspace, render

CHUNK_BYTES = 256 * 1024
_WINDOW = 2


class BulkError(Exception):
    """The store refused a write; the message is its error reply."""


def encode(*words: str | int) -> bytes:
    """One command in RESP."""
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
        self.replies = len(names) + 4
        """How many replies one user's transaction brings."""

    def _build(self, digits: int) -> bytes:
        keyspace, hole = self._keyspace, "\0" * digits
        expires = keyspace.entry_expires_ms(self._now)
        bucket = keyspace.bucket(self._now)
        commands = [encode("MULTI")]
        for name in self._names:
            value = render(hole, name, self._size)
            commands.append(encode("SET", keyspace.entry(hole, name), value, "PXAT", expires))
        commands.append(encode("SADD", keyspace.index(hole, bucket), *map(keyspace.member, self._names)))
        commands.append(encode("PEXPIREAT", keyspace.index(hole, bucket), keyspace.index_expires_ms(bucket)))
        commands.append(encode("EXEC"))
        return b"".join(commands)

    def user(self, user: int) -> bytes:
        """The transaction for one user."""
        digits = b"%d" % user
        width = len(digits)
        template = self._by_digits.get(width)
        if template is None:
            template = self._by_digits[width] = self._build(width)
        return template.replace(b"\0" * width, digits)


def write_users(sock: socket.socket, template: UserTemplate, users: Iterable[int]) -> int:
    """Send the transactions of ``users`` and wait for all replies; returns the number of users written.

    Raises `BulkError` if the store refuses a command, OSError (a timeout included) if the connection fails.
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
                raise ConnectionResetError("the store closed the connection")
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
