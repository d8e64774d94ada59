"""The link between storefront and server: a TCP relay that delays each round trip by `delay_s`, an order on stdin.

Its arguments are the address and the port to listen on (0: a free one); it prints the port in one JSON line. PROBE_URL
is the server's URL. The relay ends with stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from lab.blind.inbox import Inbox, Order
from loadtest.arguments import server
from loadtest.incidents.delay import Delay, relay
from loadtest.probe.quiet import become_quiet


def main() -> int:
    """Relay until stdin ends; return the exit code."""
    delay, ended = Delay(0.0), threading.Event()

    def heard(order: Order | None) -> None:
        if order is None:
            ended.set()
        else:
            delay.half_s = order["delay_s"] / 2

    become_quiet()
    near = sys.argv[1], int(sys.argv[2])
    print(json.dumps({"port": relay(server(os.environ["PROBE_URL"]), delay, near)}), flush=True)
    Inbox(heard)
    ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
