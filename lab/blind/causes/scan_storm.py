"""A storm of SCANs."""

from __future__ import annotations

import math
import select
from contextlib import ExitStack, closing

from lab.blind.cause import held_by_commands
from lab.blind.inbox import Inbox, Order
from lab.blind.sizing import PATTERN, SECOND, Measurements, Orders
from loadtest.resp import ConnectionLost, Server, Stream, command, connect

WAIT_MS = 60.0
"""The wait that one round of all searches should cause for a bystander."""
POLL_MS = 250


evidence = held_by_commands("scan-storm")


def orders(measured: Measurements, strength: float) -> Orders:
    """Order searches with calls below the slow log's threshold, on enough connections to make a bystander wait."""
    call_ms = min(1.5, 0.3 * measured.slow_us / 1000)
    count = min(20_000, max(500, round(1000 * call_ms / measured.key_us)))
    lines = min(400, math.ceil(strength * WAIT_MS / (count * measured.key_us / 1000)))
    return {SECOND: {"kind": "scan-storm", "pattern": PATTERN, "count": count, "connections": lines}}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Search the keyspace repeatedly on many connections at once."""

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
