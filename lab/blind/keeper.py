"""Puts the scene on compose back, whatever becomes of the session: commands for docker, given when stdin ends.

`python -m lab.blind.keeper` reads one line, a JSON object with `commands` (each a list of words), says that it is
ready, and waits. stdin ends when the session does, in whatever way: the kernel closes it also for a session that was
killed.
Exit code 0; 3 when a command failed, with a line about each that did.
"""

from __future__ import annotations

import json
import os
import sys

from lab.blind.worker import first_line
from lab.errors import STACK_BROKE, StackError
from lab.processes import ignore_interruptions
from lab.stacks.docker import Docker

BEST_EFFORT = "rm"
"""What is to be removed is mostly gone already, or about to go."""


def main() -> int:
    """Wait for the end, then put back; the exit code."""
    ignore_interruptions()
    commands = json.loads(first_line() or b'{"commands": []}')["commands"]
    print("ready", flush=True)
    while os.read(0, 4096):
        pass
    docker, code = Docker(), 0
    for words in commands:
        try:
            docker.ask(*words)
        except StackError as error:
            if words[0] != BEST_EFFORT:
                code = STACK_BROKE
                print(error, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
