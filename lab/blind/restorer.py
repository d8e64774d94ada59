"""Restores a running stack when a session ends, however it ends: runs docker at the end of stdin.

`python -m lab.blind.restorer` reads one line, a JSON object with the lists `commands` and `orphaned` (each command is a
list of words for docker), prints "ready", and waits. stdin ends with the session; if the session is killed, the kernel
closes it. A session that ends in order sends something more before. If nothing more came, the `orphaned` commands run
too. Exit code 0, or 3 when a command failed, with a line for each that did.
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
"""A command that may fail: what it removes is mostly gone already, or about to go."""


def main() -> int:
    """Wait for the end of stdin, run the commands, and return the exit code."""
    ignore_interruptions()
    told = json.loads(first_line() or b'{"commands": [], "orphaned": []}')
    print("ready", flush=True)
    in_order = False
    while os.read(0, 4096):
        in_order = True
    engine = Docker()
    code = 0
    for words in told["commands"] + ([] if in_order else told["orphaned"]):
        try:
            engine.ask(*words)
        except StackError as error:
            if words[0] != BEST_EFFORT:
                code = STACK_BROKE
                print(error, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
