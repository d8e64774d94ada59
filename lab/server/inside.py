"""The container `lab` of compose.yaml: the lab's commands, next to the servers of the scene that is up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab import ROOT
from lab.errors import StackError

NATIVE, COMPOSE = "native", "compose"
STACK_HELP = (
    "native: processes of this machine. compose: in the container `lab`, where it is the default, on a server of the "
    "running scene."
)
CONTROL = "LAB_SCENE"
"""The variable of the service `lab` that has the control page's address; elsewhere it is not set."""


def is_inside() -> bool:
    """Return True in the container `lab`, next to the scene's servers."""
    return CONTROL in os.environ


def typed() -> str:
    """Return the first words of the lab's commands as the person types them."""
    return "docker compose run --rm lab" if is_inside() else "bin/lab"


def chosen(stack: str | None) -> str:
    """Return the requested stack, or the default: compose inside the scene, else native."""
    return stack or (COMPOSE if is_inside() else NATIVE)


def is_elsewhere(stack: str) -> bool:
    """Return True if this is the scene's stack, and this process runs outside of it."""
    return stack == COMPOSE and not is_inside()


def as_seen(path: Path) -> Path:
    """Return a path as the person finds it: absolute, or inside the scene relative to the lab's folder."""
    path = path.resolve()
    return path.relative_to(ROOT) if is_inside() and path.is_relative_to(ROOT) else path


def enter(arguments: list[str]) -> None:
    """Become `docker compose run --rm lab ARGUMENTS`, which carries out the command next to the scene's servers.

    Does not return. Files of the run belong to the person who typed the command. Raises `StackError` without docker.
    """
    words = ["docker", "compose", "run", "--rm", "--use-aliases"]
    words += [] if sys.stdin.isatty() else ["--no-TTY"]
    if hasattr(os, "getuid"):
        words += ["--user", f"{os.getuid()}:{os.getgid()}"]
    os.chdir(ROOT)
    sys.stdout.flush()
    try:
        os.execvp(words[0], [*words, "lab", *arguments])
    except OSError as error:
        raise StackError(
            f"docker cannot be started: {error.strerror}. Without --stack compose the lab needs none."
        ) from None
