"""A process in a quota gets its share of a core."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

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
