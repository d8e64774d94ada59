"""An eviction cycle."""

from __future__ import annotations

import time

from lab.blind.inbox import Inbox, Order
from lab.blind.prices import CHUNK, PRICES, VALUE, entry
from lab.blind.sizing import HEADROOM_MB, SECOND, Measurements, Orders
from lab.server import signs
from loadtest.resp import Server, ask, command, connect

BYTES_PER_ENTRY = 330

evidence = signs.evictions


def orders(measured: Measurements, strength: float) -> Orders:
    """Order bursts of clients that read large values at once; between bursts the server is filled up to its limit."""
    order = {
        "kind": "eviction-cycle",
        "connections": 40,
        "report_bytes": 2**20,
        "small_reads": round(12 * strength),
        "entries": HEADROOM_MB * 1_000_000 // BYTES_PER_ENTRY // 250 * 250,
        "fill_s": 2.0,
        "every_s": 4.0,
    }
    return {SECOND: order}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Repeatedly fill the server to its limit, then let many clients read a large value at once."""
    report = f"{PRICES}-report"
    burst = command("GETRANGE", report, 0, -1) + command("GET", entry(0)) * order["small_reads"]
    lines = [connect(server) for _ in range(order["connections"])]
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
