"""Clients that connect anew for each command, many at once."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, closing

from lab.blind import evidence as shown
from lab.blind.cause import EVERYBODY, Cause
from lab.blind.inbox import Inbox, Order
from lab.blind.prices import entry
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import SECOND, Measured, Orders
from loadtest.incidents.crowd_model import allow_files
from loadtest.resp import ANSWER_S, Server, ask, command

CONNECTIONS, EVERY_S = 1000, 0.15
"""Connections of one wave, and the seconds from one wave to the next. Each takes some 30 kB while it is open: with more
of them, entries would be evicted."""
SPARE_FILES = 50
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: a closed connection is gone at once. Else thousands of closed ones would use up the machine's ports."""


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow and the server accepts hundreds of new connections a second."""
    return Finding(
        shown.connects(of),
        f"the server accepted {of.connects_per_s:,.0f} new connections a second; the main thread was busy "
        f"{of.busy:.0%}; {of.gets_text}.",
    )


def orders(_of: Measured, strength: float) -> Orders:
    """Order waves of connections; a strength above 1.0 brings them closer together."""
    return {SECOND: {"kind": "connection-storm", "connections": CONNECTIONS, "every_s": EVERY_S / strength}}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Again and again open many connections, ask one question on each, and close all of them."""
    allow_files(order["connections"] + SPARE_FILES)
    greeting = server.greeting()
    question, answers = b"".join([*greeting, command("GET", entry(0))]), len(greeting) + 1
    due = time.monotonic()
    while not inbox.wait(due - time.monotonic()):
        with ExitStack() as stack:
            lines = [
                stack.enter_context(closing(socket.create_connection((server.host, server.port), ANSWER_S)))
                for _ in range(order["connections"])
            ]
            for line in lines:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                line.sendall(question)
            for line in lines:
                ask(line, b"", each=answers)
        due = max(due + order["every_s"], time.monotonic())


CAUSE = Cause(
    id="connection-storm",
    title="A storm of connections",
    line="a program opens a new connection for each command, hundreds at once",
    mechanism="To accept a connection, to set it up and to free it costs the server as much as some dozen GETs, and "
    "with TLS far more. Hundreds at once are worked off in one go, and the next command waits until that is done. "
    "The commands themselves are few and short.",
    story=EVERYBODY,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"busy": 0.5, "connects_per_s": 6000.0},
    alike={
        "scan-storm": "INFO commandstats: no command takes much of the time.",
        "keys-command": "SLOWLOG GET holds no long command.",
        "hot-big-key": "INFO stats: total_net_output_bytes hardly climbs.",
        "noisy-neighbour": "INFO stats: total_connections_received climbs by thousands a second. A program that only "
        "computes opens none.",
    },
    cures={
        "stop program-2": "Nobody connects anew for each command any more.",
    },
    tempting={
        "pool size 50": "The storefront keeps its connections already; it is another program that keeps none.",
    },
    hints=(
        "Ask the server past the storefront. Is it slow for everybody, or only for the storefront?",
        "No command takes much of the server's time, and yet it is busier than before. What else costs it time, "
        "before a client's first command and after its last?",
        "INFO stats: total_connections_received climbs by more than a thousand a second, and CLIENT LIST shows many "
        "with age 0: a program without a pool opens a new connection for each command.",
    ),
    words=("connection-storm", "connection storm", "connectionstorm"),
)
