"""A script that computes on the server."""

from __future__ import annotations

import time

from lab.blind import evidence as shown
from lab.blind.cause import NOW_AND_THEN, Cause
from lab.blind.evidence import Spent
from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import SECOND, Measured, Orders
from loadtest.resp import Server, ask, command, connect

SCRIPT = "local sum = 0 for i = 1, tonumber(ARGV[1]) do sum = sum + i % 7 end return sum"
TRIED, TIMES = 100_000, 5
"""Rounds of the script that take some milliseconds, and how often they are timed, to find out how many to order."""
CALL_S, EVERY_S = 0.1, 0.5


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow, EVAL calls are long and take much of the time, and the slow log got three or more."""
    script = of.spent("EVAL")
    logged, longest = of.slow.get("EVAL", (0, 0.0))
    return Finding(
        shown.long_calls(of, "EVAL") and logged >= 3,
        f"the slow log got {logged} EVAL, the longest {longest:.0f} ms; {script.per_s:.1f} a second took "
        f"{script.share:.0%} of the time, {script.mean_us / 1000:.1f} ms each; {of.gets_text}.",
    )


def orders(_of: Measured, strength: float) -> Orders:
    """Order scripts of a length that everybody notices, twice a second; a strength above 1.0 makes them longer."""
    return {SECOND: {"kind": "lua-script", "call_s": strength * CALL_S, "every_s": EVERY_S}}


def disturb(order: Order, inbox: Inbox, server: Server) -> None:
    """Have the script executed again and again, each time for about as long as ordered."""
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


CAUSE = Cause(
    id="lua-script",
    title="A Lua script",
    line="a program has the server execute a Lua script that computes for long",
    mechanism="A script is one command, however much it does: from its first line to its last the server executes "
    "nothing else. A computation that any client could do by itself keeps all of them waiting.",
    story=NOW_AND_THEN,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"busy": 0.25, "commands": {"EVAL": Spent(2, 0.2, 100_000)}, "slow": {"EVAL": (20, 110.0)}},
    alike={
        "keys-command": "SLOWLOG GET: the long command is another one. KEYS grows with the keyspace, a script with its "
        "own loop.",
        "giant-index": "SLOWLOG GET: the command's own words. No command of the slow log names a large set.",
        "eviction-cycle": "INFO stats: evicted_keys stands still.",
        "expiry-wave": "INFO stats: expired_keys stands still, and the slow log names what is long.",
        "noisy-neighbour": "The slow log: one command alone is long, and the others are as quick as ever.",
    },
    cures={
        "stop program-2": "Nobody has the server compute any more.",
    },
    tempting={
        "kill program-2": "The program connects again within a second, and has the next script executed.",
    },
    hints=(
        "Look at when GETs are slow: a few very slow ones between fast ones, or all of them a little?",
        "While somebody waits long, the server executes something long. It keeps a list of such things.",
        "SLOWLOG GET: every entry is EVAL, with a text that loops and reads no data: a script blocks the server.",
    ),
    words=("lua-script", "lua script", "luascript"),
)
