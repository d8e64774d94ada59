"""Many entries that expire in the same moment."""

from __future__ import annotations

import time
from socket import socket

from lab.blind.inbox import Inbox, Order
from lab.blind.prices import CHUNK, PRICES
from lab.blind.sizing import HEADROOM_MB, SECOND, Measurements, Orders
from lab.server import signs
from loadtest.resp import Server, ask, command, connect

BYTES_PER_ENTRY = 200
"""An entry of this cause, with its time to live, is smaller: it has room until it expires, and nothing is evicted."""
EVERY_S, WRITTEN = 3.0, 0.8
"""Seconds from one moment of expiry to the next, and the part of them in which its entries are written."""

evidence = signs.expiries


def orders(_measured: Measurements, strength: float) -> Orders:
    """Order as many entries as the server has room for, all with the same moment of expiry."""
    entries = HEADROOM_MB * 1_000_000 // BYTES_PER_ENTRY // CHUNK * CHUNK
    return {SECOND: {"kind": "expiry-wave", "entries": entries, "every_s": EVERY_S / strength}}


def write(line: socket, first: int, left_s: float) -> None:
    """Write a chunk of entries, from number `first` on, that expire in `left_s` seconds."""
    left_ms = max(1, round(1000 * left_s))
    entries = (f"{PRICES}:offer:{number}" for number in range(first, first + CHUNK))
    ask(line, b"".join(command("SET", entry, "", "PX", left_ms) for entry in entries), each=CHUNK)


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Repeatedly write entries that all expire in the same moment, and wait for that moment."""
    with connect(server) as line:
        due = time.monotonic()
        while not inbox.wait(due - time.monotonic()):
            began = max(due, time.monotonic())
            due = began + order["every_s"]
            for first in range(0, order["entries"], CHUNK):
                write(line, first, due - time.monotonic())
                next_at = began + WRITTEN * order["every_s"] * first / order["entries"]
                if inbox.wait(next_at - time.monotonic()):
                    return
