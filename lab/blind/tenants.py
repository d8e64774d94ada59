"""What programs of other teams do with the shared store; which, and how much, they are told on stdin.

Every such program is this module, and idles until an order comes. An order names a `kind` (a function below) and its
figures; a newer order ends the older one. PROBE_URL says where the store is. The end of stdin ends the program.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from socket import socket
from typing import Any

from lab.blind.inbox import Inbox, Order
from lab.blind.scan_loop import walk
from loadtest.arguments import server
from loadtest.running import LoadFailed, ask, connect
from loadtest.wire import ConnectionLost, Server, command

CHANGES = "latency-lab-changes"
"""A list: the time of each change of prices that is to be carried out, oldest first."""
PRICES = "latency-lab-prices"
INDEX = f"{PRICES}-index"
VALUE = b"p" * 48
CHUNK = 250
POLL_S = 0.005
BLOCK = b"." * 65_536
"""Hashing so much at once lets go of the interpreter's lock."""


def entry(number: int) -> str:
    """Key of one price."""
    return f"{PRICES}:{number}"


def put_prices(line: socket, members: int, begin: int = 0) -> None:
    """Cache and index all prices, in chunks that stall nobody."""
    for start in range(begin, members, CHUNK):
        keys = [entry(number) for number in range(start, min(members, start + CHUNK))]
        pairs = [word for key in keys for word in (key, VALUE)]
        ask(line, command("MSET", *pairs), command("SADD", INDEX, *keys), each=1)


def _many(reply: object) -> list[Any]:
    """A reply that is a list by the protocol."""
    assert isinstance(reply, list)
    return reply


def _remove_in_parts(line: socket, size: int) -> None:
    """Page by page, with that number of keys in each command."""
    cursor: Any = b"0"
    while True:
        [reply] = ask(line, command("SSCAN", INDEX, cursor, "COUNT", CHUNK))
        cursor, page = _many(reply)
        found = _many(page)
        for start in range(0, len(found), size):
            ask(line, command("UNLINK", *found[start : start + size]))
        if cursor == b"0":
            return


def _remove_whole(line: socket) -> None:
    [found] = ask(line, command("SMEMBERS", INDEX))
    if found:
        ask(line, command("UNLINK", *_many(found)))


REMOVE: dict[str, Callable[[socket], None]] = {
    "chunks": partial(_remove_in_parts, size=CHUNK),
    "each": partial(_remove_in_parts, size=1),
    "whole": _remove_whole,
}


def changes(order: Order, inbox: Inbox, store: Server) -> None:
    """Carry out changes of prices, one after the other: remove what is cached of them, and cache it anew.

    A change stays at the head of the list until it is done.
    """
    with connect(store) as line:
        put_prices(line, order["members"])
        while not inbox.news:
            [oldest] = ask(line, command("LINDEX", CHANGES, 0))
            if oldest is None:
                inbox.wait(POLL_S)
                continue
            REMOVE[order["way"]](line)
            put_prices(line, order["members"])
            ask(line, command("LPOP", CHANGES))


def listing(order: Order, inbox: Inbox, store: Server) -> None:
    """Ask for all keys of a pattern every `every_s` seconds."""
    with connect(store) as line:
        due = time.monotonic()
        while not inbox.wait(due - time.monotonic()):
            ask(line, command("KEYS", order["pattern"]))
            due = max(due + order["every_s"], time.monotonic() + 0.1 * order["every_s"])


def walking(order: Order, inbox: Inbox, store: Server) -> None:
    """Iterate over the keyspace on many connections at once."""
    walk(store, order["pattern"], order["count"], order["connections"], inbox)


def crowding(order: Order, inbox: Inbox, store: Server) -> None:
    """Fill the store to its limit, then have many clients ask for something large at once; again and again."""
    report = f"{PRICES}-report"
    burst = command("GETRANGE", report, 0, -1) + command("GET", entry(0)) * order["small_reads"]
    lines = [connect(store) for _ in range(order["connections"])]
    written = 0
    try:
        while not inbox.news:
            began = time.monotonic()
            ask(lines[0], command("SET", report, b"r" * order["report_bytes"]))
            for _ in range(order["entries"] // CHUNK):
                words = [
                    word for i in range(CHUNK) for word in (f"{PRICES}:archive:{written + i}", VALUE * 4)
                ]
                ask(lines[0], command("MSET", *words))
                written += CHUNK
                if inbox.wait(order["fill_s"] * CHUNK / order["entries"]):
                    return
            for line in lines:
                line.sendall(burst)
            time.sleep(0.2)
            for line in lines:
                ask(line, b"", each=1 + order["small_reads"])
            inbox.wait(began + order["every_s"] - time.monotonic())
    finally:
        for line in lines:
            line.close()


def computing(order: Order, inbox: Inbox, store: Server) -> None:
    """Compute on some threads, on one core where the system lets it choose."""
    if order["core"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {order["core"]})

    def hash_on() -> None:
        while not inbox.news:
            sha256(BLOCK)

    threads = [threading.Thread(target=hash_on, name="work", daemon=True) for _ in range(order["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def resting(order: Order, inbox: Inbox, store: Server) -> None:
    """Do nothing."""
    inbox.wait()


KINDS: dict[str, Callable[[Order, Inbox, Server], None]] = {
    "rest": resting,
    "changes": changes,
    "list": listing,
    "walk": walking,
    "crowd": crowding,
    "compute": computing,
}


def main() -> int:
    """Do as told until stdin ends; the exit code."""
    store = server(os.environ["PROBE_URL"])
    inbox = Inbox()
    while (order := inbox.take()) is not None:
        while not inbox.news:
            try:
                KINDS[order["kind"]](order, inbox, store)
            except (LoadFailed, ConnectionLost, OSError):
                # The store restarts, is full, or a participant has ended this connection: begin again, silently,
                # for what it says of itself could be read.
                inbox.wait(0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
