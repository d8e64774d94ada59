"""Runs a command of the lab while its server is held to a share of a core.

`python -m bench.held --share 0.5 bin/lab run key-growth --pace quick` stands in for a slower machine. How the server
is held, and why in periods of 5 ms, is told in `lab.stacks.quota`. In the end a line on stderr says in how many periods
the server was held. The exit code is the command's.

Linux only, with the right to make control groups (root); else one line and exit code 3.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil

from bench.kit import ROOT, OneLineParser
from lab.errors import LabError
from lab.stacks.quota import PERIOD_US, SMALLEST, Quota
from lab.stacks.servers import find_server

LOOK_S = 0.02


class Holder:
    """Puts every process of a binary that a command starts into a quota, as soon as it is seen."""

    def __init__(self, command: psutil.Process, binary: str, quota: Quota) -> None:
        self._command, self._binary, self._quota = command, Path(binary).resolve(), quota
        self._held: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="holder", daemon=True)

    @property
    def held(self) -> int:
        """How many processes were held so far."""
        return len(self._held)

    def begin(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            with suppress(psutil.Error):
                for process in self._command.children(recursive=True):
                    if process.pid not in self._held and self._is_server(process):
                        self._quota.add(process.pid)
                        self._held.add(process.pid)

    def _is_server(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return Path(process.exe()) == self._binary
        return False


def run(command: list[str], binary: str, share: float) -> int:
    """Run the command with its server held; returns its exit code. Raises `StackError` without the right to hold."""
    quota = Quota(share)
    try:
        with subprocess.Popen(command, cwd=ROOT) as process:
            holder = Holder(psutil.Process(process.pid), binary, quota)
            holder.begin()
            try:
                process.wait()
            except KeyboardInterrupt:  # the command got the signal, too
                process.wait()
            holder.end()
        busy, held = quota.periods()
        print(
            f"held: {holder.held} servers, in {held:,} of {busy:,} periods of {PERIOD_US / 1000:g} ms "
            f"({held / max(1, busy):.0%})",
            file=sys.stderr,
        )
        return process.returncode
    finally:
        quota.close()


def share(text: str) -> float:
    """A share of a core from the command line. Raises `ValueError` for anything else (argparse reports it)."""
    if not SMALLEST <= (value := float(text)) <= 1.0:
        raise ValueError(text)
    return value


def main() -> int:
    """The command; its exit code."""
    parser = OneLineParser(prog="bench.held", description="Run a command of the lab with its server held.")
    parser.add_argument("--share", type=share, required=True, help=f"share of a core, {SMALLEST:g} to 1")
    parser.add_argument("--server", default="embedded", help="the server that the command starts (embedded)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="bin/lab run key-growth ...")
    asked = parser.parse_args()
    if not asked.command:
        parser.error("no command: python -m bench.held --share 0.5 bin/lab run key-growth --pace quick")
    try:
        return run(asked.command, find_server(asked.server).require(), asked.share)
    except LabError as error:
        print(f"bench.held: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
