"""A noisy neighbour."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256

from lab.blind.inbox import Inbox, Order
from lab.blind.sizing import REST, SECOND, Measurements, Orders
from lab.server import signs
from loadtest.resp import Server

BLOCK = b"." * 65_536
"""Hashing a block of this size releases the interpreter's lock, so the threads compute at the same time."""
PERIOD_S = 0.1
"""The usual period of a container's quota of CPU time."""

evidence = signs.lacks_a_core


def orders(measured: Measurements, strength: float) -> Orders:
    """Order threads that compute, on the server's own core if the server is pinned to one."""
    threads = 4 if measured.core is not None else 2 * measured.cores
    order = {
        "kind": "noisy-neighbour",
        "threads": round(threads * strength),
        "core": measured.core,
        "share": 1.0,
    }
    return dict.fromkeys((SECOND, *REST), order)


def disturb(order: Order, inbox: Inbox, _server: Server) -> None:
    """Compute in some threads, for a share of each period; on one core if the order names it and the system can.

    All threads rest at the same time, like those of a container whose quota is used up.
    """
    if order["core"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {order["core"]})

    began, works_s = time.monotonic(), order["share"] * PERIOD_S

    def hash_repeatedly() -> None:
        while not inbox.news:
            in_period = (time.monotonic() - began) % PERIOD_S
            if in_period < works_s:
                sha256(BLOCK)
            else:
                time.sleep(PERIOD_S - in_period)

    threads = [
        threading.Thread(target=hash_repeatedly, name="work", daemon=True) for _ in range(order["threads"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
