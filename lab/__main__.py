"""`python -m lab`."""

import contextlib
import os
import signal
import sys

INTERRUPTED = 130
"""The same exit code as in `lab.errors`, which is not imported yet."""


def _too_early(_number: int, _frame: object) -> None:
    """Handle Ctrl-C, SIGTERM and SIGHUP while the lab's modules are imported (half a second): nothing runs yet."""
    os.write(2, b"lab: interrupted; nothing was started.\n")
    os._exit(INTERRUPTED)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:  # nohup has SIGHUP ignored: keep that
        signal.signal(number, _too_early)

from lab.cli import main  # noqa: E402

code = main()
if code == INTERRUPTED:
    # Once a KeyboardInterrupt has passed through an exec() of text (creating a dataclass is one), CPython kills itself
    # by SIGINT at exit, even if the exception was caught, and the exit code is lost. os._exit keeps the exit code.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
sys.exit(code)
