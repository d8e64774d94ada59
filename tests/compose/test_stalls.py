"""A stall of the machine is noticed, and a quiet moment is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from lab import ROOT

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
