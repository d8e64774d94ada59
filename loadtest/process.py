"""What all loads of the scenarios share: begin, print the figures, end when told to, fail with one line.

The last line of a load's output holds ``{"figures": {name: number}}``. Exit code 0 after that line; 3 with one line
on stderr if the server refuses or is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable

from loadtest.arguments import stop_with_stdin
from loadtest.resp import ConnectionLost, LoadFailed

BROKE = 3


class Stop:
    """Tells a load to end: `requested` is then True."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Tell the load to end. Safe in a signal handler."""
        self.requested = True


def say(line: dict[str, object]) -> None:
    """Print one line of output, as JSON."""
    print(json.dumps(line), flush=True)


def run_load(name: str, work: Callable[[Stop], dict[str, float]], until_stdin_ends: bool) -> int:
    """Do the work until it ends or is told to, then print its figures; returns the exit code."""
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.request())
    if until_stdin_ends:
        threading.Thread(target=stop_with_stdin, args=(stop.request,), name="stdin", daemon=True).start()
    try:
        say({"figures": work(stop)})
    except (LoadFailed, ConnectionLost) as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return BROKE
    except BrokenPipeError:  # nobody reads the lines any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # keeps the interpreter's last flush quiet
    return 0
