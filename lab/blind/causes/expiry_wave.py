"""Many entries that expire in the same moment."""

from __future__ import annotations

import time
from socket import socket

from lab.blind import evidence as shown
from lab.blind.cause import NOW_AND_THEN, Cause
from lab.blind.inbox import Inbox, Order
from lab.blind.prices import CHUNK, PRICES
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import HEADROOM_MB, SECOND, Measured, Orders
from loadtest.resp import Server, ask, command, connect

BYTES_PER_ENTRY = 200
"""An entry of this cause, with its time to live, is smaller: it has room until it expires, and nothing is evicted."""
EVERY_S, WRITTEN = 3.0, 0.8
"""Seconds from one moment of expiry to the next, and the part of them in which its entries are written."""


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow, thousands of entries a second expire, and none are evicted."""
    return Finding(
        shown.expiries(of),
        f"{of.expired_per_s:,.0f} entries expired a second, {of.evicted_per_s:,.0f} were evicted; the main thread was "
        f"busy {of.busy:.0%}; {of.gets_text}.",
    )


def orders(_of: Measured, strength: float) -> Orders:
    """Order as many entries as the server has room for, all with the same moment of expiry."""
    entries = HEADROOM_MB * 1_000_000 // BYTES_PER_ENTRY // CHUNK * CHUNK
    return {SECOND: {"kind": "expiry-wave", "entries": entries, "every_s": EVERY_S / strength}}


def write(line: socket, first: int, left_s: float) -> None:
    """Write a chunk of entries, from number `first` on, that expire in so many seconds."""
    left_ms = max(1, round(1000 * left_s))
    entries = (f"{PRICES}:offer:{number}" for number in range(first, first + CHUNK))
    ask(line, b"".join(command("SET", entry, "", "PX", left_ms) for entry in entries), each=CHUNK)


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Over and over, write entries that all expire in the same moment, and wait for that moment."""
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


CAUSE = Cause(
    id="expiry-wave",
    title="A wave of expiries",
    line="a program gives very many entries the same moment of expiry",
    mechanism="The server removes what has expired by itself, ten times a second, and works on it for up to 25 ms in "
    "one piece as long as much is left. If all entries expire in the same moment, these pieces follow each other until "
    "all are gone. No client asked for that, so neither slow log nor command statistics show it.",
    story=NOW_AND_THEN,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"expired_per_s": 60_000.0},
    alike={
        "eviction-cycle": "INFO stats: expired_keys climbs in steps, evicted_keys stands still.",
        "keys-command": "SLOWLOG GET holds no long command that explains the moments in which GETs wait.",
        "giant-index": "SLOWLOG GET holds no long command; INFO stats: expired_keys climbs in steps.",
        "noisy-neighbour": "The server's first thread hardly waits for a core, and no other program takes one.",
    },
    cures={
        "stop program-2": "Nobody gives thousands of entries the same moment of expiry any more.",
    },
    tempting={
        "server maxmemory 200%": "There was room enough: nothing was evicted, and the entries expire all the same.",
    },
    hints=(
        "It is not slow all the time. How far apart are the bad moments, and what is different right after one?",
        "Neither the slow log nor the commands explain it. So the server does something that no client asked for. "
        "Compare two readings of INFO stats, a second apart, several times in a row.",
        "expired_keys jumps by tens of thousands in the bad moments, and DBSIZE falls: all these keys expire in the "
        "same moment. Their writer should spread their lifetimes.",
    ),
    words=("expiry-wave", "expiry wave", "wave of expir", "mass expir"),
)
