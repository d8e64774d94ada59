"""A big value that many clients read all the time."""

from __future__ import annotations

import math
import select
import time
from contextlib import ExitStack, closing, suppress
from socket import socket

from lab.blind import evidence as shown
from lab.blind.cause import EVERYBODY, Cause
from lab.blind.evidence import Spent
from lab.blind.inbox import Inbox, Order
from lab.blind.prices import PRICES
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import HEADROOM_MB, SECOND, Measured, Orders
from loadtest.resp import ConnectionLost, Server, ask, command, connect

CATALOGUE = f"{PRICES}-catalogue"
VALUE_BYTES = 100_000
ROOM = 0.6
"""Share of the room for cached entries that the answers under way may take: with more, entries would be evicted."""
POLL_MS = 250
GONE = b"$-1\r\n"
"""The answer to GET where there is no such key."""
AGAIN_S = 1.0


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow and the server sends tens of megabytes a second, in big answers."""
    calls = sum(spent.per_s for spent in of.commands.values())
    each = f", {1000 * of.sent_mb_per_s / calls:.0f} kB with each answer" if calls else ""
    return Finding(
        shown.big_answers(of),
        f"the server sent {of.sent_mb_per_s:,.0f} MB a second{each}; the main thread was busy {of.busy:.0%}; GET took "
        f"{of.spent('GET').share:.0%} of the time, {of.spent('GET').mean_us:.0f} µs each; {of.gets_text}.",
    )


def orders(_of: Measured, strength: float) -> Orders:
    """Order as many connections as the room for their answers admits; a strength above 1.0 makes the value smaller."""
    most = HEADROOM_MB * 1_000_000 * ROOM / VALUE_BYTES
    order = {
        "kind": "hot-big-key",
        "bytes": round(VALUE_BYTES / strength),
        "connections": math.floor(most * strength),
    }
    return {SECOND: order}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Read one value on many connections at once, on each of them over and over.

    Where the value is gone, it is put again within `AGAIN_S`.
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


CAUSE = Cause(
    id="hot-big-key",
    title="A hot big key",
    line="a program reads one big value on many connections, over and over",
    mechanism="To execute such a GET is quick, and so the slow log stays empty. But its answer has to be copied and "
    "sent, a thousand times as much as another answer. The main thread spends its time on that, and every other "
    "command waits until the answers before it are on their way.",
    story=EVERYBODY,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"busy": 0.95, "sent_mb_per_s": 1200.0, "commands": {"GET": Spent(12_000, 0.3, 25)}},
    alike={
        "scan-storm": "INFO commandstats: SCAN is not called. The thread is busy beside the commands, with answering.",
        "keys-command": "SLOWLOG GET is empty: no single command is long.",
        "noisy-neighbour": "CPU of the server's own thread: it works all the time, and does not wait for a core.",
        "eviction-cycle": "INFO stats: evicted_keys stands still.",
    },
    cures={
        "stop program-2": "Nobody reads the big value any more; what else is read is small.",
    },
    tempting={
        "kill program-2": "The program connects again within a second and goes on.",
    },
    hints=(
        "Ask the server past the storefront. Is it slow for everybody, or only for the storefront?",
        "The main thread is busy, but the commands' own times do not add up to that. What else does it do for each "
        "call, and how much of it? INFO stats counts bytes, too.",
        "total_net_output_bytes climbs by hundreds of megabytes a second: somebody reads a big value all the time. "
        "CLIENT LIST says who, and STRLEN how big it is (bin/lab blind look key latency-lab-prices-catalogue): "
        "a hot big key.",
    ),
    words=("hot-big-key", "hot big key", "hot key", "big key"),
)
