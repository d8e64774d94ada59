"""An eviction cycle."""

from __future__ import annotations

import time

from lab.blind import evidence as shown
from lab.blind.cause import NOW_AND_THEN, Cause
from lab.blind.inbox import Inbox, Order
from lab.blind.prices import CHUNK, PRICES, VALUE, entry
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import HEADROOM_MB, SECOND, Measured, Orders
from loadtest.resp import Server, ask, command, connect

BYTES_PER_ENTRY = 330


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow and at least a hundred entries a second are evicted, with memory at its limit."""
    return Finding(
        shown.evictions(of),
        f"{of.evicted_per_s:,.0f} entries evicted a second; memory came to {of.memory:.0%} of its limit; "
        f"{of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Order bursts of clients that read much at once; between the bursts the server is filled up to its limit."""
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
    """Over and over, fill the server to its limit, then let many clients ask for something large at once."""
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


CAUSE = Cause(
    id="eviction-cycle",
    title="An eviction cycle",
    line="memory is at its limit, and bursts of clients force evictions in bursts",
    mechanism="At maxmemory the server frees before it executes. Buffers of clients that ask for much at once count "
    "against the limit, so a burst of answers evicts tens of thousands of entries, up to half a millisecond of "
    "that with each command; the rest of the time memory climbs back.",
    story=NOW_AND_THEN,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"evicted_per_s": 30_000.0, "memory": 1.0},
    alike={
        "giant-index": "INFO stats: evicted_keys climbs in steps, with each stall.",
        "keys-command": "SLOWLOG GET holds no long command that explains the stalls; used_memory is at "
        "maxmemory.",
        "scan-storm": "The stalls come in bursts seconds apart, with calm in between.",
        "noisy-neighbour": "used_memory against maxmemory, and evicted_keys.",
    },
    cures={
        "stop program-2": "No burst of large answers claims memory any more, so nothing has to be freed for it.",
    },
    tempting={
        "server maxmemory 200%": "The room fills up again within seconds, and the bursts come back with it.",
    },
    hints=(
        "It is not slow all the time. How far apart are the bad moments, and what is different in between?",
        "Compare two readings of INFO stats and INFO memory, a second apart, several times in a row. What "
        "falls when it gets slow?",
        "used_memory reaches maxmemory, evicted_keys jumps by tens of thousands in the bad moments: eviction.",
    ),
    words=("eviction-cycle", "eviction cycle", "evictioncycle", "eviction storm"),
)
