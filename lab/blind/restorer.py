"""Puts the scene on compose back, whatever becomes of the session: commands for docker, given when stdin ends.

`python -m lab.blind.restorer` reads one line, a JSON object with `commands` and `orphaned` (each a list of words), says
that it is ready, and waits. stdin ends when the session does, in whatever way: the kernel closes it also for a session
that was killed. One that ends in order says something more before; after any other the orphaned commands are given too.
Exit code 0; 3 when a command failed, with a line about each that did.
"""

from __future__ import annotations

import json
import os
import sys

from lab.blind.launcher import first_line
from lab.errors import STACK_BROKE, StackError
from lab.stacks.docker import Docker
from lab.stacks.processes import ignore_interruptions

BEST_EFFORT = "rm"
"""What is to be removed is mostly gone already, or about to go."""


def main() -> int:
    """Wait for the end, then put back; the exit code."""
    ignore_interruptions()
    told = json.loads(first_line() or b'{"commands": [], "orphaned": []}')
    print("ready", flush=True)
    in_order = False
    while os.read(0, 4096):
        in_order = True
    docker, code = Docker(), 0
    for words in told["commands"] + ([] if in_order else told["orphaned"]):
        try:
            docker.ask(*words)
        except StackError as error:
            if words[0] != BEST_EFFORT:
                code = STACK_BROKE
                print(error, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
