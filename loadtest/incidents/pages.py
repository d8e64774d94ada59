"""Pages of small cache entries: the requests that write a page or read some, and filling a server with pages.

An entry is a string under a long key with an expiry, as fragment caches have them; a page is the entries that one view
needs, written in one pipeline and read by one MGET. Building the bytes of every such request would cost a
client more than sending it, so they are built once with a hole for the page's number, and filling that in is one
`bytes.replace`.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

from loadtest.info import ServerInfo, ask_info
from loadtest.process import Stop
from loadtest.resp import ask, command

DIGITS = 8
MOST_PAGES = 10**DIGITS
FILL_AT_ONCE = 8
AGES = 32


def _hole(number: int) -> str:
    return chr(number) * DIGITS


@dataclass(frozen=True)
class Layout:
    """Sizes: entries of a page, pages that one request reads, bytes of a key and of a value."""

    prefix: str
    entries: int
    pages_read: int
    key_bytes: int
    value_bytes: int

    def key(self, page: str, entry: int) -> str:
        """The key of one entry, padded to `key_bytes`."""
        name = f"{self.prefix}:{page}:{entry:03d}:"
        return name + "k" * (self.key_bytes - len(name))


class Pages:
    """Gives the requests for pages by number. `ttl_s`: time to live of the entries written."""

    def __init__(self, layout: Layout, ttl_s: float) -> None:
        self.layout = layout
        self._holes = [_hole(i).encode() for i in range(layout.pages_read)]
        self._read = command(
            "MGET",
            *(layout.key(_hole(i), j) for i in range(layout.pages_read) for j in range(layout.entries)),
        )
        self._by_age = [self._writing(ttl_s * (1 - i / AGES)) for i in range(AGES)]

    def _writing(self, ttl_s: float) -> bytes:
        value, ttl_ms = "v" * self.layout.value_bytes, max(1, round(ttl_s * 1000))
        keys = (self.layout.key(_hole(0), j) for j in range(self.layout.entries))
        return b"".join(command("SET", key, value, "PX", ttl_ms) for key in keys)

    def write(self, page: int, age: float = 0.0) -> bytes:
        """A pipeline of SETs, one reply each. `age`: share of the entries' time to live that has gone by, below 1."""
        return self._by_age[int(age * AGES)].replace(self._holes[0], b"%08d" % page)

    def read(self, pages: list[int]) -> bytes:
        """Return an MGET of all entries of some pages (as many as the layout says)."""
        request = self._read
        for hole, page in zip(self._holes, pages, strict=True):
            request = request.replace(hole, b"%08d" % page)
        return request


def fill(
    line: socket.socket, pages: Pages, first: int, share: float, spread: bool, stop: Stop
) -> tuple[int, ServerInfo]:
    """Write pages from `first` on until that share of the server's memory limit is used.

    `spread`: give entries all ages, as in a cache that was written evenly; otherwise all are fresh. Returns the number
    of the next page and a sample of the server. Raises `LoadFailed` for a refusal, `ConnectionLost`.
    """
    draw = random.Random(first)
    while True:
        now = ask_info(line)
        if now.used >= share * now.limit or stop.requested:
            return first, now
        for _ in range(4):  # a sample costs as much as a few entries
            requests = [pages.write(first + i, draw.random() if spread else 0.0) for i in range(FILL_AT_ONCE)]
            ask(line, *requests, each=pages.layout.entries)
            first += FILL_AT_ONCE
