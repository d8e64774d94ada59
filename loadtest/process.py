"""The common frame of the scenarios' loads: begin, print the figures, end when asked to, fail with one line.

A load ends by itself, or on SIGTERM or SIGINT, or with `--until-stdin-ends` at the end of stdin. The last line of its
output holds ``{"figures": {name: number}}``. Exit code 0 after that line; 2 for bad arguments; 3 if a server or a
storefront refuses or is gone. Both of these leave one line on stderr.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic, sleep

from loadtest.arguments import Ending, P, read_plan, stop_with_stdin
from loadtest.resp import ConnectionLost, LoadFailed

BROKE = 3
LOOK_S = 0.05
"""Seconds between two checks of a waiting load whether its end was requested."""


class Stop:
    """A request to end a load: `requested` is then True."""

    def __init__(self) -> None:
        self.requested = False

    def request(self) -> None:
        """Request the end of the load. Safe in a signal handler."""
        self.requested = True

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the end is requested."""
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0 and not self.requested:
            sleep(min(left, LOOK_S))


def say(line: dict[str, object]) -> None:
    """Print one line of output, as JSON."""
    print(json.dumps(line), flush=True)


def heed_endings(plan: Ending, stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM and SIGINT, and at the end of stdin where the plan says so."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
    if plan.until_stdin_ends:
        threading.Thread(target=stop_with_stdin, args=(stop,), name="stdin", daemon=True).start()


def hush() -> None:
    """Silence the interpreter's last flush when the reader of the lines has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run_load(name: str, about: str | None, kind: type[P], work: Callable[[P, Stop], dict[str, float]]) -> int:
    """Do the work of the command line until it ends or its end is requested, then print its figures.

    Returns the exit code. `about` is the module's docstring, whose first line describes the load in its help.
    """
    plan, stop = read_plan(kind, name, about), Stop()
    heed_endings(plan, stop.request)
    try:
        say({"figures": work(plan, stop)})
    except (LoadFailed, ConnectionLost) as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return BROKE
    except BrokenPipeError:
        hush()
    return 0
