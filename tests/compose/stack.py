"""The stack under test, used as a person would: by commands, and by requests to its published ports."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.server.servers import IN_COMPOSE, PROFILES
from tests.compose import evidence

PROJECT = "redis-latency-lab-test"
PORTS = (
    "CONTROL_PORT",
    "GRAFANA_PORT",
    "PROMETHEUS_PORT",
    "TEMPO_PORT",
    *(server.locust_port for server in IN_COMPOSE),
)
PROFILE_OPTIONS = [word for profile in PROFILES for word in ("--profile", profile)]
"""The profiles of every server."""
EVERYTHING = ["--profile", "*"]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on: the tests' stack must not collide with a lab in use."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def until(check: Callable[[], Any], what: str, seconds: float = 60, every: float = 0.5) -> Any:
    """Return the first true answer of `check`. Raises AssertionError if there is none within `seconds`.

    While it is too early `check` may raise OSError, ValueError or LookupError.
    """
    end = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < end:
        try:
            if found := check():
                return found
            last = found
        except (OSError, ValueError, LookupError) as error:
            last = error
        time.sleep(every)
    raise AssertionError(f"not within {seconds:g} s: {what} (last: {last!r})")


DEAD_PROXY = "http://127.0.0.1:9"


def behind_a_proxy(folder: Path) -> Path:
    """Make a folder for DOCKER_CONFIG: the person's own configuration, plus a proxy at which nothing answers.

    The engine itself does not use that proxy, and images that were built before are not affected.
    """
    own = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    folder.mkdir()
    for entry in own.iterdir() if own.is_dir() else ():
        if entry.name != "config.json":
            (folder / entry.name).symlink_to(entry)
    file = own / "config.json"
    said = json.loads(file.read_text()) if file.is_file() else {}
    proxies = {
        "httpProxy": DEAD_PROXY,
        "httpsProxy": DEAD_PROXY,
        "allProxy": DEAD_PROXY,
        "noProxy": "localhost",
    }
    (folder / "config.json").write_text(json.dumps({**said, "proxies": {"default": proxies}}))
    return folder


class Stack:
    """A Compose project with its own ports, run by a person behind a proxy that does not answer.

    So each test of traces, metrics or panels also shows that no container uses the proxy.
    """

    def __init__(self, folder: Path) -> None:
        self.began = 0.0  # Unix time at which everything was healthy
        self.environ = {**os.environ, "COMPOSE_PROJECT_NAME": PROJECT}
        self.environ["DOCKER_CONFIG"] = str(behind_a_proxy(folder / "docker"))
        self.environ["DRAGONFLY_SCAN_COUNT"] = "100000"  # its stand-in is a Redis; Dragonfly ignores it
        self.environ.update(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))

    def docker(self, *arguments: str, check: bool = True, seconds: float = 120) -> str:
        """Run `docker ...` and return its output. Raises AssertionError if it fails, unless `check` is false."""
        done = self.run(["docker", *arguments], seconds)
        if check and done.returncode:
            raise AssertionError(f"docker {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def run(self, command: list[str], seconds: float, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project's environment plus `more`. Raises AssertionError with evidence if it hangs."""
        environ = {**self.environ, **more}
        try:
            return subprocess.run(
                command,
                cwd=ROOT,
                env=environ,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode(errors="replace")[-1500:]
            state = evidence.of_the_engine(environ)
        raise AssertionError(f"not within {seconds:g} s: {' '.join(command)}\n{said}\n{state}")

    def compose(self, *arguments: str, check: bool = True, seconds: float = 300) -> str:
        """Run `docker compose ...` on this project and return its output."""
        return self.docker("compose", *arguments, check=check, seconds=seconds)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        label = "label=com.docker.compose"
        project = self.environ["COMPOSE_PROJECT_NAME"]
        filters = ["--filter", f"{label}.project={project}", "--filter", f"{label}.service={service}"]
        return self.docker("ps", "--all", "--quiet", *filters).split()[0]

    def left(self) -> str:
        """The ids of the project's containers, volumes and networks; empty if there are none."""
        label = f"label=com.docker.compose.project={self.environ['COMPOSE_PROJECT_NAME']}"
        kinds = (["ps", "--all"], ["volume", "ls"], ["network", "ls"])
        return "".join(self.docker(*kind, "--quiet", "--filter", label) for kind in kinds)

    def inspect(self, service: str) -> dict[str, Any]:
        """docker inspect of a service's container."""
        found: dict[str, Any] = json.loads(self.docker("inspect", self.container(service)))[0]
        return found

    def started_since(self, service: str, before: str) -> bool:
        """True if a service's container has started again since its start at `before`."""
        return bool(self.inspect(service)["State"]["StartedAt"] != before)

    def health(self, service: str) -> str:
        """The state of a service's health check: healthy, unhealthy or starting."""
        return str(self.inspect(service)["State"]["Health"]["Status"])

    def wait_health(self, service: str, wanted: str, seconds: float = 60) -> None:
        """Wait until the state of a service's health check is `wanted`."""
        until(lambda: self.health(service) == wanted, f"{service} {wanted}", seconds)

    def url(self, port: str, path: str = "") -> str:
        """An address on a published port, by the port's name in .env."""
        return f"http://127.0.0.1:{self.environ[port]}{path}"

    def get(self, port: str, path: str) -> Any:
        """The JSON behind a published port."""
        with urllib.request.urlopen(self.url(port, path), timeout=10) as answer:
            return json.load(answer)

    def post(self, port: str, path: str, body: object) -> Any:
        """POST a JSON body to a published port; the answer's JSON."""
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url(port, path), data, kind)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def servers(self) -> dict[str, dict[str, Any]]:
        """The control page's state of each server, by name."""
        return {row["name"]: row for row in self.get("CONTROL_PORT", "/api/state")["servers"]}

    def cores(self, *parts: str) -> float:
        """Cores used by all containers but those whose names begin with one of `parts`: the median of four samples."""
        looks = []
        for _ in range(4):
            listed = self.compose("stats", "--no-stream", "--format", "{{.Name}} {{.CPUPerc}}")
            rows = [line.split() for line in listed.splitlines() if line.strip()]
            names = {row[0].removeprefix(self.environ["COMPOSE_PROJECT_NAME"] + "-"): row[1] for row in rows}
            shares = [float(share.rstrip("%")) for name, share in names.items() if not name.startswith(parts)]
            looks.append(sum(shares) / 100)
        return statistics.median(looks)

    def history(
        self, expression: str, start: float, end: float, step: float = 2
    ) -> list[tuple[float, float]]:
        """The only series of a PromQL query as (Unix time, value), without NaN. Raises LookupError if it is not one."""
        asked = {"query": expression, "start": start, "end": end, "step": step}
        rows = self.get("PROMETHEUS_PORT", "/api/v1/query_range?" + urllib.parse.urlencode(asked))["data"][
            "result"
        ]
        if len(rows) != 1:
            raise LookupError(f"{expression}: {len(rows)} series")
        return [(float(at), float(value)) for at, value in rows[0]["values"] if value != "NaN"]

    def query(self, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """A PromQL query's samples by labels."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        rows = self.get("PROMETHEUS_PORT", path)["data"]["result"]
        return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}

    def value(self, expression: str) -> float:
        """The only sample of a query. Raises LookupError if there are none or several."""
        found = list(self.query(expression).values())
        if len(found) != 1:
            raise LookupError(f"{expression}: {len(found)} samples")
        return found[0]

    def above(self, expression: str, bound: float) -> bool:
        """True if the only sample of a query is above the bound. Raises LookupError if there are none or several."""
        return self.value(expression) > bound

    def signal(self, services: tuple[str, ...], name: str) -> None:
        """Send a signal to services' main processes from outside their containers.

        `docker kill` would do it too, but the engine would never restart the container after that.
        """
        pids = [self.inspect(service)["State"]["Pid"] for service in services]
        code = f"import os, signal\nfor pid in {pids}: os.kill(pid, signal.{name})"
        image = self.inspect("control")["Config"]["Image"]
        self.docker("run", "--rm", "--pid", "host", "--user", "0:0", image, "python", "-c", code)

    def inside(self, service: str, code: str, seconds: float = 60) -> str:
        """Run Python in a container of the lab's image and return what it prints."""
        return self.compose("exec", "-T", service, "python", "-c", code, seconds=seconds).strip()

    def http(
        self, server: str, method: str, path: str, body: object = None
    ) -> tuple[int, dict[str, str], str]:
        """Ask a storefront from inside its network (it has no published port): status, headers, body."""
        code = (
            "import json,sys,urllib.request as u,urllib.error as e\n"
            f"r=u.Request('http://web-{server}:8000{path}',method={method!r},"
            f"data={None if body is None else json.dumps(body).encode()!r},"
            "headers={'Content-Type':'application/json'})\n"
            "try: a=u.urlopen(r,timeout=10)\n"
            "except e.HTTPError as x: a=x\n"
            "print(json.dumps([a.status,dict(a.headers),a.read().decode()]))"
        )
        status, headers, text = json.loads(self.inside(f"probe-{server}", code))
        return status, headers, text
