"""The KEYS command."""

from __future__ import annotations

import time

from lab.blind.cause import held_by_commands
from lab.blind.inbox import Inbox, Order
from lab.blind.sizing import PATTERN, SECOND, Measurements, Orders
from loadtest.resp import Server, ask, command, connect

BUSY = 0.35
"""Share of the main thread that KEYS is to take."""


evidence = held_by_commands("keys-command")


def orders(measured: Measurements, strength: float) -> Orders:
    """Order KEYS so often that it takes `BUSY` of the main thread; a strength above 1.0 multiplies that, up to 0.8."""
    return {
        SECOND: {
            "kind": "keys-command",
            "pattern": PATTERN,
            "every_s": measured.full_scan_ms / 1000 / min(0.8, strength * BUSY),
        }
    }


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Send KEYS with the pattern every `every_s` seconds."""
    with connect(server) as line:
        due = time.monotonic()
        while not inbox.wait(due - time.monotonic()):
            ask(line, command("KEYS", order["pattern"]))
            due = max(due + order["every_s"], time.monotonic() + 0.1 * order["every_s"])
