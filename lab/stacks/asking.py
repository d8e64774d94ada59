"""Findings about the machine, and a way to ask other programs. Needs only the standard library."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

SECONDS_TO_ANSWER = 20.0


@dataclass(frozen=True)
class Finding:
    """The result of one check. `needed` is False for what only some commands use."""

    what: str
    ok: bool
    detail: str
    needed: bool = True


def ask(*command: str, seconds: float = SECONDS_TO_ANSWER) -> tuple[int, str]:
    """Run a command. Returns its exit code and its stdout; after a failure its stderr, if there is any.

    The exit code is 127 when the program cannot be started, 124 when it does not end in time.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except OSError as error:
        return 127, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {seconds:g} s"
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()
