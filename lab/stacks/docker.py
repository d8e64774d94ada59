"""The `docker` command for the compose stack: which containers run, how to reach them, how they are set.

`docker compose ps` finds the containers once. After that plain `docker` is given their ids: it starts ten times faster
than the compose plugin, and does not depend on profiles.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.errors import StackError

NO_DOCKER = (
    "there is no docker on this machine. Install Docker; what runs natively (`bin/lab run ID`) needs none."
)
NO_COMPOSE = (
    "this docker has no compose plugin. Install Docker Compose v2; `bin/lab run ID` natively needs none."
)
NOT_UP = "docker compose is not up: make up"
DOCKER_S = 60.0
CONNECT_S = 0.5
HEALTHY_S = 60
"""Seconds for containers that are started again to become healthy."""


@dataclass(frozen=True)
class Container:
    """A running container of the stack. `pid` is its first process's id, as the engine's host sees it.

    `memory` is its limit in bytes (0: none). `files` are the compose files that it was started with. `gateways`: for
    each of `addresses` that of the engine's machine in the same network.
    """

    id: str
    service: str
    health: str
    pid: int
    env: dict[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    published: dict[int, tuple[str, int]] = field(default_factory=dict)
    project: str = ""
    network: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    memory: int = 0
    files: tuple[str, ...] = ()

    def reach(self, port: int) -> tuple[str, int]:
        """Host and port at which this machine reaches a port of the container.

        On Linux this is the container's own address, which needs no published port and no detour through a proxy.
        Elsewhere, or if that does not answer, it is the published port. Raises `StackError` when neither answers.

        The network of an engine without root, or in a virtual machine, is not this machine's: there the same address
        may be a stranger's. So the container's own address counts only where this machine is its gateway.
        """
        pairs = zip(self.addresses, self.gateways, strict=False) if sys.platform == "linux" else ()
        ways = [(address, port) for address, gateway in pairs if _sender_to(address) == gateway]
        ways += [self.published[port]] if port in self.published else []
        for way in ways:
            try:
                socket.create_connection(way, CONNECT_S).close()
            except OSError:
                continue
            return way
        raise StackError(
            f"port {port} of {self.service} cannot be reached from this machine: "
            "run the lab on the machine of the engine."
        )

    def reachable(self, port: int) -> bool:
        """True if this machine can connect to a port of the container."""
        try:
            self.reach(port)
        except StackError:
            return False
        return True


class Docker:
    """The `docker` command. Errors are one line."""

    def __init__(self, folder: Path = ROOT) -> None:
        self._folder = folder

    def ask(self, *words: str, seconds: float = DOCKER_S) -> str:
        """The stdout of ``docker WORDS``. Raises `StackError` when docker is missing, fails or takes too long."""
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

    def containers(self) -> list[Container]:
        """The stack's running containers. Raises `StackError` when there are none."""
        listed = rows(self.ask("compose", "ps", "--format", "json"))
        ids = [str(row["ID"]) for row in listed if row.get("State") == "running"]
        if not ids:
            raise StackError(NOT_UP)
        return self.inspect(*ids)

    def publish(self, ports: Mapping[str, int], files: Sequence[str]) -> None:
        """Start services of these compose files again, each with one of its ports on a free port of 127.0.0.1.

        For engines whose container addresses cannot be reached from this machine: those in a virtual machine (Docker
        Desktop, Colima, WSL 2), and rootless ones. Raises `StackError` when docker fails.
        """
        services = {service: {"ports": [f"127.0.0.1::{port}"]} for service, port in ports.items()}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as overlay:
            json.dump({"services": services}, overlay)
            overlay.flush()
            words = [
                "up",
                "--detach",
                "--no-build",
                "--no-deps",
                "--wait",
                "--wait-timeout",
                str(HEALTHY_S),
                *services,
            ]
            self.ask("compose", *named(*files, overlay.name), *words, seconds=2 * HEALTHY_S)

    def inspect(self, *ids: str) -> list[Container]:
        """These containers as `docker inspect` describes them."""
        try:
            return [_container(raw) for raw in json.loads(self.ask("inspect", *ids))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StackError(f"docker inspect says something unexpected: {error!r}") from error


def named(*files: str) -> list[str]:
    """The options of `docker compose` that name these compose files.

    A container is replaced by the files that it was started with. With others Compose would make the network anew.
    """
    return [word for file in files for word in ("--file", file)]


def rows(text: str) -> list[dict[str, Any]]:
    """The rows that `docker compose ps` prints as JSON: one object a line, or before Compose 2.21 a single array."""
    try:
        if text.lstrip().startswith("["):
            return list(json.loads(text))
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise StackError(f"docker compose ps says something unexpected: {error}") from error


def _complaint(words: tuple[str, ...], said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if words[0] == "compose" and re.search(
        r"not a docker command|unknown command|unknown (shorthand )?flag", said
    ):
        return NO_COMPOSE
    if re.search(r"Cannot connect to the Docker daemon|permission denied|error during connect", said):
        return f"docker does not answer: {lines[0]}"
    return f"docker {' '.join(words[:2])}: {lines[-1] if lines else 'failed without a message'}"


def _container(raw: dict[str, Any]) -> Container:
    networks = raw["NetworkSettings"]["Networks"] or {}
    joined = [network for network in networks.values() if network.get("IPAddress")]
    ports = raw["NetworkSettings"]["Ports"] or {}
    published = {
        int(inside.partition("/")[0]): (_loopback(ways[0]["HostIp"]), int(ways[0]["HostPort"]))
        for inside, ways in ports.items()
        if ways
    }
    return Container(
        id=raw["Id"],
        service=raw["Config"]["Labels"]["com.docker.compose.service"],
        health=(raw["State"].get("Health") or {}).get("Status", "none"),
        pid=int(raw["State"]["Pid"]),
        env=dict(pair.split("=", 1) for pair in raw["Config"]["Env"] or [] if "=" in pair),
        addresses=tuple(network["IPAddress"] for network in joined),
        gateways=tuple(network.get("Gateway") or "" for network in joined),
        published=published,
        project=raw["Config"]["Labels"].get("com.docker.compose.project", ""),
        network=next(iter(networks), ""),
        image=raw["Config"].get("Image", ""),
        command=tuple(raw["Config"].get("Cmd") or ()),
        memory=int(raw["HostConfig"]["Memory"]),
        files=_files(raw["Config"]["Labels"].get("com.docker.compose.project.config_files", "")),
    )


def _sender_to(address: str) -> str:
    """This machine's own address from which it would send to another; empty if there is no way. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        try:
            unused.connect((address, 9))
        except OSError:
            return ""
        return str(unused.getsockname()[0])


def _files(label: str) -> tuple[str, ...]:
    """The compose files named in a container's label, without those that no longer exist (an overlay)."""
    return tuple(file for file in label.split(",") if Path(file).is_file())


def _loopback(address: str) -> str:
    return "127.0.0.1" if address in ("", "0.0.0.0") else "::1" if address == "::" else address
