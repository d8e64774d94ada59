"""Starts any program of the scene: `python -m lab.blind.launcher`, whatever the program is to do.

The first line of stdin is a JSON object: `module`, `arguments`, `env`. The module is run as ``python -m`` would run
it, in this process. So neither the arguments nor the environment of the process, as the system shows them, tell what
it was told: the system shows the memory of the moment of its start (proc(5), /proc/PID/environ), which later changes of
the environment do not reach. What follows on stdin belongs to the module.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

LONGEST = 100_000


def first_line() -> bytes:
    """One line of stdin, and not a byte of what follows it: empty where stdin has ended."""
    line = bytearray()
    while len(line) < LONGEST:
        byte = os.read(0, 1)
        if not byte or byte == b"\n":
            break
        line += byte
    return bytes(line)


def main() -> None:
    """Wait to be told, then be that program."""
    line = first_line()
    if not line:  # the starting process has gone before saying anything
        return
    told = json.loads(line)
    os.environ.update(told["env"])
    sys.argv = [told["module"], *told["arguments"]]
    runpy.run_module(told["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
