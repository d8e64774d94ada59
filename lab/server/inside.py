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
    """True in the container `lab`, next to the scene's servers."""
    return CONTROL in os.environ


def typed() -> str:
    """How the lab's commands begin where the person types them."""
    return "docker compose run --rm lab" if is_inside() else "bin/lab"


def chosen(stack: str | None) -> str:
    """The stack that was asked for, or else the one that there is: natively, or inside the scene."""
    return stack or (COMPOSE if is_inside() else NATIVE)


def is_elsewhere(stack: str) -> bool:
    """True if this stack is that of the scene, and this process is not inside."""
    return stack == COMPOSE and not is_inside()


def as_seen(path: Path) -> Path:
    """A path as the person finds it: whole, or inside the scene from the lab's folder on."""
    path = path.resolve()
    return path.relative_to(ROOT) if is_inside() and path.is_relative_to(ROOT) else path


def enter(arguments: list[str]) -> None:
    """Become `docker compose run --rm lab ARGUMENTS`, which does the command next to the scene's servers.

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
