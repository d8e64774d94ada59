"""The fault matrix on the compose stack: faults of containers, and what alerts and health checks said of them.

It works on the stack that `make up` has started. It stops the load and the growth of all servers, pauses the autopilot
of the control page, and puts everything back at the end, whatever happened to the containers meanwhile.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import redis

from bench.fault_cell import Plan
from bench.fault_kinds import Fault
from bench.fault_service import (
    REQUEST_S,
    ask,
    numbers_on,
    status_of,
    switch,
    users_in_outbox,
    wait_for,
    warm,
)
from lab.errors import StackError
from lab.stacks.containers import (
    PORTS,
    AutopilotPause,
    find_containers,
    hold_growth,
    hold_load,
)
from lab.stacks.docker import Container, Docker
from lab.stacks.http import Http, Locust, Storefront

STRATEGIES = ("scan", "index", "generation")
PLAN = Plan(events=640, rate=20.0, before_s=2.0, fault_s=30.0)
"""Alerts wait 10 to 20 s before they fire, so a fault lasts longer than that."""
WHOLE_S = 90.0
"""How long the containers may take until all are healthy again, before the next cell."""
APP = ("web", "invalidator", "warmer")
PROMETHEUS_PORT = 9090
STATE = "/state"


class ComposeScene:
    """One server's part of the running stack, for `bench.fault_cell`. Use it in the main thread only."""

    has_alarms = True

    def __init__(self, server: str, docker: Docker | None = None) -> None:
        """Raises `StackError` if the stack is not up, or its state folder cannot be read from here."""
        self.notes: dict[str, int] = {}
        self.given_up: set[int] = set()
        self.corrupt_from = 0.0
        self.server = server
        self._docker = docker or Docker()
        self._undo: list[Callable[[], None]] = []
        self._pause: AutopilotPause | None = None
        self._found = find_containers(server, self._docker)
        self._by_service = dict(self._found.containers)
        self._networks = {service: self._aliases(service) for service in self._by_service}
        self._database = self._state_folder() / "state.sqlite3"

    def _aliases(self, service: str) -> dict[str, list[str]]:
        """Network → the names of a container in it."""
        asked = self._docker.ask(
            "inspect", "--format", "{{json .NetworkSettings.Networks}}", self.id(service)
        )
        return {name: list(network["Aliases"] or []) for name, network in json.loads(asked).items()}

    def _state_folder(self) -> Path:
        """The folder of this machine in which the storefront's volume lies."""
        mounts = json.loads(
            self._docker.ask("inspect", "--format", "{{json .Mounts}}", self.id(f"web-{self.server}"))
        )
        folder = Path(
            next((mount["Source"] for mount in mounts if mount["Destination"] == STATE), "/nowhere")
        )
        try:
            users_in_outbox(folder / "state.sqlite3")
        except sqlite3.Error as error:
            raise StackError(
                f"the outbox in {folder} cannot be read ({error}): run this as root, on the machine of the engine."
            ) from error
        return folder

    def up(self) -> None:
        """Hold load and growth of all servers, and the autopilot. Raises `StackError` naming what does not answer."""
        self._hold_autopilot()
        for server in self._found.others():
            self._undo += [hold_growth(self._found, server), hold_load(self._found, server)]
        with self._storefront() as web, self._locust() as locust:
            invalidation = web.ask("GET", "/settings/invalidation")
            warming = web.ask("GET", "/settings/warming")
            load = locust.pause()

        def put_back() -> None:  # with the addresses of that moment
            with self._storefront() as web, self._locust() as locust:
                web.use(invalidation["strategy"], invalidation["scan_count"])
                web.fill(warming["target_keys"], warming["keys_per_second"])
                locust.resume(load)

        self._undo.append(put_back)

    def _hold_autopilot(self) -> None:
        """Pause the autopilot, and again if the lease could not be renewed, because the page stood still."""
        if "control" not in self._by_service:
            return
        try:
            if self._pause is not None:
                self._pause.check()
                return
        except StackError:
            pass
        page = Http("control", f"http://{self._address('control', PORTS['control'])}")
        self._pause = AutopilotPause(page)

    def _storefront(self) -> closing[Storefront]:
        return closing(Storefront(f"web-{self.server}", self.base))

    def _locust(self) -> closing[Locust]:
        service = f"locust-{self.server}"
        return closing(Locust(service, f"http://{self._address(service, PORTS['locust'])}"))

    # containers

    def id(self, service: str) -> str:
        """The id of a service's container."""
        return self._by_service[service].id

    def of(self, *roles: str) -> list[str]:
        """The services of roles: ``server``, or a part of the storefront such as ``web``."""
        return [self.server if role == "server" else f"{role}-{self.server}" for role in roles]

    @property
    def services(self) -> list[str]:
        """All services that run."""
        return list(self._by_service)

    def tell(self, verb: str, *services: str) -> None:
        """``docker VERB`` for the containers of services."""
        self._docker.ask(verb, *(self.id(service) for service in services))

    def start(self, *services: str) -> None:
        """Start containers that were stopped or killed, and learn their new addresses."""
        self.tell("start", *services)
        self.refresh()

    def refresh(self) -> None:
        """Learn the addresses of all containers: one that is started again may get another."""
        found = self._docker.inspect(*(container.id for container in self._by_service.values()))
        self._by_service = {container.service: container for container in found}

    def cut_off(self, service: str) -> None:
        """Take a container out of all its networks."""
        for network in self._networks[service]:
            self._docker.ask("network", "disconnect", "--force", network, self.id(service))

    def join(self, service: str) -> None:
        """Put a container back into its networks, under its names there."""
        for network, names in self._networks[service].items():
            words = [word for name in names for word in ("--alias", name)]
            self._docker.ask("network", "connect", *words, network, self.id(service))
        self.refresh()

    def _address(self, service: str, port: int) -> str:
        """Host and port of a container, without asking whether it answers now. Raises OSError if it has none."""
        return where(self._by_service[service], port)

    # what a cell asks

    @property
    def base(self) -> str:
        """The storefront's address at this moment."""
        return f"http://{self._address(f'web-{self.server}', PORTS['web'])}"

    def status(self, path: str, seconds: float = REQUEST_S) -> int:
        """The status of a GET from the storefront; 0 if there is no answer."""
        try:
            return status_of(self.base + path, seconds)
        except OSError:  # it has no address
            return 0

    def metrics(self) -> dict[str, float]:
        """What the invalidator says. Raises OSError if it does not answer."""
        address = self._address(f"invalidator-{self.server}", PORTS["invalidator"])
        return numbers_on(ask("GET", f"http://{address}/metrics", seconds=6.0)[2].decode())

    def outbox(self) -> set[int]:
        """Users of the accepted events that are not handled. Raises sqlite3.Error."""
        return users_in_outbox(self._database)

    def tracebacks(self) -> int:
        """The number of tracebacks in the logs of the storefront's containers."""
        found = 0
        for service in self.of(*APP):
            said = subprocess.run(["docker", "logs", self.id(service)], capture_output=True, check=False)
            found += (said.stdout + said.stderr).count(b"Traceback (")
        return found

    def alarms(self) -> list[str]:
        """Alerts that fire for this server, and its containers that are unhealthy."""
        return [*self._alerts(), *self._unhealthy()]

    def _alerts(self) -> list[str]:
        if "prometheus" not in self._by_service:
            return []
        try:
            address = self._address("prometheus", PROMETHEUS_PORT)
            said = json.loads(ask("GET", f"http://{address}/api/v1/alerts", seconds=3.0)[2])
        except (OSError, ValueError):
            return []
        return sorted(
            {
                f"alert {alert['labels']['alertname']}"
                for alert in said["data"]["alerts"]
                if alert["state"] == "firing" and alert["labels"].get("server", self.server) == self.server
            }
        )

    def _unhealthy(self) -> list[str]:
        try:
            found = self._docker.inspect(*(self.id(service) for service in self.of("server", *APP)))
        except StackError:
            return []
        return [f"{container.service} unhealthy" for container in found if container.health == "unhealthy"]

    def use(self, strategy: str) -> None:
        """Switch the strategy. Raises OSError if the storefront does not answer or refuses."""
        switch(self.base, strategy)

    def prepare(self, strategy: str) -> None:
        """Wait until all is whole; empty the server, switch to the strategy, and fill entries of other users.

        Raises `StackError` or OSError if the stack does not come back.
        """
        self.notes, self.given_up = {}, set()
        self.refresh()
        wait_for("not all containers are healthy again", self.whole, WHOLE_S)
        self._hold_autopilot()
        host, _, port = self._address(self.server, PORTS["server"]).rpartition(":")
        with redis.Redis(host, int(port), protocol=2, driver_info=None, socket_timeout=5) as client:
            try:
                client.flushall()
            except redis.RedisError as error:
                raise StackError(f"{self.server} cannot be emptied: {error}") from error
        self.use(strategy)
        warm(self.base)

    def whole(self) -> bool:
        """True if no container is ill or about to start, and the storefront is ready."""
        found = self._docker.inspect(*(container.id for container in self._by_service.values()))
        return (
            all(container.health in ("healthy", "none") for container in found)
            and self.status("/readyz") == 200
        )

    def mend(self) -> None:
        """Put back what a fault that was broken off left behind. Raises `StackError` if that fails."""
        for service in self.services:
            state = json.loads(self._docker.ask("inspect", "--format", "{{json .State}}", self.id(service)))
            if state["Paused"]:
                self.tell("unpause", service)
            if not state["Running"]:
                self.tell("start", service)
            if set(self._networks[service]) - set(self._aliases(service)):
                self.join(service)
        self.refresh()

    def down(self) -> None:
        """Put back load, growth, strategy and autopilot. Raises `StackError` naming what does not answer."""
        self.mend()
        wait_for("the storefront is not ready again", lambda: self.status("/readyz") == 200, WHOLE_S)
        while self._undo:
            self._undo.pop()()
        if self._pause is not None:
            self._hold_autopilot()
            self._pause.end()


def where(container: Container, port: int) -> str:
    """Where this machine reaches a port of a container: published on 127.0.0.1, or at the container's own address.

    Raises OSError if it has no address, because it does not run or is cut off.
    """
    if port in container.published:
        host, number = container.published[port]
        return f"{host}:{number}"
    if not container.addresses:
        raise OSError(f"{container.service} has no address")
    return f"{container.addresses[0]}:{port}"


def killed(*roles: str) -> Callable[[ComposeScene, float], None]:
    """SIGKILL to the containers of some roles, started again at the end."""

    def act(scene: ComposeScene, seconds: float) -> None:
        scene.tell("kill", *scene.of(*roles))
        time.sleep(seconds)
        scene.start(*scene.of(*roles))

    return act


def paused(*roles: str) -> Callable[[ComposeScene, float], None]:
    """Containers stand still: the kernel accepts connections, and nobody answers. Without roles: all containers."""

    def act(scene: ComposeScene, seconds: float) -> None:
        services = scene.of(*roles) if roles else scene.services
        scene.tell("pause", *services)
        time.sleep(seconds)
        scene.tell("unpause", *services)

    return act


def watcher(verb: str, back: str, service: str) -> Callable[[ComposeScene, float], None]:
    """A verb for a container that only watches or asks, and the verb that takes it back."""

    def act(scene: ComposeScene, seconds: float) -> None:
        name = service.format(server=scene.server)
        scene.tell(verb, name)
        time.sleep(seconds)
        scene.tell(back, name)
        scene.refresh()

    return act


def cut_off(scene: ComposeScene, seconds: float) -> None:
    """The server has no network: nothing reaches it, and nothing is told so."""
    scene.cut_off(scene.server)
    time.sleep(seconds)
    scene.join(scene.server)


def restarted(scene: ComposeScene, seconds: float) -> None:
    """The server is restarted again and again; all entries are gone each time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        scene.tell("restart", scene.server)
        scene.notes["restarts"] = scene.notes.get("restarts", 0) + 1
        time.sleep(2.0)
    scene.refresh()


def invalidator_killed(scene: ComposeScene, seconds: float) -> None:
    """SIGKILL to the invalidator at random moments, with a new start each time."""
    (service,) = scene.of("invalidator")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(random.uniform(0.5, 3.0))
        scene.tell("kill", service)
        scene.start(service)
        scene.notes["kills"] = scene.notes.get("kills", 0) + 1


def _fault(
    title: str, act: Callable[[Any, float], None], freezes: bool = False, slower: float = 1.0
) -> Fault:
    return Fault(title, act, freezes=freezes, slower=slower)


FAULTS = {
    "server-killed": _fault("server killed, started again", killed("server")),
    "server-paused": _fault("server paused", paused("server"), freezes=True),
    "server-restarted": _fault("server restarted again and again", restarted),
    "server-cut-off": _fault("server cut off from the network", cut_off, freezes=True),
    "invalidator-killed": _fault("invalidator killed at random moments", invalidator_killed),
    "invalidator-paused": _fault("invalidator paused", paused("invalidator"), freezes=True),
    "web-killed": _fault("web killed, started again", killed("web")),
    "storefront-killed": _fault("web, invalidator and warmer killed, started again", killed(*APP)),
    "all-paused": _fault("all containers paused for a minute", paused(), freezes=True, slower=0.5),
    "tempo-gone": _fault("Tempo stopped", watcher("stop", "start", "tempo")),
    "tempo-silent": _fault(
        "Tempo paused: it accepts and does not answer", watcher("pause", "unpause", "tempo")
    ),
    "prometheus-gone": _fault("Prometheus stopped", watcher("stop", "start", "prometheus")),
    "grafana-gone": _fault("Grafana stopped", watcher("stop", "start", "grafana")),
    "locust-gone": _fault("Locust killed", watcher("kill", "start", "locust-{server}")),
    "probe-gone": _fault("probe killed", watcher("kill", "start", "probe-{server}")),
}
