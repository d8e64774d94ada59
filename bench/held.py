"""Runs a command of the lab while its server is held to a share of a core.

`python -m bench.held --share 0.5 bin/lab run key-growth --pace quick` stands in for a slower machine. The kernel gives
the server's process a quota in each period of 5 ms: with its usual period of 100 ms a server would stand still for up
to that long, and p99 would measure the quota. The server's own clock counts the time in which it was held as execution,
so its calls take longer, as on a slower machine; its CPU time does not. In the end a line on stderr says in how many
periods the server was held. The exit code is the command's.

Linux only, with the right to make control groups (root); else one line and exit code 3.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from bench.kit import ROOT, OneLineParser
from lab.errors import LabError, StackError
from lab.stacks.servers import find_server

PERIOD_US = 5_000
SMALLEST = 0.2
"""The smallest share: the kernel takes no quota below 1 ms."""
LOOK_S = 0.02
GROUPS = Path("/sys/fs/cgroup")


class Quota:
    """A control group whose processes get that share of a core together. Raises `StackError` where none can be made."""

    def __init__(self, share: float) -> None:
        old = GROUPS / "cpu"  # control groups of version 1 have a tree for each resource
        self._folder = (old if old.is_dir() else GROUPS) / f"latency-lab-{os.getpid()}"
        quota = round(share * PERIOD_US)
        try:
            self._folder.mkdir()
            if old.is_dir():
                (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        except OSError as error:
            self.close()
            raise StackError(f"no CPU quota can be set here: {error}. It needs Linux and root.") from error

    def add(self, pid: int) -> None:
        """Hold a process, with all of its threads. Nothing is done if it has ended."""
        with suppress(ProcessLookupError):
            (self._folder / "cgroup.procs").write_text(str(pid))

    def periods(self) -> tuple[int, int]:
        """In how many periods there was something to do, and in how many of those it was held."""
        lines = (self._folder / "cpu.stat").read_text().splitlines()
        found = {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
        return found.get("nr_periods", 0), found.get("nr_throttled", 0)

    def close(self) -> None:
        """Remove the group; processes in it must have ended."""
        with suppress(OSError):
            self._folder.rmdir()


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
        time.sleep(0.1)  # a group can be removed a moment after its last process
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
