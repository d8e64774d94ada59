"""Runs the lab's commands as a person does: most in a process of their own."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

import psutil
import pytest

from lab.cli import run_command
from tests.lab.claims.checknames import ON_TIME, QUIET, SPARE, STEADY

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "bin" / "lab"

TOO_BUSY = re.compile(r"nothing can be measured on this machine now.*")
"""The message with which `lab run` refuses a machine that is too busy for any run, before it starts anything."""


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """Lines of stderr with which the lab itself explains why it stopped."""
        return [line for line in self.err.splitlines() if line.startswith("lab: ")]

    def is_one_line(self, code: int) -> bool:
        """True if this is an error as the contract wants it: one line on stderr, this exit code, no traceback."""
        return self.code == code and len(self.err.splitlines()) == 1 == len(self.complaints)


def lab(*arguments: str, cwd: Path, seconds: float = 60, **environment: str) -> Answer:
    """Run a command to its end; stdin is not a terminal."""
    done = subprocess.run(
        [str(LAB), *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def typed(*arguments: str, cwd: Path, **environment: str) -> Answer:
    """Run a command to its end in this process, which saves the second of a process that starts.

    It is for commands that end before they start anything.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ, environment),
    ):
        code = run_command(list(arguments))
    return Answer(code, out.getvalue(), err.getvalue())


def skip_where_nothing_can_be_measured(answer: Answer) -> None:
    """Skip the test, with the lab's own reason, where the machine is too busy for any run."""
    if answer.code == 4 and (reason := TOO_BUSY.search(answer.err)):
        pytest.skip(reason[0])


def tree(folder: Path) -> list[str]:
    """Return the relative paths of everything below a folder, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class Running:
    """A `lab run` in the background. Use it as a context manager: none of its processes survives the block.

    `verb` chooses a command other than `run`; `environment` adds environment variables.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        limit: Callable[[], None] | None = None,
        verb: str = "run",
        **environment: str,
    ) -> None:
        cwd.mkdir(exist_ok=True)
        self.folder = cwd
        self._out, self._err = cwd / "stdout.txt", cwd / "stderr.txt"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [str(LAB), verb, *arguments],
                cwd=cwd,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=limit,
            )
        self.seen: dict[int, psutil.Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.family()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for process in self.left(seconds=0):
            process.kill()

    def family(self) -> Mapping[str, psutil.Process]:
        """Return the lab's living descendants by command line, and remember them in `seen`."""
        found = {}
        try:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    found[" ".join(process.cmdline())] = process
                    self.seen[process.pid] = process
                except psutil.Error:
                    continue
        except psutil.NoSuchProcess:
            pass
        return found

    def ports(self) -> set[int]:
        """The ports on which the lab's descendants listen."""
        found = set()
        for process in self.family().values():
            try:
                found |= {
                    connection.laddr.port
                    for connection in process.net_connections("tcp")
                    if connection.status == psutil.CONN_LISTEN
                }
            except psutil.Error:
                continue
        return found

    def until(self, ready: Callable[[], object], seconds: float = 90) -> None:
        """Wait until `ready` is true; fail the test if the run ends before."""
        end = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None:
                pytest.fail(f"the run ended early: {self.answer().err}")
            assert time.monotonic() < end, f"still waiting after {seconds} s: {self._err.read_text()}"
            self.family()
            time.sleep(0.1)

    def signal(self, number: int = signal.SIGINT) -> None:
        """Send a signal to the lab alone."""
        self.family()
        self.process.send_signal(number)

    def answer(self, seconds: float = 60) -> Answer:
        """Wait for the end of the command. Skips the test where the machine is too busy for any run."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the lab does not end: {self._err.read_text()}"
            self.family()
            time.sleep(0.1)
        answer = Answer(self.process.returncode, self._out.read_text(), self._err.read_text())
        skip_where_nothing_can_be_measured(answer)
        return answer

    def left(self, seconds: float = 3) -> list[psutil.Process]:
        """Processes of this run that are still alive some seconds after its end."""
        end = time.monotonic() + seconds
        while True:
            alive = [process for process in self.seen.values() if lives(process)]
            if not alive or time.monotonic() > end:
                return alive
            time.sleep(0.05)


def lives(process: psutil.Process) -> bool:
    """True if the process is there and no zombie. It may end at any moment, also between two looks at it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


THE_MACHINES = {ON_TIME, QUIET, SPARE, STEADY}
"""Validity checks that fail because of the machine alone, without a fault of the lab."""


@dataclass(frozen=True)
class Finished:
    """A run that ended with a result."""

    answer: Answer
    folder: Path

    @property
    def result(self) -> dict[str, Any]:
        """Its result.json."""
        return dict(json.loads((self.folder / "result.json").read_text()))

    def refuted(self) -> list[str]:
        """Claims that do not hold, with what was measured."""
        return [f"{c['id']}: {c['measured']}" for c in self.result["claims"] if c["holds"] is False]


def whole_run(folder: Path, *arguments: str) -> Finished:
    """Make a quick run. Skips the test, with the reason, if the machine alone kept the run from being valid."""
    out = folder / "run"
    answer = lab("run", *arguments, "--pace", "quick", "--json", "--out", str(out), cwd=folder, seconds=300)
    skip_where_nothing_can_be_measured(answer)
    finished = Finished(answer, out)
    assert (out / "result.json").exists(), f"no result, exit code {answer.code}: {answer.err}"
    if answer.code == 4:
        failed = {each["check"]: each["detail"] for each in finished.result["validity"] if not each["ok"]}
        told = "; ".join(f"{name}: {detail}" for name, detail in failed.items())
        assert set(failed) <= THE_MACHINES, told
        pytest.skip(f"no valid run on this machine: {told}")
    return finished
