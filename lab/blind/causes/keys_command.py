"""The KEYS command."""

from __future__ import annotations

import time

from lab.blind import evidence as shown
from lab.blind.cause import EVERYBODY, Cause
from lab.blind.evidence import Spent
from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import PATTERN, SECOND, Measured, Orders
from loadtest.resp import Server, ask, command, connect

BUSY = 0.35
"""Share of the main thread that KEYS is to take."""


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow, KEYS calls are long and take much of the time, and the slow log got three or more."""
    keys = of.spent("KEYS")
    logged, longest = of.slow.get("KEYS", (0, 0.0))
    return Finding(
        shown.long_calls(of, "KEYS") and logged >= 3,
        f"the slow log got {logged} KEYS, the longest {longest:.0f} ms; {keys.per_s:.1f} a second took "
        f"{keys.share:.0%} of the time, {keys.mean_us / 1000:.1f} ms each over {of.keys:,} keys; {of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Order KEYS so often that it takes `BUSY` of the main thread; a strength above 1.0 multiplies that, up to 0.8."""
    return {
        SECOND: {
            "kind": "keys-command",
            "pattern": PATTERN,
            "every_s": of.walk_ms / 1000 / min(0.8, strength * BUSY),
        }
    }


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Send KEYS with the pattern every `every_s` seconds."""
    with connect(server) as line:
        due = time.monotonic()
        while not inbox.wait(due - time.monotonic()):
            ask(line, command("KEYS", order["pattern"]))
            due = max(due + order["every_s"], time.monotonic() + 0.1 * order["every_s"])


CAUSE = Cause(
    id="keys-command",
    title="The KEYS command",
    line="somebody finds keys by a pattern with KEYS",
    mechanism="KEYS walks over every key in one piece, and the server serves nothing else meanwhile. Every "
    "command that arrives then waits for the rest of it.",
    story=EVERYBODY,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"busy": 0.4, "commands": {"KEYS": Spent(7, 0.3, 40_000)}, "slow": {"KEYS": (50, 48.0)}},
    alike={
        "scan-storm": "SLOWLOG GET names KEYS; SCAN's calls are too short for it.",
        "giant-index": "SLOWLOG GET: the command's own words. KEYS grows with the keyspace, a giant set with "
        "its members.",
        "eviction-cycle": "INFO stats: evicted_keys stands still, and the stalls come evenly.",
        "noisy-neighbour": "The main thread's share of CPU, and the slow log: one command alone is long.",
    },
    cures={
        "stop program-2": "Nobody sends KEYS any more.",
    },
    tempting={
        "limit program-2 50%": "It sends fewer KEYS, but each takes as long, so one GET in a hundred still waits.",
    },
    hints=(
        "Look at when GETs are slow: a few very slow ones between fast ones, or all of them a little?",
        "While somebody waits long, the server executes something long. It keeps a list of such things.",
        "SLOWLOG GET: every entry is the same command, and it walks over all keys. KEYS blocks.",
    ),
    words=("keys-command", "keys command", "keyscommand"),
)
