"""The `docker` command, with errors of one line."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.errors import StackError

NO_DOCKER = "there is no docker on this machine. Install Docker; native runs (`bin/lab run ID`) need none."
NO_COMPOSE = (
    "this docker has no compose plugin. Install Docker Compose v2; native runs (`bin/lab run ID`) need none."
)
DOCKER_S = 60.0


class Docker:
    """The `docker` command. Errors are one line."""

    def __init__(self, folder: Path = ROOT) -> None:
        self._folder = folder

    def ask(self, *words: str, seconds: float = DOCKER_S) -> str:
        """Return the stdout of `docker WORDS`. Raises `StackError` when docker is missing, fails or takes too long."""
        try:
            done = subprocess.run(
                ["docker", *words],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise StackError(NO_DOCKER) from None
        except OSError as error:
            raise StackError(f"docker cannot be started: {error.strerror}.") from error
        except subprocess.TimeoutExpired:
            raise StackError(f"docker {words[0]} does not answer within {seconds:g} s.") from None
        if done.returncode:
            raise StackError(_complaint(words, done.stderr or done.stdout))
        return done.stdout


def rows(text: str) -> list[dict[str, Any]]:
    """Return the rows of `docker compose ps` in JSON: an object a line, or before Compose 2.21 a single array."""
    try:
        if text.lstrip().startswith("["):
            return list(json.loads(text))
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise StackError(f"docker compose ps prints something unexpected: {error}") from error


def _complaint(words: tuple[str, ...], output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if words[0] == "compose" and re.search(
        r"not a docker command|unknown command|unknown (shorthand )?flag", output
    ):
        return NO_COMPOSE
    if re.search(r"Cannot connect to the Docker daemon|permission denied|error during connect", output):
        return f"docker does not answer: {lines[0]}"
    return f"docker {' '.join(words[:2])}: {lines[-1] if lines else 'failed without a message'}"
