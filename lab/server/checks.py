"""Results of checks, and functions that run a command and read the sizes that it prints.

Needs only the standard library.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.errors import StackError

SECONDS_TO_ANSWER = 20.0
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
"""Docker counts memory in the binary units, Podman in the decimal ones."""
MEMORY = "{{.ID}}\t{{.MemUsage}}"
"""The format of `docker stats` that `memory_by_id` reads. Podman's names lack their first letter there."""
ID_LENGTH = 12
"""Characters of a container's id that every command prints."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. `needed` is False if only some commands depend on it."""

    name: str
    ok: bool
    detail: str
    needed: bool = True


def guarded(name: str, check: Callable[[], CheckResult]) -> CheckResult:
    """Run a check. Returns its result; a failed one if it got no answer, or an unreadable one."""
    try:
        return check()
    except StackError as error:
        return CheckResult(name, False, str(error))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return CheckResult(name, False, f"an answer that cannot be read: {error!r}")


def ask(*command: str, seconds: float = SECONDS_TO_ANSWER, cwd: Path | None = None) -> tuple[int, str]:
    """Run a command. Returns its exit code and its stdout; after a failure its stderr, if there is any.

    The exit code is 127 when the program cannot be started, 124 when it does not end in time.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, cwd=cwd)
    except OSError as error:
        return 127, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {seconds:g} s"
    return done.returncode, (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()


def in_bytes(size: str) -> float:
    """Return the bytes of a size such as 1.5GiB. Raises `ValueError` for anything else."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([A-Za-z]+)\s*", size)
    if not found or found[2].upper() not in UNITS:
        raise ValueError(size)
    return float(found[1]) * UNITS[found[2].upper()]


def memory_by_id(output: str) -> dict[str, int]:
    """Return container id (`ID_LENGTH`) → bytes of memory in use, from `docker stats` in the format `MEMORY`."""
    rows = re.findall(rf"(?i)^(\S+)\t([\d.]+(?:{'|'.join(UNITS)})) /", output, re.MULTILINE)
    return {id_[:ID_LENGTH]: int(in_bytes(size)) for id_, size in rows}
