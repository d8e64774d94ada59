"""`python -m lab`."""

import contextlib
import os
import signal
import sys

INTERRUPTED = 130
"""As in `lab.errors`, which is not imported yet."""


def _too_early(_number: int, _frame: object) -> None:
    """Ctrl-C and its kin while the lab's own modules are read, which takes half a second: nothing was started yet."""
    os.write(2, b"lab: interrupted; nothing was started.\n")
    os._exit(INTERRUPTED)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
        signal.signal(number, _too_early)

from lab.cli import main  # noqa: E402

code = main()
if code == INTERRUPTED:
    # CPython ends itself by SIGINT when a KeyboardInterrupt has passed through an exec() of text (making a dataclass is
    # one), although it was caught since: then it never comes to the exit code. This does.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
sys.exit(code)
