"""Evidence for when a command of the Docker Engine hangs. Otherwise the cause is lost with the machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

PATIENCE_SECONDS = 20
LOG_LINES = 25
SOON_FORGOTTEN = ("level=info", "deprecated", "does not support")
"""Lines of the engine's log that say nothing about a command that hangs."""


def of_the_engine(environ: Mapping[str, str]) -> str:
    """Containers, processes that cannot end, memory, disk, and the last warnings of an engine that tests started.

    Also makes the engine dump its goroutines: on SIGUSR1 dockerd writes them beside its exec folder.
    """
    parts = [
        "containers:\n" + _said(["docker", "ps", "--all", "--format", "{{.Names}}: {{.Status}}"], environ),
        "processes that wait in the kernel, are stopped, or are dead and not fetched:\n"
        + "\n".join(_stuck()),
        "memory: " + " ".join(Path("/proc/meminfo").read_text().splitlines()[:3]),
        "disk: {0.used} of {0.total} bytes used".format(shutil.disk_usage(Path.home())),
    ]
    host = environ.get("DOCKER_HOST", "")
    folder = Path(host.removeprefix("unix://")).parent
    log = folder / "dockerd.log"
    if host.startswith("unix://") and log.exists():
        _ask_for_goroutines(folder / "dockerd.pid")
        lines = log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if not any(word in line for word in SOON_FORGOTTEN)]
        parts.append(f"{log}:\n" + "\n".join(telling[-LOG_LINES:]))
    return "\n".join(parts)


def _said(command: list[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)} did not answer within {PATIENCE_SECONDS} s either"
    return done.stdout + done.stderr


def _stuck() -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        if rest.split()[0] in "DTZ":
            found.append(f"{head}) {' '.join(rest.split()[:2])}")
    return found


def _ask_for_goroutines(pid_file: Path) -> None:
    try:
        os.kill(int(pid_file.read_text()), signal.SIGUSR1)
    except (OSError, ValueError):
        return
