"""A big value that many clients read all the time."""

from __future__ import annotations

import math
import select
import time
from contextlib import ExitStack, closing, suppress
from socket import socket

from lab.blind.inbox import Inbox, Order
from lab.blind.prices import PRICES
from lab.blind.sizing import HEADROOM_MB, SECOND, Measurements, Orders
from lab.server import signs
from loadtest.resp import ConnectionLost, Server, ask, command, connect

CATALOGUE = f"{PRICES}-catalogue"
VALUE_BYTES = 100_000
ROOM = 0.6
"""Share of the room for cached entries that the answers under way may take: with more, entries would be evicted."""
POLL_MS = 250
GONE = b"$-1\r\n"
"""The reply to GET of an absent key."""
AGAIN_S = 1.0

evidence = signs.big_answers


def orders(_measured: Measurements, strength: float) -> Orders:
    """Order as many connections as the room for their answers admits; a strength above 1.0 makes the value smaller."""
    most = HEADROOM_MB * 1_000_000 * ROOM / VALUE_BYTES
    order = {
        "kind": "hot-big-key",
        "bytes": round(VALUE_BYTES / strength),
        "connections": math.floor(most * strength),
    }
    return {SECOND: order}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Read one value repeatedly on many connections at once.

    If the value has been deleted, it is written again within `AGAIN_S`.
    """
    question, room = command("GET", CATALOGUE), bytearray(2**18)
    answer = len(b"$%d\r\n\r\n" % order["bytes"]) + order["bytes"]
    with ExitStack() as stack:
        poll, lines, left = select.poll(), dict[int, socket](), dict[int, int]()
        publisher, put_at = stack.enter_context(closing(connect(server))), time.monotonic()
        ask(publisher, command("SET", CATALOGUE, b"c" * order["bytes"]))
        for _ in range(order["connections"]):
            line = stack.enter_context(closing(connect(server)))
            lines[line.fileno()] = line
            poll.register(line, select.POLLIN)
        for fd, line in lines.items():
            line.setblocking(False)
            line.sendall(question)
            left[fd] = answer
        while not inbox.news:
            for fd, _ in poll.poll(POLL_MS):
                with suppress(BlockingIOError):
                    taken = lines[fd].recv_into(room)
                    if not taken:
                        raise ConnectionLost("the server closed the connection")
                    is_gone = left[fd] == answer and room.startswith(GONE)
                    if is_gone and time.monotonic() > put_at + AGAIN_S:
                        ask(publisher, command("SET", CATALOGUE, b"c" * order["bytes"]))
                        put_at = time.monotonic()
                    left[fd] -= answer if is_gone else taken
                    if not left[fd]:
                        lines[fd].sendall(question)
                        left[fd] = answer
