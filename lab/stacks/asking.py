"""What a look at the machine finds, and how other programs are asked. Nothing but the standard library."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

SECONDS_TO_ANSWER = 20.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `needed` is False for what only some commands use."""

    what: str
    ok: bool
    detail: str
    needed: bool = True


def ask(*command: str, seconds: float = SECONDS_TO_ANSWER) -> tuple[int, str]:
    """Run a command; its exit code and everything it said. 127 when there is no such program, 124 when it hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except OSError as error:
        return 127, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {seconds:g} s"
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()
