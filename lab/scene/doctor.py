"""Checks this machine. A failed check names the command that repairs it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from lab import ROOT
from lab.scene import preflight
from lab.server.checks import CheckResult
from lab.server.processes import NEEDED_CORES
from lab.server.servers import SERVERS, version_of

WANTED = ("requirements/stack.in", "requirements/lab.in")
MEMORY_GB = 1.5
DISK_GB = 0.5
BUSY_MOST = 0.25


def examine() -> list[CheckResult]:
    """Check everything that a native run needs, and everything that only the stack in containers needs.

    Takes about a second; changes nothing.
    """
    native = [_python(), packages(), *_servers(), _cores(), _memory(), _disk(), _quiet()]
    return [*native, *_containers()]


def outcome(results: Sequence[CheckResult]) -> str:
    """Return the results in a sentence: ready for everything, ready without Docker, or not ready."""
    if not all(result.ok for result in results if result.needed):
        return "Not ready: repair the lines marked MISS first."
    if all(result.ok for result in results):
        return "Ready."
    return "Ready for runs without Docker. Lines marked opt may stay as they are."


def _python() -> CheckResult:
    oldest = (3, 12) if sys.platform == "darwin" else (3, 11)  # as bin/lab has it; docs/platforms.md says why
    ok = oldest <= sys.version_info[:2] <= (3, 14)
    return CheckResult(
        "Python", ok, platform.python_version() + ("" if ok else ": install 3.12, 3.13 or 3.14")
    )


def packages(root: Path = ROOT) -> CheckResult:
    """Check that every package that the lab requires is installed."""
    wanted = "".join((root / name).read_text(encoding="utf-8") for name in WANTED)
    names = re.findall(r"^[A-Za-z0-9][A-Za-z0-9._-]*", wanted, re.MULTILINE)
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        return CheckResult(
            "packages", False, f"{', '.join(missing)} missing: remove .venv and run bin/lab again"
        )
    return CheckResult("packages", True, "installed from requirements/lab.lock")


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _servers() -> list[CheckResult]:
    results = []
    for server in SERVERS.values():
        binary = server.find()
        detail = version_of(binary) if binary else server.install
        results.append(
            CheckResult(f"server {server.name}", binary is not None, detail, needed=server.name == "embedded")
        )
    return results


def _cores() -> CheckResult:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return CheckResult(
        "cores",
        cores >= NEEDED_CORES,
        f"{cores}; a run needs {NEEDED_CORES}: one for the server, one for all other processes",
    )


def _memory() -> CheckResult:
    free = psutil.virtual_memory().available / 1e9
    return CheckResult(
        "memory",
        free >= MEMORY_GB,
        f"{free:.1f} GB available; a run with 200 000 keys needs {MEMORY_GB:g} GB",
    )


def _disk() -> CheckResult:
    place = Path.cwd()
    free = shutil.disk_usage(place).free / 1e9
    try:
        with tempfile.TemporaryFile(dir=place):
            writable = True
    except OSError:
        writable = False
    detail = f"{free:.1f} GB free in {place}" if writable else f"{place} cannot be written: use --out"
    return CheckResult("disk", free >= DISK_GB and writable, detail)


def _quiet() -> CheckResult:
    busy = psutil.cpu_percent(interval=0.5) / 100
    more = "" if busy <= BUSY_MOST else ": close other programs, or runs will not be valid"
    return CheckResult("a quiet machine", busy <= BUSY_MOST, f"{busy:.0%} busy{more}", needed=False)


def _containers() -> list[CheckResult]:
    results = preflight.examine()
    for number, result in enumerate(results):
        more = "" if result.ok else " (only make up needs it)"
        results[number] = replace(result, needed=False, detail=result.detail + more)
    return results
