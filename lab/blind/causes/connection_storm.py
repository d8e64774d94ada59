"""Clients that open a new connection for each command, many at once."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, closing

from lab.blind.inbox import Inbox, Order
from lab.blind.prices import entry
from lab.blind.sizing import SECOND, Measurements, Orders
from lab.server import signs
from loadtest.incidents.crowd_model import allow_files
from loadtest.resp import ANSWER_S, Server, ask, command

CONNECTIONS, EVERY_S = 1000, 0.15
"""Connections of one wave, and the seconds from one wave to the next. Each takes some 30 kB while it is open: with more
of them, entries would be evicted."""
SPARE_FILES = 50
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: a closed connection ends at once. Else thousands of closed ones would use up the machine's ports."""

evidence = signs.connects


def orders(_measured: Measurements, strength: float) -> Orders:
    """Order waves of connections; a strength above 1.0 brings them closer together."""
    return {SECOND: {"kind": "connection-storm", "connections": CONNECTIONS, "every_s": EVERY_S / strength}}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Repeatedly open many connections, send one command on each, and close all of them."""
    allow_files(order["connections"] + SPARE_FILES)
    greeting = server.greeting()
    request, replies = b"".join([*greeting, command("GET", entry(0))]), len(greeting) + 1
    due = time.monotonic()
    while not inbox.wait(due - time.monotonic()):
        with ExitStack() as stack:
            lines = [
                stack.enter_context(closing(socket.create_connection((server.host, server.port), ANSWER_S)))
                for _ in range(order["connections"])
            ]
            for line in lines:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                line.sendall(request)
            for line in lines:
                ask(line, b"", each=replies)
        due = max(due + order["every_s"], time.monotonic())
