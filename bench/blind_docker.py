"""What docker tells a participant of a blind session on compose, for the search for a cause's name and for outlines.

Read are `docker inspect`, `docker top` and `docker logs` of every container of the stack, the session's too.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

from bench.blind_seal import Sources, alike
from lab.stacks.docker import Docker

VARIES = re.compile(r"\b[0-9a-f]{12,}\b")
"""Identities: of containers, of networks' ends, of one-off names."""
LASTING_S = 1.0
TOP_COLUMNS = 7
"""Of `docker top`, before the command."""


def _containers(docker: Docker, project: str) -> list[dict[str, Any]]:
    label = f"label=com.docker.compose.project={project}"
    found = docker.ask("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
    return list(json.loads(docker.ask("inspect", *found)))


def gather(docker: Docker, project: str) -> Sources:
    """All of it, by container and question."""
    sources = {}
    for container in _containers(docker, project):
        name, identity = container["Name"], container["Id"]
        sources[f"inspect of {name}"] = json.dumps(container)
        for question in ("top", "logs"):
            said = subprocess.run(["docker", question, identity], capture_output=True, check=False)
            # logs are on both; one that is stopped has no processes, and docker says so
            sources[f"{question} of {name}"] = (said.stdout + said.stderr).decode("utf-8", "replace")
    return sources


def _own(docker: Docker, container: dict[str, Any]) -> set[str]:
    rows = docker.ask("top", container["Id"]).splitlines() if container["State"]["Running"] else []
    return {row.split(None, TOP_COLUMNS)[-1] for row in rows if "python" in row and "health" not in row}


def outline(docker: Docker, project: str) -> list[str]:
    """What must be the same whatever the cause: each container, how it was made and limited, and what it runs.

    Of processes the lab's own; without health checks and whatever else comes and goes.
    """
    lines = []
    found = _containers(docker, project)
    earlier = {container["Id"]: _own(docker, container) for container in found}
    time.sleep(LASTING_S)
    for container in found:
        container["Config"]["Env"].sort()  # Compose puts them in a different order each time
        made = {part: container[part] for part in ("Path", "Args", "Config", "HostConfig")}
        made["networks"] = [end["Aliases"] for end in container["NetworkSettings"]["Networks"].values()]
        running = container["State"]["Running"]
        words = sorted(earlier[container["Id"]] & _own(docker, container))
        text = json.dumps([container["Name"], running, made, words], sort_keys=True)
        lines.append(alike(VARIES.sub("", text)))
    return sorted(lines)
