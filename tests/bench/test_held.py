"""`bench.held`: a process in a quota gets its share of a core; bad arguments and missing rights are one line."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from lab import ROOT
from lab.errors import StackError
from lab.stacks.quota import Quota

SHARE, SECONDS = 0.2, 1.0


def quota() -> Quota:
    """Return a new quota. Skips the test where there can be none."""
    try:
        return Quota(SHARE)
    except StackError as error:
        pytest.skip(str(error))


@pytest.mark.alone
def test_a_process_gets_its_share() -> None:
    """A program that takes all it gets has about the share of a core, and was held in nearly every period."""
    group = quota()
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        group.add(program.pid)
        process = psutil.Process(program.pid)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(SECONDS)
        used = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        busy, held = group.periods()
    finally:
        program.kill()
        program.wait()
        time.sleep(0.1)
        group.close()
    assert SHARE / 2 < used < 1.5 * SHARE
    assert held > 0.5 * busy > 0


def test_a_process_that_is_gone_is_not_held() -> None:
    """Adding it does nothing, and the group can be removed."""
    group = quota()
    program = subprocess.Popen(["true"])
    program.wait()
    group.add(program.pid)
    assert group.periods()[1] == 0
    group.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--share", "0.19"], "--share"),  # the kernel would refuse the quota
        (["--share", "1.1"], "--share"),
        (["--share", "x"], "--share"),
        (["--share", "0.5"], "no command"),
        (["--share", "0.5", "--server", "rediz", "bin/lab"], "no server 'rediz'"),
    ],
)
def test_bad_arguments_are_one_line(words: list[str], told: str) -> None:
    """The exit code is 2, and nothing is started."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.held", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert told in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--hold", "2"], "--hold"), (["--hold", "0.5", "--stack", "compose"], "--stack native")],
)
def test_a_hold_that_cannot_be_is_refused_before_the_first_run(words: list[str], told: str) -> None:
    """`bench.repeat` starts no run for a share that cannot be, nor on compose, whose server it does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.repeat", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert told in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
