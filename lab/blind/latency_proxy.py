"""The link between storefront and server: a TCP relay that follows orders on stdin.

An order has `delay_s`, the delay of each round trip, and may have `stall_s` and `every_s`: the relay stands still for
`stall_s` seconds in each period of `every_s`. The arguments are the address and the port to listen on (0: a free one).
The relay prints the port in one JSON line. PROBE_URL is the server's URL. The relay ends with stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from lab.blind.inbox import Inbox, Order
from loadtest.arguments import server_address
from loadtest.incidents.delay import Delay, relay
from loadtest.probe.quiet import become_quiet


def main() -> int:
    """Relay until stdin ends; return the exit code."""
    delay, ended = Delay(0.0), threading.Event()

    def follow(order: Order | None) -> None:
        if order is None:
            ended.set()
        else:
            delay.half_s = order["delay_s"] / 2
            delay.stall_s, delay.every_s = order.get("stall_s", 0.0), order.get("every_s", 0.0)

    become_quiet()
    near = sys.argv[1], int(sys.argv[2])
    print(json.dumps({"port": relay(server_address(os.environ["PROBE_URL"]), delay, near)}), flush=True)
    Inbox(follow)
    ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
