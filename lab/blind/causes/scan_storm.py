"""A storm of SCANs."""

from __future__ import annotations

import math
import select
from contextlib import ExitStack, closing

from lab.blind import evidence as shown
from lab.blind.cause import OLD_PRICES, Cause
from lab.blind.evidence import Spent
from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import PATTERN, SECOND, Measured, Orders
from loadtest.resp import ConnectionLost, Server, Stream, command, connect

WAIT_MS = 60.0
"""How long a bystander should wait for one round of all searches."""
POLL_MS = 250


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow and SCAN takes much of the main thread's time, in many calls.

    A call gets into the slow log only if the server is taken off its core meanwhile.
    """
    scan = of.spent("SCAN")
    logged = of.slow.get("SCAN", (0, 0.0))[0]
    return Finding(
        shown.scan_storm(of),
        f"SCAN took {scan.share:.0%} of the time in {scan.per_s:,.0f} calls a second of {scan.mean_us:,.0f} µs each, "
        f"of which the slow log got {logged}; the main thread was busy {of.busy:.0%}; {of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Order searches with calls below the slow log's threshold, on enough connections to make a bystander wait."""
    call_ms = min(1.5, 0.3 * of.slow_us / 1000)
    count = min(20_000, max(500, round(1000 * call_ms / of.key_us)))
    lines = min(400, math.ceil(strength * WAIT_MS / (count * of.key_us / 1000)))
    return {SECOND: {"kind": "scan-storm", "pattern": PATTERN, "count": count, "connections": lines}}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Search the keyspace on many connections at once, on each of them over and over."""

    def scan(cursor: bytes) -> bytes:
        return command("SCAN", cursor, "MATCH", order["pattern"], "COUNT", order["count"])

    with ExitStack() as stack:
        poll, streams = select.poll(), dict[int, Stream]()
        for _ in range(order["connections"]):
            stream = stack.enter_context(closing(Stream(connect(server))))
            streams[stream.fd] = stream
            poll.register(stream.fd, select.POLLIN)
        for stream in streams.values():
            stream.send(scan(b"0"))
        while not inbox.news:
            for fd, _ in poll.poll(POLL_MS):
                for reply in streams[fd].receive():
                    if not isinstance(reply, list):
                        raise ConnectionLost("refused")
                    streams[fd].send(scan(reply[0]))


CAUSE = Cause(
    id="scan-storm",
    title="A storm of SCANs",
    line="somebody searches the whole keyspace with SCAN, on many connections at once",
    mechanism="Each SCAN call is short, so the slow log stays empty; but there are as many waiting as there are "
    "searches, and every other command waits for a whole round of them. MATCH filters after a key was visited: "
    "a search that finds nothing costs as much as one that finds everything.",
    story=OLD_PRICES,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"busy": 0.95, "commands": {"SCAN": Spent(900, 0.9, 1000)}},
    alike={
        "keys-command": "SLOWLOG GET: KEYS is long and stands there, SCAN is short and does not.",
        "giant-index": "INFO commandstats: one command holds the main thread all the time; a giant set "
        "holds it for a moment at each change.",
        "noisy-neighbour": "CPU of the server's own thread: it works all the time. Beside a noisy neighbour it "
        "works little, and waits for a core.",
        "exhausted-pool": "A GET past the storefront is as slow as one through it.",
    },
    cures={
        "stop program-2": "Nobody searches the keyspace any more.",
    },
    tempting={
        "kill program-2": "The program connects again within a second and goes on.",
    },
    hints=(
        "Ask the server past the storefront. Is it slow for everybody, or only for the storefront?",
        "Its slow log may well hold nothing of what fills its time. Compare how often each command is called "
        "with how long all its calls take together.",
        "One command takes nearly all of the server's time in calls of about a millisecond each: SCAN. "
        "Find out from CLIENT LIST how many connections send it.",
    ),
    words=("scan-storm", "scan storm", "scanstorm", "storm"),
)
