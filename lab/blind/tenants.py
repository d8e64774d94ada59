"""What programs of other teams do with the shared store; which, and how much, they are told on stdin.

Every such program is this module, and idles until an order comes. The order's `kind` is `rest`, `changes`, or the id
of a cause, whose `disturb` is then run; a newer order ends the older one. PROBE_URL says where the store is. The end of
stdin ends the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from lab.blind.causes import CAUSES
from lab.blind.inbox import Inbox, Order
from lab.blind.prices import carry_out_changes
from loadtest.arguments import server
from loadtest.resp import ConnectionLost, LoadFailed, Server


def resting(_order: Order, inbox: Inbox, _store: Server) -> None:
    """Do nothing."""
    inbox.wait()


KINDS: dict[str, Callable[[Order, Inbox, Server], None]] = {
    "rest": resting,
    "changes": carry_out_changes,
    **{cause.id: cause.disturb for cause in CAUSES.values() if cause.disturb},
}


def main() -> int:
    """Do as told until stdin ends; the exit code."""
    store = server(os.environ["PROBE_URL"])
    inbox = Inbox()
    while (order := inbox.take()) is not None:
        while not inbox.news:
            try:
                KINDS[order["kind"]](order, inbox, store)
            except (LoadFailed, ConnectionLost, OSError):
                # The store restarts, is full, or a participant has ended this connection: begin again, silently,
                # for what it says of itself could be read.
                inbox.wait(0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
