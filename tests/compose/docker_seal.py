"""What docker tells a participant of a blind session on compose, to be searched for a cause's name and for outlines.

It reads `docker inspect`, `docker top` and `docker logs` of every container of the stack, including the session's.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

from lab.stacks.docker import Docker
from tests.lab.blind.seal import Sources, alike

VARIES = re.compile(r"\b[0-9a-f]{12,}\b")
"""Ids that differ from start to start: of containers, of network endpoints, in one-off names."""
LASTING_S = 1.0
TOP_COLUMNS = 7
"""Columns of `docker top` before the command."""


def _containers(docker: Docker, project: str) -> list[dict[str, Any]]:
    label = f"label=com.docker.compose.project={project}"
    found = docker.ask("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
    return list(json.loads(docker.ask("inspect", *found)))


def gather(docker: Docker, project: str) -> Sources:
    """Everything that docker tells: question and container → text."""
    sources = {}
    for container in _containers(docker, project):
        name, identity = container["Name"], container["Id"]
        sources[f"inspect of {name}"] = json.dumps(container)
        for question in ("top", "logs"):
            said = subprocess.run(["docker", question, identity], capture_output=True, check=False)
            # logs come on both streams; for a stopped container `docker top` prints an error
            sources[f"{question} of {name}"] = (said.stdout + said.stderr).decode("utf-8", "replace")
    return sources


def _lab_processes(docker: Docker, container: dict[str, Any]) -> set[str]:
    rows = docker.ask("top", container["Id"]).splitlines() if container["State"]["Running"] else []
    return {row.split(None, TOP_COLUMNS)[-1] for row in rows if "python" in row and "health" not in row}


def outline(docker: Docker, project: str) -> list[str]:
    """What must be the same whatever the cause: each container, how it was made and limited, and what it runs.

    Of the processes only the lab's own lasting ones count, not health checks and others that come and go.
    """
    lines = []
    found = _containers(docker, project)
    earlier = {container["Id"]: _lab_processes(docker, container) for container in found}
    time.sleep(LASTING_S)
    for container in found:
        container["Config"]["Env"].sort()  # Compose puts them in a different order each time
        made = {part: container[part] for part in ("Path", "Args", "Config", "HostConfig")}
        made["networks"] = [end["Aliases"] for end in container["NetworkSettings"]["Networks"].values()]
        running = container["State"]["Running"]
        words = sorted(earlier[container["Id"]] & _lab_processes(docker, container))
        text = json.dumps([container["Name"], running, made, words], sort_keys=True)
        lines.append(alike(VARIES.sub("", text)))
    return sorted(lines)
