"""Finds the containers of the running compose stack that make up one server's scene, and quiets the rest for a run."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lab.errors import StackError
from lab.stacks.docker import Container, Docker
from lab.stacks.http import Http, Locust, Storefront
from lab.stacks.processes import Child
from lab.stacks.servers import SERVERS

ROLES = ("web", "invalidator", "warmer", "locust", "probe")
PORTS = {"server": 6379, "web": 8000, "invalidator": 9102, "locust": 8089, "control": 8080}
LEASE_S = 60.0


@dataclass(frozen=True)
class ServerContainers:
    """The part of the running stack that belongs to one server, and the rest of it.

    `replaced`: the services that were started again, because this machine could not reach their containers.
    """

    docker: Docker
    server: str
    running: tuple[Container, ...]
    replaced: tuple[str, ...] = ()

    @cached_property
    def containers(self) -> dict[str, Container]:
        """Containers by service; of a scaled service any one."""
        return {container.service: container for container in self.running}

    def of(self, role: str) -> Container:
        """The container of a role: ``server``, ``web``, ``invalidator``, ``warmer``, ``locust`` or ``probe``."""
        return self.containers[self.server if role == "server" else f"{role}-{self.server}"]

    def address(self, role: str, server: str | None = None) -> str:
        """Base URL of a role's HTTP interface, as seen from here. Raises `StackError` where it cannot be reached."""
        service = role if role in self.containers else f"{role}-{server or self.server}"
        host, port = self.containers[service].reach(PORTS[role])
        return f"http://{host}:{port}"

    @staticmethod
    def server_url(container: Container) -> str:
        """URL of a server in its container, as seen from here. Raises `StackError` where it cannot be reached."""
        host, port = container.reach(PORTS["server"])
        return f"redis://{host}:{port}/0"

    def has(self, service: str) -> bool:
        """True if the stack has this service."""
        return service in self.containers

    def env(self, service: str) -> dict[str, str]:
        """The environment that a service was started with."""
        return self.containers[service].env

    def others(self) -> list[str]:
        """The other servers of the stack whose storefront and load run."""
        names = [service.removeprefix("web-") for service in self.containers if service.startswith("web-")]
        return [name for name in names if name != self.server and f"locust-{name}" in self.containers]

    def by_part(self) -> dict[str, list[Container]]:
        """Containers by part of the scene, as a run's records name the parts.

        All containers of other servers are one part. The watchers (Prometheus, Tempo, …) are parts of their own.
        """
        parts = {"store": [self.of("server")], "probe-containers": [self.of("probe")]}
        parts |= {role: [self.of(role)] for role in ROLES if role != "probe"}
        mine = {container.id for found in parts.values() for container in found}
        others = self.others()
        for container in self.running:
            if container.id not in mine:
                service = container.service
                other = service in others or service.endswith(tuple(f"-{name}" for name in others))
                parts.setdefault("other servers" if other else service, []).append(container)
        return parts


def find_containers(server: str, docker: Docker | None = None) -> ServerContainers:
    """The running stack. Raises `StackError` when it is not up, or a container of the server is missing or unhealthy.

    Containers that a run talks to, but that this machine cannot reach, are started again with a port on 127.0.0.1
    (`Docker.publish`).
    """
    docker = docker or Docker()
    scene = ServerContainers(docker, server, tuple(docker.containers()))
    if server not in scene.containers:
        profile = SERVERS[server].profile
        option = f" --profile {profile}" if profile else ""
        raise StackError(f"{server} is not part of the running stack: docker compose{option} up -d")
    for service in (server, *(f"{role}-{server}" for role in ROLES)):
        if service not in scene.containers:
            raise StackError(f"{service} does not run: docker compose up -d {service}")
        if scene.containers[service].health == "unhealthy":
            raise StackError(f"{service} is unhealthy: docker compose logs --tail 20 {service}")
    return _within_reach(scene)


def _within_reach(scene: ServerContainers) -> ServerContainers:
    """The scene with everything that a run talks to within reach. Containers out of reach are replaced by new ones."""
    wanted = {"server": scene.server, **{role: f"{role}-{scene.server}" for role in ("web", "invalidator")}}
    asked = {service: PORTS[role] for role, service in wanted.items()}
    asked |= {f"web-{other}": PORTS["web"] for other in scene.others()}
    cut_off = {
        service: port for service, port in asked.items() if not scene.containers[service].reachable(port)
    }
    if not cut_off:
        return scene
    scene.docker.publish(cut_off, scene.of("server").files)
    found = ServerContainers(scene.docker, scene.server, tuple(scene.docker.containers()), tuple(cut_off))
    for service, port in asked.items():
        found.containers[service].reach(port)
    return found


class StoryPause:
    """Pauses the control page's story by a lease. If the lab dies, the story goes on after a minute."""

    def __init__(self, control: Http, lease_s: float = LEASE_S) -> None:
        self._control = control
        self._lease_s = lease_s
        self._over = threading.Event()
        self._error: StackError | None = None
        self._ask()
        threading.Thread(target=self._renew, name="story-pause", daemon=True).start()

    def _ask(self) -> None:
        self._control.ask("POST", "/api/pause", {"seconds": self._lease_s})

    def _renew(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            try:
                self._ask()
            except StackError as error:
                self._error = error
                return

    def check(self) -> None:
        """Raise `StackError` if the lease could not be renewed."""
        if self._error:
            raise self._error

    def end(self) -> None:
        """Let the story go on."""
        self._over.set()
        self._control.ask("POST", "/api/resume", {})


class Watch:
    """Learns from the engine's events when a container ends, without polling."""

    def __init__(self, docker: Docker, containers: list[Container], logs: Path) -> None:
        filters = [word for c in containers for word in ("--filter", f"container={c.id}")]
        self._services = {container.id: container.service for container in containers}
        self._expected: dict[str, int] = {}
        self._ended: str | None = None
        self._child = Child(
            "docker events",
            ["docker", "events", *filters, "--filter", "event=die", "--format", "{{json .}}"],
            logs / "docker-events.log",
            pipe=True,
        )
        threading.Thread(target=self._listen, name="docker-events", daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(ValueError):  # the pipe was closed while we read: nobody listens any more
            for line in self._child.lines():
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
            identity = str(event.get("id") or event["Actor"]["ID"])
            code = event.get("Actor", {}).get("Attributes", {}).get("exitCode", "unknown")
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if self._expected.get(identity, 0) > 0:
            self._expected[identity] -= 1
        elif identity in self._services:
            service = self._services[identity]
            self._ended = (
                f"{service} ended unexpectedly (exit code {code}): docker compose logs --tail 20 {service}"
            )

    def expect(self, container: Container) -> None:
        """Announce that a container is about to be restarted, so that its next end is no error."""
        self._expected[container.id] = self._expected.get(container.id, 0) + 1

    def check(self) -> None:
        """Raise `StackError` if a container has ended, or the stream of events has."""
        if self._ended:
            raise StackError(self._ended)
        self._child.check()

    def close(self) -> None:
        """Stop listening."""
        self._child.stop()


def hold_growth(scene: ServerContainers, server: str) -> Callable[[], None]:
    """Stop a server's warmer at the entries that are there. Returns a function that lets it go on."""
    with contextlib.closing(Storefront(f"web-{server}", scene.address("web", server))) as web:
        was = web.ask("GET", "/settings/warming")
        each = int(scene.env(f"web-{server}").get("APP_FRAGMENTS_PER_USER", "20"))
        web.fill(min(was["target_keys"], was["users"] * each))

    def go_on() -> None:
        with contextlib.closing(Storefront(f"web-{server}", scene.address("web", server))) as web:
            web.fill(was["target_keys"], was["keys_per_second"])

    return go_on


def hold_load(scene: ServerContainers, server: str) -> Callable[[], None]:
    """Stop a server's load. Returns a function that starts it again."""
    with contextlib.closing(Locust(f"locust-{server}", scene.address("locust", server))) as locust:
        was = locust.pause()

    def go_on() -> None:
        with contextlib.closing(Locust(f"locust-{server}", scene.address("locust", server))) as locust:
            locust.resume(was)

    return go_on
