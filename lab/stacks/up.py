"""`make up`: check the machine, start the stack, wait until all of it is healthy, print where things are.

    python3 -m lab.stacks.up            COMPOSE_PROFILES=valkey python3 -m lab.stacks.up

Like `lab.stacks.preflight` it needs only the standard library, docker, and Python 3.9 or newer. Exit code 0, or 3
when something is missing or does not become healthy (what and why is printed), or 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import Any

from lab import ROOT
from lab.stacks import engine
from lab.stacks.asking import ID_LENGTH, MEMORY, ask, memory_by_id
from lab.stacks.preflight import examine, read_env_file, wanted_profiles
from lab.stacks.servers import IN_COMPOSE

STACK_BROKE, INTERRUPTED = 3, 130
WAIT_SECONDS = 300
SAMPLES = 3
BUDGET = ROOT / "docs" / "scene.json"
"""Figures of `python -m bench.scene --write docs/scene.json`."""
NOT_METERED = "idle: not measured, because this engine keeps all containers in one cgroup"
FROM_BUNDLE = ROOT / ".from-bundle"
"""A file that install.sh leaves: no image is built or fetched here."""

ADDRESSES = (
    ("CONTROL_PORT", "control page", "begin here"),
    ("GRAFANA_PORT", "Grafana", "dashboards; traces in Explore"),
    ("PROMETHEUS_PORT", "Prometheus", "queries, targets, alerts"),
    ("TEMPO_PORT", "Tempo", "the traces' API; Grafana shows them"),
)


def compose(*arguments: str) -> int:
    """Run docker compose on the lab's file, with its output on the terminal. Returns the exit code."""
    return subprocess.run(["docker", "compose", *arguments], cwd=ROOT, check=False).returncode


def containers() -> list[dict[str, Any]]:
    """The rows of `docker compose ps`, which prints an object a line (newer versions) or one list (older)."""
    done = subprocess.run(
        ["docker", "compose", "ps", "--all", "--format", "json"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    text = done.stdout.strip()
    if text.startswith("["):
        found: list[dict[str, Any]] = json.loads(text)
        return found
    return [json.loads(line) for line in text.splitlines()]


def complaints() -> list[str]:
    """One line for each container that is not running and healthy, with the last thing its health check said."""
    lines = []
    for container in containers():
        health = container.get("Health") or container["State"]
        if health in ("healthy", "running"):
            continue
        _, said = ask("docker", "inspect", "--format", "{{json .State.Health}}", container["Name"])
        log = (json.loads(said) or {}).get("Log") or [] if said.startswith("{") else []
        last = " ".join(log[-1]["Output"].split())[:200] if log else ""
        lines.append(f"{container['Service']}: {health}{': ' + last if last else ''}")
    return lines


def memory() -> dict[str, int]:
    """Bytes in use by each service's containers."""
    service = {container["ID"][:ID_LENGTH]: container["Service"] for container in containers()}
    if not service:
        return {}
    _, said = ask("docker", "stats", "--no-stream", "--format", MEMORY, *service, seconds=60)
    used: dict[str, int] = {}
    for id_, taken in memory_by_id(said).items():
        used[service[id_]] = used.get(service[id_], 0) + taken
    return used


def cores() -> float:
    """Processor cores that all containers use together: the mean of a few samples."""
    samples = []
    for _ in range(SAMPLES):
        _, said = ask("docker", "stats", "--no-stream", "--format", "{{.CPUPerc}}", *names(), seconds=60)
        samples.append(sum(float(share) for share in re.findall(r"^([\d.]+)%", said, re.MULTILINE)) / 100)
    return sum(samples) / len(samples)


def idle() -> str:
    """What the containers use together before there is any load, and which use the most memory."""
    used = memory()
    largest = sorted(used.items(), key=lambda item: -item[1])[:4]
    return (
        f"idle: {cores():.2f} of a core, {sum(used.values()) / 1e9:.2f} GB of memory; most of it "
        + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in largest)
    )


def names() -> list[str]:
    """The containers' names."""
    return [container["Name"] for container in containers()]


def incident_budget() -> str:
    """What the scene needs in the middle of the incident, as recorded in `BUDGET`; empty if that cannot be read."""
    try:
        kept = json.loads(BUDGET.read_text(encoding="utf-8"))
        return (
            f"\nin the middle of the incident (measured {kept['date']} on {kept['cores']} cores): "
            f"{kept['edge_cores']:.2f} cores, of which the observers {kept['edge_watchers_cores']:.2f}; "
            f"{kept['edge_gb']:.2f} GB of memory; "
            f"{kept['disk_gb_per_hour']:.2f} GB of disk an hour for traces and metrics, until make down"
        )
    except (OSError, ValueError, KeyError):
        return ""


def addresses(settings: dict[str, str]) -> list[str]:
    """A line for each page that a person may open."""
    profiles = wanted_profiles(settings)
    rows = [
        *ADDRESSES,
        *(
            (server.locust_port, f"Locust, {server.title}", "its load")
            for server in IN_COMPOSE
            if not server.profile or server.profile in profiles
        ),
    ]
    return [f"  {what:<18} http://127.0.0.1:{settings[name]:<6} {why}" for name, what, why in rows]


def create() -> int:
    """Build or fetch the images and create the containers, without starting them. Returns Compose's exit code.

    After an installation from a bundle the images are loaded already, and none is built or fetched.
    """
    if FROM_BUNDLE.exists():
        return compose("create", "--no-build", "--pull", "never")
    return compose("build") or compose("create")


def start() -> int:
    """Do all of `make up`. Returns the exit code."""
    findings = examine()
    for finding in findings:
        print(f"{'ok  ' if finding.ok else 'MISS'} {finding.what}: {finding.detail}", flush=True)
    if not all(finding.ok for finding in findings):
        print("lab: nothing was started.", file=sys.stderr)
        return STACK_BROKE
    found = engine.detect()
    if found and (mend := engine.adapt(ROOT, found)):
        print(f"lab: nothing was started: {mend}", file=sys.stderr)
        return STACK_BROKE
    if os.environ.get("COMPOSE_FILE") and engine.is_adapted(
        ROOT
    ):  # then Compose does not look for it by itself
        os.environ["COMPOSE_FILE"] += os.pathsep + engine.OVERLAY
    # Images are fetched and built first, so that the time printed is the stack's own.
    if create():
        print("lab: the images could not be built or fetched; see the message above.", file=sys.stderr)
        return STACK_BROKE
    began = time.monotonic()
    failed = compose("up", "--detach", "--wait", "--wait-timeout", str(WAIT_SECONDS))
    took = time.monotonic() - began
    ill = complaints()
    if failed or ill:
        for line in ill:
            print(line, file=sys.stderr)
        print("lab: not everything is healthy. `docker compose logs SERVICE` tells more.", file=sys.stderr)
        return STACK_BROKE
    settings = {**(read_env_file(ROOT / ".env") or {}), **os.environ}
    print(f"\nhealthy after {took:.0f} s: {len({row['Service'] for row in containers()})} services\n")
    print("\n".join(addresses(settings)))
    print(f"\n{idle() if not found or found.meters else NOT_METERED}{incident_budget()}")
    print("make down stops everything and leaves nothing behind.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(start())
    except KeyboardInterrupt:
        print("\nlab: interrupted; make down takes down what was started.", file=sys.stderr)
        sys.exit(INTERRUPTED)
