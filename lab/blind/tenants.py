"""The tenants: programs of other teams on the shared server. Each carries out the orders that come on stdin.

Every such program runs this module and idles until an order comes. The order's `kind` is `rest`, `changes`, or the id
of a cause, whose `disturb` is then run; a newer order ends the older one. PROBE_URL is the server's URL. The argument,
if there is one, is the program's name, the same under every cause. Its connections have that name, so the slow log and
the list of connections show it. The end of stdin ends the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from lab.blind.causes import CAUSES
from lab.blind.inbox import Inbox, Order
from lab.blind.prices import run_price_changes
from loadtest import arguments
from loadtest.resp import ConnectionLost, LoadFailed, Server


def resting(_order: Order, inbox: Inbox, _server: Server) -> None:
    """Do nothing until a new order comes."""
    inbox.wait()


KINDS: dict[str, Callable[[Order, Inbox, Server], None]] = {
    "rest": resting,
    "changes": run_price_changes,
    **{cause.id: cause.disturb for cause in CAUSES.values() if cause.disturb},
}


def main() -> int:
    """Carry out orders until stdin ends; return the exit code."""
    server = replace(arguments.server_address(os.environ["PROBE_URL"]), client_name="".join(sys.argv[1:]))
    inbox = Inbox()
    while (order := inbox.take()) is not None:
        while not inbox.news:
            try:
                KINDS[order["kind"]](order, inbox, server)
            except (LoadFailed, ConnectionLost, OSError):
                # The server restarts, is full, or a participant has closed this connection. Begin again without a
                # message, because a participant could read it.
                inbox.wait(0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
