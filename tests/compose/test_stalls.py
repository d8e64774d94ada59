"""A stall of the machine is noticed, and a quiet moment is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from lab import ROOT
from tests.compose.stalls import Stalls

SCRIPT = """
import sys, time
from tests.compose.stalls import Stalls
with Stalls() as stalls:
    print("begun", flush=True)
    sys.stdin.readline()
    time.sleep(0.1)
print(max(stalls.lengths, default=0.0))
"""


def test_a_process_that_was_stopped_notices_it() -> None:
    """A stop of half a second, as a hypervisor makes it, is among the stalls with about its length."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGCONT)
    said, _ = process.communicate("\n", timeout=30)
    assert float(said) >= 0.4


@pytest.mark.parametrize(
    ("stalls", "took", "left"),
    [
        ([], 12.0, 12.0),
        ([49.9], 50.0, 49.9),  # a stall at the end explains no slow cure
        ([3.0], 20.0, 10.0),
        ([3.0, 5.0, 40.0], 45.0, 28.0),
        ([8.0], 12.0, 8.0),
    ],
)
def test_a_stall_spoils_ten_seconds(stalls: list[float], took: float, left: float) -> None:
    """Each stall takes the ten seconds after it, and seconds that two of them spoil count once."""
    noted = Stalls()
    noted.at = [100 + at for at in stalls]
    assert noted.undisturbed(100.0, took) == pytest.approx(left)
