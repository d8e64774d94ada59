"""Locust, which ends with its stdin: for a session that cannot end the process in any other way.

`python -m lab.blind.customers ARGUMENTS` takes Locust's own arguments.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from loadtest.arguments import stop_with_stdin


def main() -> None:
    """Send requests until stdin ends."""
    end = (os.getpid(), signal.SIGTERM)
    threading.Thread(target=stop_with_stdin, args=(lambda: os.kill(*end),), name="stdin", daemon=True).start()
    from locust.main import (
        main as locust,
    )  # it replaces parts of the standard library: the thread is there before

    sys.exit(locust())  # type: ignore[no-untyped-call] # Locust has no types here


if __name__ == "__main__":
    main()
