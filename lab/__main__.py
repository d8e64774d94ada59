"""`python -m lab`."""

import contextlib
import os
import sys

from lab.cli import main
from lab.errors import INTERRUPTED

code = main()
if code == INTERRUPTED:
    # CPython ends itself by SIGINT when a KeyboardInterrupt has passed through an exec() of text (making a dataclass is
    # one), although it was caught since: then it never comes to the exit code. This does.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
sys.exit(code)
