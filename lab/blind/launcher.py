"""Starts any program of the scene with the same command line: `python -m lab.blind.launcher`.

The first line of stdin is a JSON object: `module`, `arguments`, `env`. The module is run in this process, as
`python -m` runs it. The system shows a process's arguments and environment as they were at its start (proc(5),
/proc/PID/environ), so they do not reveal the module. The rest of stdin belongs to the module.
"""

from __future__ import annotations

import json
import os
import runpy
import sys

LONGEST = 100_000


def first_line() -> bytes:
    """Read and return one line of stdin and not a byte more; empty if stdin has ended."""
    line = bytearray()
    while len(line) < LONGEST:
        byte = os.read(0, 1)
        if not byte or byte == b"\n":
            break
        line += byte
    return bytes(line)


def main() -> None:
    """Wait for the first line, then run its module."""
    line = first_line()
    if not line:  # the starting process ended before it sent a line
        return
    program = json.loads(line)
    os.environ.update(program["env"])
    sys.argv = [program["module"], *program["arguments"]]
    runpy.run_module(program["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
