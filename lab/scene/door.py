"""The first and the last thing that `docker compose up` does: two services of compose.yaml.

    python -m lab.scene.door check       exit code 1, and a line for each fault that would break the scene later
    python -m lab.scene.door welcome     print the addresses, and sleep until SIGTERM
    python -m lab.scene.door banner      print the addresses

Needs only the standard library.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

CONFIGURATION = (Path("/etc/prometheus"), Path("/etc/tempo.yaml"), Path("/etc/grafana"))
"""Paths at which compose.yaml mounts the configuration: the same as in Prometheus, Tempo and Grafana."""
MEMORY_GB = 3.0
"""Memory that the scene needs in the middle of the incident."""


def faults(configuration: tuple[Path, ...] = CONFIGURATION, meminfo: str = "") -> Iterator[str]:
    """Yield a line for each thing that would break the scene later. `meminfo`: the text of /proc/meminfo."""
    if closed := sorted(str(path) for top in configuration for path in _closed(top)):
        yield (
            f"containers may not read {closed[0]}{f' and {len(closed) - 1} more' if closed[1:] else ''}: the lab was "
            "cloned under a strict umask. In its folder: chmod -R go+rX prometheus tempo grafana"
        )
    total_kb = re.search(
        r"MemTotal:\s+(\d+) kB", meminfo or Path("/proc/meminfo").read_text(encoding="ascii")
    )
    if total_kb and (total := int(total_kb[1]) * 1024 / 1e9) < MEMORY_GB:
        yield (
            f"{total:.1f} GB of memory for containers, {MEMORY_GB:g} GB needed: give the engine's machine more "
            "(Docker Desktop: Settings, Resources; Colima: colima start --memory 6)"
        )


def _closed(top: Path) -> Iterator[Path]:
    """Yield the paths at and below `top` that this process may not read."""
    if not os.access(top, os.R_OK | os.X_OK if top.is_dir() else os.R_OK):
        yield top
    elif top.is_dir():
        for path in top.iterdir():
            yield from _closed(path)


def banner(environ: Mapping[str, str] = os.environ) -> str:
    """Return the addresses of the scene's pages, and first steps. `environ`: the variables of the service `control`."""
    rows = [
        ("control page", environ["CONTROL_URL"], "begin here"),
        ("Grafana", environ["CONTROL_GRAFANA_URL"], "dashboards; traces in Explore"),
        ("Prometheus", environ["CONTROL_PROMETHEUS_URL"], "queries, targets, alerts"),
        ("Tempo", environ["CONTROL_TEMPO_URL"], "the traces' API; Grafana shows them"),
    ]
    for row in environ["CONTROL_LOCUST_URLS"].split(","):
        server, _, url = row.strip().partition("=")
        if _runs(f"locust-{server}"):
            rows.append((f"Locust, {server}", url, "its load"))
    pages = "\n".join(f"  {name:<20} {url:<25} {why}".rstrip() for name, url, why in rows)
    return f"""
All is healthy. In your browser:

{pages}

Do this first: open the control page and Grafana side by side. Customers come, keys grow by themselves, and the p99 of a
GET with them. After some minutes choose "index" on the control page, and watch p99 fall. Guide: workshop/README.md.

docker compose down ends it, with --profile "*" if you switched servers on. With -v it also removes the volumes, that
is traces, metrics and settings: without it the next scene begins with those of this one.
"""


def _runs(service: str) -> bool:
    """Return True if the network has a container of this service: a service of an inactive profile has no address."""
    try:
        socket.getaddrinfo(service, None)
    except OSError:
        return False
    return True


def main(verb: str) -> int:
    """Carry out `check`, `welcome` or `banner`. Returns the exit code."""
    if verb == "check":
        found = list(faults())
        for line in found:
            print(f"lab: {line}", file=sys.stderr)
        return 1 if found else 0
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    print(banner(), flush=True)
    if verb == "welcome":
        signal.sigwait(signals)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
