"""The scene without Docker: a storefront on one server, its load, the control page, and Prometheus if it is installed.

The parts that `make up` runs in containers are processes of this machine. A process that ends unexpectedly is started
again, as by Docker; so is the server when the control page shuts it down.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from lab.errors import StackError, UsageError
from lab.scenarios.model import Phase, Scenario
from lab.scene import native_prometheus as prometheus
from lab.server.http import Http
from lab.server.processes import Child, port_taken, ports_after, raise_if_interrupted, uninterrupted
from lab.server.servers import Server, find_server
from lab.stacks.base import Say
from lab.stacks.memory import BASE_BYTES, require_memory
from lab.stacks.native import READY_S, NativeStack

SCENE = Scenario(
    id="scene",
    title="scene",
    story="",
    source="",
    phases=(Phase("scene", "scene", "scene", "index", 1.0),),
    claims=(),
    paces={},
    knee_at=None,
    scan_count=1000,
)
HEALTHY_EVENTS_PER_S = 4.0
FILL_S = 300.0
TICK_S = 0.2
PAUSE_S = 0.5
"""Seconds before an ended process is started again."""
MOST_ENDS, WITHIN_S = 3, 60.0
"""A process that ends unexpectedly MOST_ENDS times within WITHIN_S seconds is given up."""
PROMETHEUS, EXPORTER = "Prometheus", "redis_exporter"
OPERATIONS = "operations"
"""The web process's second listener: settings, health and metrics."""
OPTIONAL = (PROMETHEUS, EXPORTER)
"""Processes that the scene can do without."""


def shown_as(server: Server) -> Server:
    """Return the server under its name in the scene: the embedded server is called ``valkey``."""
    return replace(server, name="valkey") if server.name == "embedded" else server


class NativeScene(NativeStack):
    """A scene on this machine, run by `play`. `healthy`: no story, but a full cache and every event by index."""

    key_prefix = "shop"
    load_file = "loadtest/key_growth.py"

    def __init__(
        self,
        server: Server,
        folder: Path,
        port: int,
        keys: int | None = None,
        healthy: bool = False,
        prometheus_port: int | None = None,
    ) -> None:
        self._ports = ports_after(port)
        super().__init__(SCENE, shown_as(server), folder, seed=1, port=next(self._ports))
        self._dragonfly = server.name.startswith("dragonfly")
        self._keys, self._healthy = keys, healthy
        self._port_of: dict[str, int] = {}
        self._prometheus_port = prometheus_port
        self._ends: dict[str, deque[float]] = defaultdict(deque)
        self.control_port = port
        self.control = Http("the control page", f"http://127.0.0.1:{port}")

    @property
    def server_name(self) -> str:
        """The server's name on the control page and in the metrics."""
        return self._kind.name

    # -- up

    def up(self, say: Say) -> None:
        """Start everything and wait until all of it answers. Raises `StackError`, which names a part that did not."""
        super().up(say)
        self._add(
            "probe",
            [sys.executable, "-m", "loadtest.probe", "--metrics-port", str(self._port("probe")),
             "--interval-seconds", "60"],  # its lines are not read
            {"PROBE_URL": self.server_url},
        )  # fmt: skip
        if prometheus.find_prometheus() and self._prometheus_port is None:
            self._prometheus_port = self._port(PROMETHEUS)
        say("starting the control page")
        self._add("control", [sys.executable, "-m", "console"], self._control_settings())
        self.control.wait("/healthz", READY_S, self.check)
        if self._healthy:
            self._make_healthy(say)
        self._start_prometheus(say)

    def _port(self, name: str) -> int:
        """Return the port of a process. It stays the same when the process is started again."""
        if name not in self._port_of:
            self._port_of[name] = next(self._ports)
        return self._port_of[name]

    _metrics_port = _port

    def _add(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        if name == "web":
            env = env | {"APP_OPERATIONS_PORT": str(self._port(OPERATIONS))}
        return super()._add(name, command, env)

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._port(name)}"

    def _control_settings(self) -> dict[str, str]:
        """Return the control page's variables. The user's environment has its other settings (`console.config`)."""
        operations = self._address(OPERATIONS)
        places = [
            f"http://{place}"
            for place in (operations, *map(self._address, ("invalidator", "locust", "probe")))
        ]
        settings = {
            "CONTROL_HOST": "127.0.0.1",
            "CONTROL_PORT": str(self.control_port),
            "CONTROL_SERVERS": f"{self.server_name}={'|'.join([self.server_url, *places])}",
            "CONTROL_LOCUST_URLS": f"{self.server_name}={self.locust.base_url}",
            "CONTROL_PROMETHEUS_URL": f"http://127.0.0.1:{self._prometheus_port}"
            if self._prometheus_port
            else "",
            "CONTROL_KEY_PREFIX": self.key_prefix,
            "CONTROL_SCAN_COUNTS": f"{self.server_name}={self._kind.scan_count}",
        }
        if self._keys is not None:
            settings["CONTROL_KEYS"] = str(self._keys)
        return settings | ({"CONTROL_STORY": "off"} if self._healthy else {})

    def _make_healthy(self, say: Say) -> None:
        """Fill the cache, and set an ordinary day's load by the control page."""
        end = time.monotonic() + READY_S
        while not (state := self.state()).get("free") or not state["up"]:
            self.check()
            if time.monotonic() > end:
                raise StackError(f"the scene does not get ready: {state.get('status', 'no server is seen')}")
            time.sleep(0.1)
        keys = int(self.control.ask("GET", "/api/state")["keys"])
        say(f"filling {keys:,} entries")
        self.web.warm(keys, restart=False, seconds=FILL_S, check=self.check)
        self._act("growth", on=True)
        self._act("rate", events_per_second=HEALTHY_EVENTS_PER_S)

    def _act(self, action: str, **body: Any) -> None:
        self.control.ask("POST", f"/api/servers/{self.server_name}/{action}", body)

    def state(self) -> dict[str, Any]:
        """Return the server's state on the control page; empty while the page does not know the server yet."""
        servers = self.control.ask("GET", "/api/state")["servers"]
        return dict(servers[0]) if servers else {}

    # -- Prometheus

    def _start_prometheus(self, say: Say) -> None:
        binary, exporter = prometheus.find_prometheus(), prometheus.find_exporter()
        if binary is None:
            say("There is no prometheus on the PATH: the scene has no graphs, rules and alerts.")
            return
        jobs = ("invalidator", "warmer", "probe", "locust")
        targets = {name: self._address(name) for name in jobs} | {"web": self._address(OPERATIONS)}
        targets |= {
            "control": f"127.0.0.1:{self.control_port}",
            "prometheus": f"127.0.0.1:{self._prometheus_port}",
        }
        if self._dragonfly:
            targets["dragonfly"] = f"127.0.0.1:{self.server_port}"
        elif exporter:
            targets["redis"] = self._address(EXPORTER)
            self._add(EXPORTER, prometheus.exporter_command(exporter, self._port(EXPORTER)), {})
        else:
            say("There is no redis_exporter on the PATH: Prometheus has no metrics of the server itself.")
        text = prometheus.configuration(self.server_name, targets, f"redis://127.0.0.1:{self.server_port}")
        (self._folder / "prometheus.yml").write_text(text)
        assert self._prometheus_port is not None
        self._add(PROMETHEUS, prometheus.command(binary, self._folder, self._prometheus_port), {})

    # -- while it lasts

    def restart_ended(self, say: Say) -> None:
        """Start again every process that has ended, with a line about each.

        Raises:
            StackError: a part that the scene cannot do without ended too often.
        """
        for child in [child for child in self._children if not child.alive()]:
            self._restart(child, say)

    def _restart(self, child: Child, say: Say) -> None:
        child.stop()  # ends its children too
        place = self._children.index(child)
        shut_down = child is self._server_child and child.exit_code() == 0
        if not shut_down and self._ends_too_often(child.name):
            often = f"That was {MOST_ENDS} times within {WITHIN_S:g} s"
            if child.name not in OPTIONAL:
                raise StackError(f"{child.end_message()} {often}: the scene is given up.")
            del self._children[place]
            say(f"{child.end_message()} {often}: the scene goes on without it.")
            return
        time.sleep(PAUSE_S)
        again = self._children[place] = child.start_again()
        if child is self._server_child:
            self._server_child = again
        reason = f"{child.name} was shut down." if shut_down else child.end_message()
        say(f"{reason} It was started again.")

    def _ends_too_often(self, name: str) -> bool:
        ends, now = self._ends[name], time.monotonic()
        ends.append(now)
        while ends[0] < now - WITHIN_S:
            ends.popleft()
        return len(ends) >= MOST_ENDS

    def shown(self) -> dict[str, tuple[str, str]]:
        """Return the parts of the scene: name → (address, purpose)."""
        places = {
            "control page": (self.control.base_url, "begin here"),
            "Locust": (self.locust.base_url, "the load"),
            "storefront": (self.web.base_url, "the load's target; /metrics"),
            "server": (f"redis://127.0.0.1:{self.server_port}", ""),
        }
        if any(child.name == PROMETHEUS for child in self._children):
            address = f"http://127.0.0.1:{self._prometheus_port}"
            places[PROMETHEUS] = (address, "queries, targets, alerts")
        return places

    def link_url(self) -> str:
        """Return the URL by which the storefront reaches the server: here the server's own."""
        return self.server_url

    def users(self) -> str:
        """Return the control page's figures of the last seconds, in a line."""
        state = self.state()
        p99, done = state.get("p99_ms"), state.get("events_finished_per_second")
        return (
            f"p99 of a bystander's GET {'not known yet' if p99 is None else f'{p99:,.1f} ms'}; "
            f"events in flight {state.get('events_in_flight') or 0:,.0f}, "
            f"done {'not known yet' if done is None else f'{done:.1f} a second'}; keys {state.get('keys') or 0:,}"
        )

    def down(self) -> None:
        """End every process and remove the folder."""
        super().down()
        self.control.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def check_arguments(server: str, port: int, keys: int | None, prometheus_port: int | None) -> Server:
    """Check the arguments before anything is created. Returns the server.

    Raises `UsageError` when they cannot be carried out, `StackError` when the server's binary is missing.
    """
    known = find_server(server)
    for option, wanted in (("--port", port), ("--prometheus-port", prometheus_port)):
        if wanted is not None and port_taken(wanted):
            raise UsageError(f"port {wanted} is taken. Choose another with {option}.")
    if prometheus_port is not None and prometheus.find_prometheus() is None:
        raise UsageError("--prometheus-port: there is no prometheus on the PATH.")
    known.require()
    if keys is not None:
        needed = BASE_BYTES + keys * known.key_bytes
        free = psutil.virtual_memory().available
        require_memory(
            f"{keys:,} keys on {known.name}, with the whole scene,",
            needed,
            free,
            "free",
            "Choose fewer with --keys.",
        )
    return known


def play(
    server: str,
    port: int,
    keys: int | None,
    healthy: bool,
    prometheus_port: int | None,
    say: Say,
    while_up: Callable[[NativeScene], AbstractContextManager[None]],
) -> None:
    """Bring the scene up and keep it up until Ctrl-C. However this ends, the scene is taken down completely.

    `while_up`: a context that lasts as long as the scene, entered before anything is started.

    Raises:
        UsageError: the scene cannot be brought up with these arguments.
        StackError: a part did not start, or ended too often.
        KeyboardInterrupt: Ctrl-C was pressed; the scene was taken down.
    """
    known = check_arguments(server, port, keys, prometheus_port)
    folder = Path(tempfile.mkdtemp(prefix="lab-scene-"))
    scene = NativeScene(known, folder, port, keys, healthy, prometheus_port)
    try:
        with while_up(scene):
            scene.up(say)
            announce(scene, healthy, say)
            while True:
                raise_if_interrupted()
                scene.restart_ended(lambda text: say(f"{datetime.now():%H:%M:%S}  {text}"))
                time.sleep(TICK_S)
    finally:
        with uninterrupted():
            scene.down()


def announce(scene: NativeScene, healthy: bool, say: Say) -> None:
    """Show the addresses of the scene's parts, and what to do there."""
    say("")
    for name, (address, why) in scene.shown().items():
        say(f"  {name:<14} {address:<27} {why}".rstrip())
    say("")
    if healthy:
        say(
            "The scene is healthy: the cache is full, and events invalidate by index. "
            "The control page has the levers to change that."
        )
    else:
        say(
            "Open the control page: it measures this machine first; then keys grow, and p99 with them. Find out why."
        )
    say(
        "In a second terminal, bin/lab look and bin/lab probe show figures of the scene. Ctrl-C here ends everything."
    )
