"""A noisy neighbour."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256

from lab.blind import evidence as shown
from lab.blind.cause import EVERYBODY, Cause
from lab.blind.inbox import Inbox, Order
from lab.blind.readings import Finding, Readings
from lab.blind.sizing import REST, SECOND, Measured, Orders
from loadtest.resp import Server

BLOCK = b"." * 65_536
"""Hashing a block of this size releases the interpreter's lock, so the threads compute at the same time."""
PERIOD_S = 0.1
"""The usual period of a container's quota of CPU time."""


def evidence(of: Readings) -> Finding:
    """Found if GETs are slow while other programs compute and the server, which has little to do, waits for a core."""
    told = (
        ""
        if of.waited is None
        else f"the server's main thread was ready and without a core {of.waited:.0%} of the time; "
    )
    return Finding(
        shown.without_a_core(of, of.waited, of.neighbours),
        f"{told}it was busy {of.busy:.0%}; programs of other teams used {of.neighbours:.1f} of {of.cores} cores; "
        f"{of.gets_text}.",
    )


def orders(of: Measured, strength: float) -> Orders:
    """Order threads that compute, on the server's own core if it is kept on one."""
    threads = 4 if of.core is not None else 2 * of.cores
    order = {"kind": "noisy-neighbour", "threads": round(threads * strength), "core": of.core, "share": 1.0}
    return dict.fromkeys((SECOND, *REST), order)


def disturb(order: Order, inbox: Inbox, _server: Server) -> None:
    """Compute in some threads, for a share of each period; on one core if the order names it and the system can.

    All threads rest at the same time, as those of a container whose quota is used up.
    """
    if order["core"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {order["core"]})

    began, works_s = time.monotonic(), order["share"] * PERIOD_S

    def hash_on() -> None:
        while not inbox.news:
            in_period = (time.monotonic() - began) % PERIOD_S
            if in_period < works_s:
                sha256(BLOCK)
            else:
                time.sleep(PERIOD_S - in_period)

    threads = [threading.Thread(target=hash_on, name="work", daemon=True) for _ in range(order["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


CAUSE = Cause(
    id="noisy-neighbour",
    title="A noisy neighbour",
    line="other programs take the core that the server needs",
    mechanism="The server has little to do, but is not on a core when a command comes: it waits for its turn. Its "
    "clock runs meanwhile, so even its own execution times rise, of all commands alike.",
    story=EVERYBODY,
    evidence=evidence,
    orders=orders,
    disturb=disturb,
    typical={"waited": 0.3, "neighbours": 1.0},
    alike={
        "scan-storm": "CPU of the server's own thread is low; no command has much of its time.",
        "keys-command": "The slow log holds no long command.",
        "slow-network": "A GET past the link is slow too.",
        "eviction-cycle": "INFO stats: evicted_keys stands still.",
    },
    cures={
        "stop program-2 program-3 program-4": "The server has its core for itself.",
    },
    tempting={
        "stop program-2": "It is one of three, and the other two take what it leaves.",
    },
    hints=(
        "Ask the server past the storefront. Is it slow for everybody, or only for the storefront?",
        "The server's own CPU time does not account for what its clients wait. What does a process do when it "
        "neither works nor sleeps?",
        "Other processes compute on the server's core (top, ps -o psr, docker stats; /proc/PID/schedstat, "
        "second figure): a noisy neighbour.",
    ),
    words=("noisy-neighbour", "noisy neighbo", "noisyneighbo", "burner"),
)
