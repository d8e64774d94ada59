"""The scene of the fault matrix: a server, the storefront, the invalidator and the warmer as processes of their own."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import redis

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
from bench.kit import ROOT
from lab.stacks.processes import Child, port_taken, ports_after, stop_all
from lab.stacks.servers import SERVERS

FIRST_PORTS = (12_000, 28_000)
STATE_MB = 16
"""Size of the state folder where it is a file system of its own. SQLite's journal takes up to 4 MB of it."""
CLONE_NEWNS = 0x0002_0000
STEPPED = ROOT / "bench" / "stepped"
"""On the path of a Python process it makes the clock a stepped one: see the module in it."""


def own_mounts() -> None:
    """Give this thread, and all processes it starts, mounts of their own: they are gone with the last of them.

    Raises OSError where that is not allowed.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise OSError("needs Linux and root")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _mount("--make-rprivate", "/")


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"mount {' '.join(words)} failed")


class Tempo:
    """A trace backend on a port of its own that answers, is gone, or accepts without an answer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.received = 0
        self._silent = threading.Event()
        self._server: ThreadingHTTPServer | None = None
        self.come()

    def come(self) -> None:
        """Answer again."""
        self._silent.clear()
        if self._server is not None:
            return
        tempo = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                while tempo._silent.is_set():
                    time.sleep(0.1)
                tempo.received += 1
                with suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: Any) -> None:
                """No line for each request."""

        ThreadingHTTPServer.daemon_threads = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def leave(self) -> None:
        """Refuse connections."""
        self._silent.clear()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def keep_silent(self) -> None:
        """Accept, read, and answer nothing."""
        self._silent.set()


class Scene:
    """Brings the processes up and takes them down. Faults act on it; use it in the main thread only.

    (The kernel ends a child when the thread that started it ends.) `proxy`: all processes reach the server through a
    relay. `small`: the state folder is a small file system, for which `own_mounts` was called. `traced`: spans go to a
    stand-in of Tempo. `stepped`: the wall clock of the storefront, the invalidator and the warmer can be stepped (the
    server's stays right, as on another machine). `instead` replaces the commands of some processes.
    """

    has_alarms = False

    def __init__(
        self,
        folder: Path,
        server: str = "embedded",
        proxy: bool = False,
        small: bool = False,
        traced: bool = False,
        stepped: bool = False,
        instead: dict[str, list[str]] | None = None,
    ) -> None:
        self.folder, self.strategy = folder, "scan"
        self.state_folder = folder / "state"
        self.notes: dict[str, int] = {}
        self.given_up: set[int] = set()
        self.corrupt_from = 0.0
        self._kind, self._instead = SERVERS[server], instead or {}
        self._children: dict[str, Child] = {}
        ports = ports_after(random.randrange(*FIRST_PORTS))
        self.ports = {
            name: next(ports) for name in ("server", "proxy", "web", "invalidator", "warmer", "tempo")
        }
        self.base = f"http://127.0.0.1:{self.ports['web']}"
        self.tempo = Tempo(self.ports["tempo"]) if traced else None
        self._proxied = proxy
        self._clock = folder / "clock" if stepped else None
        if stepped:
            self.step_clock(0.0)
        self.small = small
        self.state_folder.mkdir(parents=True, exist_ok=True)
        if small:
            _mount("-t", "tmpfs", "-o", f"size={STATE_MB}m", "tmpfs", str(self.state_folder))

    # processes

    @property
    def roles(self) -> list[str]:
        """All processes, in the order in which they start."""
        return ["server", *(["proxy"] if self._proxied else []), "web", "invalidator", "warmer"]

    def start(self, name: str) -> None:
        """Start a process; do not wait until it answers."""
        environment = {} if name == "server" else self._environment(name)
        self._children[name] = Child(
            name,
            self._instead.get(name) or self._command(name),
            self.folder / f"{name}.log",
            environment,
            ROOT if name != "server" else self.folder,
            stdin_open=name == "proxy",
        )

    def _command(self, name: str) -> list[str]:
        if name == "server":
            return self._kind.command(self.ports[name], str(self.folder))
        if name == "proxy":
            return [sys.executable, "-m", "lab.blind.latency_proxy", "127.0.0.1", str(self.ports[name])]
        if name == "web":
            return [sys.executable, "-m", "gunicorn", "-c", "app/gunicorn_conf.py", "app.web:application"]
        return [sys.executable, "-m", f"app.{name}"]

    def _environment(self, name: str) -> dict[str, str]:
        near = "proxy" if self._proxied else "server"
        traces = {"OTEL_TRACES_EXPORTER": "none"}
        if self.tempo is not None:
            traces = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.tempo.port}",
                "OTEL_TRACES_SAMPLER": "always_on",
                "OTEL_BSP_SCHEDULE_DELAY": "200",
            }
        return {
            "PROBE_URL": f"redis://127.0.0.1:{self.ports['server']}/0",  # where the relay leads to
            "APP_STORE_URL": f"redis://127.0.0.1:{self.ports[near]}/0",
            "APP_STATE_DIR": str(self.state_folder),
            "APP_STRATEGY": self.strategy,
            "APP_MISS_COST_MS": "1",
            "APP_METRICS_PORT": str(self.ports.get(name, 0)),
            "PORT": str(self.ports["web"]),
            "OMP_NUM_THREADS": "1",
            **({"PYTHONPATH": str(STEPPED), "STEPPED_CLOCK": str(self._clock)} if self._clock else {}),
            **traces,
        }

    def up(self) -> None:
        """Start everything and wait until all of it answers. Raises `StackError` naming what does not."""
        for name in self.roles:
            self.start(name)
            if name in ("server", "proxy"):
                self.wait_port(name)
        self.wait_ready()

    def wait_port(self, name: str) -> None:
        """Wait until a process listens on its port."""

        def listens() -> bool:
            self._children[name].check()
            return port_taken(self.ports[name])

        wait_for(f"{name} does not listen", listens)

    def wait_ready(self) -> None:
        """Wait until the storefront says that it is ready, and the others listen."""
        for name in ("web", "invalidator", "warmer"):
            self.wait_port(name)
        wait_for("the storefront is not ready", lambda: self.status("/readyz", 6.0) == 200)

    def status(self, path: str, seconds: float = REQUEST_S) -> int:
        """The status of a GET from the storefront; 0 if there is no answer."""
        return status_of(self.base + path, seconds)

    def whole(self) -> bool:
        """True if every process runs and the storefront is ready."""
        return all(child.alive() for child in self._children.values()) and self.status("/readyz") == 200

    def send(self, name: str, number: int) -> None:
        """Send a signal to a process and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._children[name].pid, number)

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process and its children, and wait for its end."""
        self.send(name, number)
        with suppress(subprocess.TimeoutExpired):
            self._children[name].process.wait(10)
        self._children[name].stop()

    def workers(self) -> list[psutil.Process]:
        """The storefront's worker processes."""
        return psutil.Process(self._children["web"].pid).children()

    def exit_code(self, name: str) -> int | None:
        """The exit code of a process that has ended, else None."""
        return self._children[name].process.poll()

    def tracebacks(self) -> int:
        """The number of tracebacks in the logs of all processes."""
        return sum(log.read_text(errors="replace").count("Traceback (") for log in self.folder.glob("*.log"))

    def down(self) -> None:
        """End every process, frozen ones too."""
        for name in self._children:
            self.send(name, signal.SIGCONT)
        stop_all(list(reversed(self._children.values())))
        self._children.clear()
        if self.tempo is not None:
            self.tempo.leave()
        if self.small:
            subprocess.run(["umount", "--lazy", str(self.state_folder)], capture_output=True, check=False)

    # the server

    @contextmanager
    def admin(self, password: str | None = None) -> Iterator[Any]:
        """A client of the server that does not go through the relay, on one connection."""
        client = redis.Redis(
            port=self.ports["server"],
            protocol=2,
            driver_info=None,
            password=password,
            socket_timeout=5,
            single_connection_client=True,
        )
        try:
            yield client
        finally:
            client.close()

    def delay(self, seconds: float) -> None:
        """Delay each round trip through the relay."""
        pipe = self._children["proxy"].process.stdin
        assert pipe is not None
        pipe.write(json.dumps({"delay_s": seconds}).encode() + b"\n")
        pipe.flush()

    def step_clock(self, seconds: float) -> None:
        """Let the processes' wall clock differ from the right one by that much, from now on."""
        assert self._clock is not None
        with self._clock.open(
            "r+b" if self._clock.exists() else "wb"
        ) as file:  # in place: the processes map it
            file.write(struct.pack("d", seconds))

    # the state folder

    @property
    def database(self) -> Path:
        """The state database."""
        return self.state_folder / "state.sqlite3"

    def outbox(self) -> set[int]:
        """Users of the accepted events that are not handled, read from the database. Raises sqlite3.Error."""
        return users_in_outbox(self.database)

    def remount(self, how: str) -> None:
        """Remount the state folder `ro` or `rw`. Raises OSError while a process has a file of it open for writing."""
        end = time.monotonic() + 2.0
        while True:
            try:
                return _mount("-o", f"remount,{how}", str(self.state_folder))
            except OSError:  # the watch looks into the outbox
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def begin_anew(self) -> None:
        """What `app.layouts` asks for after a state folder was lost: an empty one, and an empty server."""
        for name in ("web", "invalidator", "warmer"):
            self.end(name, signal.SIGTERM)
        for path in self.state_folder.iterdir():
            path.unlink()
        with self.admin() as server:
            server.flushall()
        for name in ("web", "invalidator", "warmer"):
            self.start(name)

    # the service

    def metrics(self) -> dict[str, float]:
        """What the invalidator says: metric (with the outcome behind it, where it has one) → value. Raises OSError."""
        url = f"http://127.0.0.1:{self.ports['invalidator']}/metrics"
        return numbers_on(ask("GET", url, seconds=6.0)[2].decode())

    def alarms(self) -> list[str]:
        """Nothing watches these processes."""
        return []

    def use(self, strategy: str) -> None:
        """Switch the strategy. Raises OSError if the storefront does not answer or refuses."""
        switch(self.base, strategy)

    def prepare(self, strategy: str) -> None:
        """Empty the server, switch to the strategy, and let the warmer fill `WARM_KEYS` entries of other users."""
        self.strategy = strategy
        self.notes, self.given_up = {}, set()
        with self.admin() as server:
            server.flushall()
        self.use(strategy)
        warm(self.base)


def remove(folder: Path) -> None:
    """Remove a scene's folder."""
    shutil.rmtree(folder, ignore_errors=True)
