"""`make up` and `make down`: `docker compose up` and `down`, after a look at the machine and at whose scene it is.

    python3 -m lab.scene.up            COMPOSE_PROFILES=valkey python3 -m lab.scene.up
    python3 -m lab.scene.up down       containers, volumes, network

Like `lab.scene.preflight` it needs only the standard library, docker, and Python 3.9 or newer. Exit code 0, or 3
when something is missing or does not become healthy (what and why is printed), or 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from lab import ROOT
from lab.scene import engine
from lab.scene.preflight import examine, whose
from lab.server.checks import ask

STACK_BROKE, INTERRUPTED = 3, 130
WAIT_SECONDS = 300
FROM_BUNDLE = ROOT / ".from-bundle"
"""A file that install.sh leaves: no image is built or fetched here."""


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
    """One line for each container that is not as it should be, with the last thing that it or its health check said."""
    lines = []
    for container in containers():
        state = container["State"]
        health = container.get("Health") or state
        code = container.get("ExitCode")
        if state in ("restarting", "exited") and code != 0:  # its health is then that of a moment ago
            health = f"ends with code {code}{' again and again' if state == 'restarting' else ''}"
            last = log_of(container["Name"])
        elif state in ("created", "exited") or health in ("healthy", "running"):
            continue  # it waits for another one, or has done its work
        else:
            _, said = ask("docker", "inspect", "--format", "{{json .State.Health}}", container["Name"])
            log = (json.loads(said) or {}).get("Log") or [] if said.startswith("{") else []
            last = log[-1]["Output"] if log else ""
        last = " ".join(last.split())[:200]
        lines.append(f"{container['Service']}: {health}{': ' + last if last else ''}")
    return lines


def log_of(name: str) -> str:
    """The last line that a container wrote to stdout or stderr."""
    done = subprocess.run(
        ["docker", "logs", "--tail", "1", name], check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def images() -> tuple[str, ...]:
    """Options of `docker compose up`: build the lab's image, or, after an installation from a bundle, fetch none."""
    return ("--no-build", "--pull", "never") if FROM_BUNDLE.exists() else ("--build",)


def start() -> int:
    """Do all of `make up`. Returns the exit code."""
    results = examine()
    for result in results:
        print(f"{'ok  ' if result.ok else 'MISS'} {result.what}: {result.detail}", flush=True)
    if not all(result.ok for result in results):
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
    failed = compose("up", *images(), "--detach", "--wait", "--wait-timeout", str(WAIT_SECONDS))
    ill = complaints()
    if failed or ill:
        for line in ill:
            print(line, file=sys.stderr)
        print(
            "lab: not everything is healthy: see above. `docker compose logs SERVICE` tells more.",
            file=sys.stderr,
        )
        return STACK_BROKE
    return compose("exec", "-T", "welcome", "python", "-m", "lab.scene.door", "banner")


def down() -> int:
    """Remove the scene of this folder, and nothing of another folder's. Returns the exit code."""
    scene = whose(ROOT)
    if not scene.ok:
        print(f"lab: nothing was removed: {scene.detail}", file=sys.stderr)
        return STACK_BROKE
    return compose("--profile", "*", "down", "--volumes", "--remove-orphans")


if __name__ == "__main__":
    try:
        sys.exit(down() if sys.argv[1:] == ["down"] else start())
    except KeyboardInterrupt:
        print("\nlab: interrupted; make down takes down what was started.", file=sys.stderr)
        sys.exit(INTERRUPTED)
