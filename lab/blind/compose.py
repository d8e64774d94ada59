"""The scene of a blind session on the running compose stack, with its dashboards; every cause works here.

During a session the storefront's container is stopped. A container of the same service replaces it, with the same name
in the network and the same volume; its connection pool follows orders. The link, through which this storefront reaches
the server, runs in a container of its own, and so does each program of other teams. All these containers run
`python -m lab.blind.launcher` and learn over stdin which program to be, so docker shows the same for every cause.

The server is kept on one core in every session, because one of the causes is that other programs crowd it out there.
The kernel divides a core between containers, whatever their number of threads. So the server has four times the usual
share; otherwise the rest of the scene would crowd it out all the time. The two programs that crowd it out have four
times the server's share; under any other cause they do nothing. An engine that cannot limit CPU time, or keep a
container on a core, cannot do this: there all containers share all cores.

However the session ends, the containers end with their stdin. The restorer (`lab.blind.restorer`) waits for the same
end; it starts the stack's own storefront again and gives the server its cores back. A killed session leaves the server
with changed settings. After one, the restorer also restarts the server, so that the settings of `compose.yaml` hold.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import redis

from lab import ROOT
from lab.blind.inbox import Order
from lab.blind.prices import CHANGES, PRICES
from lab.blind.scene import SCENARIO, tell
from lab.blind.sizing import LINK, PROGRAMS, WEB
from lab.errors import StackError
from lab.stacks import engine
from lab.stacks.base import Say
from lab.stacks.compose import READY_S, ComposeStack
from lab.stacks.containers import PORTS, find_containers
from lab.stacks.docker import Container, named
from lab.stacks.http import Http, Storefront
from lab.stacks.processes import Child, stop_all
from lab.stacks.usage import Usage, usage_of

SERVER = "redis"
DASHBOARDS, DASHBOARDS_PORT = "grafana", 3000
LINK_PORT = 6379
WORKER = ("python", "-m", "lab.blind.launcher")
LIMITS = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true", "--memory=192m")
"""Confines each container as compose.yaml confines its services; `_docker_run` adds what not every engine can do."""
USUAL_SHARES, SERVER_SHARES, NEIGHBOURS_SHARES = 1024, 4096, 16_384
SHARES = dict.fromkeys(PROGRAMS[2:], NEIGHBOURS_SHARES)
Env = dict[str, str]


class ComposeBlindStack(ComposeStack):
    """One server of the running compose stack, with a replaced storefront and programs that follow orders."""

    healthy_samples = 3
    """Beside Grafana, Prometheus and Tempo, samples of five seconds had a p99 of 1.7 to 5.3 ms for a GET, and of 11 to
    39 ms for a page, while all was well. Against the luckiest of them any other looks ill."""

    def __init__(self, folder: Path, server: str = SERVER) -> None:
        scene = find_containers(server)
        found = engine.detect()
        if found is None or not found.cpus:
            raise StackError("docker does not say what its engine can do: see docker info")
        super().__init__(SCENARIO, scene, folder, seed=1)
        self._engine = found
        self.core: int | None = None
        self._original = self._scene.of(WEB)
        self._restorer: Child | None = None
        self._child_of: dict[str, Child] = {}
        self._link_url = ""
        self._others: Usage | None = None

    def up(self, say: Say) -> None:
        """Pause all other load, empty the server, put the storefront behind the link. Raises `StackError`."""
        super().up(say)
        self.web.use("index", SCENARIO.scan_count)
        say("starting the programs of other teams")
        if not self._pins:
            say("this engine cannot keep a container on one core: the server roams")
        self._start_restorer()
        self._pin_server()
        address = {"PROBE_URL": self._inner_url}
        link = self._docker_run(LINK, f"--publish=127.0.0.1::{LINK_PORT}")
        self._start(LINK, link, "lab.blind.latency_proxy", ["0.0.0.0", str(LINK_PORT)], address)
        for name in PROGRAMS:
            self._start(name, self._docker_run(name), "lab.blind.tenants", [name], address)
        say("putting the storefront behind its link")
        self._replace_web(self._find_link())
        self._others = usage_of(self._docker, {"others": [self._await(name) for name in PROGRAMS[1:]]})
        self._undo.append(self._others.close)

    def _start_restorer(self) -> None:
        """Start the restorer: a process that outlives this one and puts everything back."""
        container = self._scene.of("server").id
        unpin = self._unpin(container)
        self._restorer = Child(
            "restorer",
            [sys.executable, "-m", "lab.blind.restorer"],
            self._logs / "restorer.log",
            cwd=ROOT,
            pipe=True,
            stdin_open=True,
        )
        remove = ["rm", "--force", *map(self._name, (LINK, WEB, *PROGRAMS))]
        # Containers that remain from a session during which docker went away; usually there are none.
        with contextlib.suppress(StackError):
            self._docker.ask(*remove)
        back = [remove, ["start", self._original.id], *unpin]
        tell(self._restorer, {"commands": back, "orphaned": [["restart", container]]})
        if not next(self._restorer.lines(), b""):
            self._restorer.check()

    def _unpin(self, container: str) -> list[list[str]]:
        """The command for docker that gives the server the cores and the share of CPU time that it has now.

        No command where the engine cannot limit CPU time, or cannot keep a container on a core.
        """
        if not self._pins:
            return []
        settings = self._docker.ask(
            "inspect", "--format", "{{.HostConfig.CpuShares}} {{.HostConfig.CpusetCpus}}", container
        )
        shares, _, pinned = settings.strip().partition(" ")  # 0 and nothing if they were never set
        usual = shares if shares.strip("0") else str(USUAL_SHARES)
        every = f"0-{self._engine.cpus - 1}"
        return [["update", "--cpuset-cpus", pinned or every, "--cpu-shares", usual, container]]

    @property
    def _pins(self) -> bool:
        """True if the engine can keep the server on one core, with a larger share of it."""
        return self._engine.cpu_limits and self._engine.cpu_sets

    def _pin_server(self) -> None:
        """Keep the server on the engine's last core, with a larger share, where the engine can do that."""
        if not self._pins:
            return
        self.core = self._engine.cpus - 1
        container = self._scene.of("server").id
        self._docker.ask(
            "update", "--cpuset-cpus", str(self.core), "--cpu-shares", str(SERVER_SHARES), container
        )

    def _name(self, part: str) -> str:
        return f"{self._original.project}-blind-{part}"

    def _docker_run(self, part: str, *more: str) -> list[str]:
        """Arguments for docker that run a container of the lab's own image in the stack's network.

        An engine that cannot limit CPU time refuses the options for it. Podman would ask only the name server that
        `--dns` names, and not find the stack's services.
        """
        of = self._original
        labels = {"project": of.project, "service": part}
        options = [f"--label=com.docker.compose.{name}={value}" for name, value in labels.items()]
        options += [f"--name={self._name(part)}", f"--network={of.network}", *LIMITS, *more]
        if self._engine.cpu_limits:
            options += ["--cpus=1", f"--cpu-shares={SHARES.get(part, USUAL_SHARES)}"]
        if not self._engine.is_podman:
            options.append("--dns=127.0.0.1")
        return ["run", "--rm", "--interactive", *options, of.image]

    def _start(self, part: str, words: list[str], module: str, arguments: list[str], env: Env) -> None:
        """Start a container with the launcher, and tell it which program to be."""
        log = self._logs / f"{part}.log"
        child = Child(part, ["docker", *words, *WORKER], log, cwd=ROOT, stdin_open=True)
        self._child_of[part] = child
        tell(child, {"module": module, "arguments": arguments, "env": env})

    def _await(self, part: str) -> Container:
        """Wait until a container runs, and return it. Raises `StackError` when that takes longer than `READY_S`."""
        end = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(StackError):
                [container] = self._docker.inspect(self._name(part))
                if container.pid:
                    return container
            if time.monotonic() > end:
                raise StackError(f"{self._name(part)} does not run after {READY_S:g} s.")
            self.check()
            time.sleep(0.1)

    def _reach(self, container: Container, port: int, answers: Callable[[str, int], bool]) -> tuple[str, int]:
        """Wait until a port of a container answers; return its host and port.

        That something listens is not enough: it may be docker's proxy. Raises `StackError` after `READY_S`.
        """
        end = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(StackError):
                way = container.reach(port)
                if answers(*way):
                    return way
            if time.monotonic() > end:
                raise StackError(f"port {port} of {container.service} does not answer after {READY_S:g} s.")
            self.check()
            time.sleep(0.1)

    def _find_link(self) -> str:
        """Wait for the link, and return its URL inside the network. From this machine its URL is `link_url`."""
        link = self._await(LINK)
        host, port = self._reach(link, LINK_PORT, _pings)
        self._link_url = f"redis://{host}:{port}/0"
        return f"redis://{link.addresses[0]}:{LINK_PORT}/0"

    def _replace_web(self, link: str) -> None:
        """Replace the stack's own storefront with one whose pool follows orders."""
        of = self._original
        if self._watch:
            self._watch.expect(of)
        self._docker.ask("stop", of.id)
        options = [f"--name={self._name(WEB)}", "--use-aliases", f"--publish=127.0.0.1::{PORTS[WEB]}"]
        words = ["compose", *named(*of.files), "run", "--rm", "--no-deps", "--no-TTY", *options, of.service]
        arguments = list(of.command[1:])  # all that compose.yaml says after "gunicorn"
        self._start(WEB, words, "lab.blind.faulty_pool", arguments, {"APP_STORE_URL": link})
        self._use_web(self._await(WEB))

    def _use_web(self, container: Container) -> None:
        """Wait until this storefront is ready; `web` then stands for it."""
        host, port = self._reach(container, PORTS[WEB], _serves)
        self.web.close()
        self.web = Storefront(self._original.service, f"http://{host}:{port}")

    def check(self) -> None:
        """Raise `StackError` if a container of this server, a probe or a program has ended."""
        super().check()
        for child in self._child_of.values():
            child.check()

    def order(self, name: str, order: Order) -> None:
        """Send an order to the link, the storefront or a program; it replaces the earlier one."""
        tell(self._child_of[name], order)

    def limit_memory(self, headroom: int) -> None:
        """Set the server's maxmemory `headroom` bytes above what it holds now, until the end of the session."""
        self._undo.append(self.server.limit_memory(headroom))

    def shown(self) -> dict[str, str]:
        """The addresses of all parts, by name."""
        parts = {
            "server": self.server.url.removesuffix("/0"),
            "link": f"{self._link_url.removesuffix('/0')} (the storefront's way to the server)",
            "storefront": self.web.base_url,
            "metrics of the storefront": f"{self.web.base_url}/metrics",
            "metrics of the invalidator": f"{self.invalidator.base_url}/metrics",
            "Locust": self.locust.base_url,
        }
        if DASHBOARDS in self._scene.containers:
            host, port = self._scene.containers[DASHBOARDS].reach(DASHBOARDS_PORT)
            parts["dashboards"] = f"http://{host}:{port}"
        return parts

    def pids(self) -> dict[str, int]:
        """Always empty: `docker top` and `docker stats` show what runs in containers."""
        return {}

    def link_url(self) -> str:
        """URL of the link, through which the storefront reaches the server."""
        return self._link_url

    def waited_s(self) -> float | None:
        """See `lab.blind.observer.SessionTarget`; the server is the first process of its container."""
        with contextlib.suppress(StackError, IndexError, ValueError):
            said = self._docker.ask("exec", self._scene.of("server").id, "cat", "/proc/1/schedstat")
            return int(said.split()[1]) / 1e9
        return None

    def neighbours_s(self) -> float:
        """See `lab.blind.observer.SessionTarget`."""
        return self._others.cpu_seconds()["others"] if self._others else 0.0

    def down(self) -> None:
        """End the link, the storefront and the programs, remove their keys, and put everything back."""
        stop_all(list(self._child_of.values()))
        self._child_of.clear()
        with contextlib.suppress(StackError):  # the server is gone, and its keys with it
            self.server.remove_own((PRICES, CHANGES))
        if self._restorer:
            try:
                self._bring_back(self._restorer)
            except StackError as error:
                print(f"could not put everything back: {error} `make up` does.", file=sys.stderr)
        super().down()

    def _bring_back(self, restorer: Child) -> None:
        tell(restorer, {"in order": True})
        restorer.finish(READY_S)
        if restorer.exit_code():
            raise StackError(restorer.last_words())
        self._use_web(*self._docker.inspect(self._original.id))


def _pings(host: str, port: int) -> bool:
    client = redis.Redis(host=host, port=port, protocol=2, driver_info=None, socket_timeout=1.0)
    with contextlib.closing(client), contextlib.suppress(redis.RedisError):
        return bool(client.ping())
    return False


def _serves(host: str, port: int) -> bool:
    with contextlib.closing(Http(WEB, f"http://{host}:{port}")) as web:
        return web.ready("/readyz")
