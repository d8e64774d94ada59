"""`make up` and `make down`: `docker compose up` and `down`, after a check of the machine and of the scene's owner.

    python3 -m lab.scene.up            COMPOSE_PROFILES=valkey python3 -m lab.scene.up
    python3 -m lab.scene.up down       containers, volumes, network

Like `lab.scene.preflight` it needs only the standard library, docker, and Python 3.9 or newer. Exit code 0, or 3
when something is missing or does not become healthy (the reason is printed), or 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from lab import ROOT
from lab.scene import engine
from lab.scene.preflight import check_project, examine
from lab.server.checks import ask

STACK_BROKE, INTERRUPTED = 3, 130
WAIT_SECONDS = 300
FROM_BUNDLE = ROOT / ".from-bundle"
"""A file that install.sh leaves: no image is built or fetched here."""


def compose(*arguments: str) -> int:
    """Run docker compose on the lab's file, with its output on the terminal. Returns the exit code."""
    return subprocess.run(["docker", "compose", *arguments], cwd=ROOT, check=False).returncode


def containers() -> list[dict[str, Any]]:
    """Return the rows of `docker compose ps`, which prints an object a line (newer versions) or one list (older)."""
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
    """Return a line for each container that failed or is unhealthy, with its last output or its health check's."""
    lines = []
    for container in containers():
        state = container["State"]
        health = container.get("Health") or state
        code = container.get("ExitCode")
        if state in ("restarting", "exited") and code != 0:  # its health is then that of a moment ago
            health = f"ends with code {code}{' again and again' if state == 'restarting' else ''}"
            last = log_of(container["Name"])
        elif state in ("created", "exited") or health in ("healthy", "running"):
            continue  # healthy, or it waits for another container, or has done its work
        else:
            _, output = ask("docker", "inspect", "--format", "{{json .State.Health}}", container["Name"])
            log = (json.loads(output) or {}).get("Log") or [] if output.startswith("{") else []
            last = log[-1]["Output"] if log else ""
        last = " ".join(last.split())[:200]
        lines.append(f"{container['Service']}: {health}{': ' + last if last else ''}")
    return lines


def log_of(name: str) -> str:
    """Return the last line that a container wrote to stdout or stderr."""
    done = subprocess.run(
        ["docker", "logs", "--tail", "1", name], check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def images() -> tuple[str, ...]:
    """Return options of `docker compose up`: build the image, or after an installation from a bundle fetch none."""
    return ("--no-build", "--pull", "never") if FROM_BUNDLE.exists() else ("--build",)


def start() -> int:
    """Carry out `make up`. Returns the exit code."""
    results = examine()
    for result in results:
        print(f"{'ok  ' if result.ok else 'MISS'} {result.name}: {result.detail}", flush=True)
    if not all(result.ok for result in results):
        print("lab: nothing was started.", file=sys.stderr)
        return STACK_BROKE
    found = engine.detect()
    if found and (remedy := engine.adapt(ROOT, found)):
        print(f"lab: nothing was started: {remedy}", file=sys.stderr)
        return STACK_BROKE
    if os.environ.get("COMPOSE_FILE") and engine.is_adapted(
        ROOT
    ):  # then Compose does not look for it by itself
        os.environ["COMPOSE_FILE"] += os.pathsep + engine.OVERLAY
    failed = compose("up", *images(), "--detach", "--wait", "--wait-timeout", str(WAIT_SECONDS))
    unhealthy = complaints()
    if failed or unhealthy:
        for line in unhealthy:
            print(line, file=sys.stderr)
        print(
            "lab: not everything is healthy: see above. `docker compose logs SERVICE` shows more.",
            file=sys.stderr,
        )
        return STACK_BROKE
    return compose("exec", "-T", "welcome", "python", "-m", "lab.scene.door", "banner")


def down() -> int:
    """Remove the scene of this folder, and nothing of another folder's. Returns the exit code."""
    scene = check_project(ROOT)
    if not scene.ok:
        print(f"lab: nothing was removed: {scene.detail}", file=sys.stderr)
        return STACK_BROKE
    return compose("--profile", "*", "down", "--volumes", "--remove-orphans")


if __name__ == "__main__":
    try:
        sys.exit(down() if sys.argv[1:] == ["down"] else start())
    except KeyboardInterrupt:
        print("\nlab: interrupted; make down removes the started containers.", file=sys.stderr)
        sys.exit(INTERRUPTED)
