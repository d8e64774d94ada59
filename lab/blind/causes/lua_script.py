"""A script that computes on the server."""

from __future__ import annotations

import time

from lab.blind.cause import held_by_commands
from lab.blind.inbox import Inbox, Order
from lab.blind.sizing import SECOND, Measurements, Orders
from loadtest.resp import Server, ask, command, connect

SCRIPT = "local sum = 0 for i = 1, tonumber(ARGV[1]) do sum = sum + i % 7 end return sum"
TRIED, TIMES = 100_000, 5
"""Rounds of the script that take some milliseconds, and the number of times that they are timed, to size the order."""
CALL_S, EVERY_S = 0.1, 0.5


evidence = held_by_commands("lua-script")


def orders(_measured: Measurements, strength: float) -> Orders:
    """Order scripts long enough for every client to notice, twice a second; a strength above 1.0 makes them longer."""
    return {SECOND: {"kind": "lua-script", "call_s": strength * CALL_S, "every_s": EVERY_S}}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Execute the script repeatedly, each time for about the ordered time."""
    with connect(server) as line:

        def took_s() -> float:
            began = time.monotonic()
            ask(line, command("EVAL", SCRIPT, 0, TRIED))
            return time.monotonic() - began

        rounds = round(TRIED * order["call_s"] / min(took_s() for _ in range(TIMES)))
        due = time.monotonic()
        while not inbox.wait(due - time.monotonic()):
            ask(line, command("EVAL", SCRIPT, 0, rounds))
            due = max(due + order["every_s"], time.monotonic())
