"""Random requests to the storefront and to the control page: `python -m bench.fuzz [--requests N] [--only NAME]`.

About half are made by Schemathesis from docs/openapi: valid ones, and ones with something wrong. The others are bytes:
odd paths, methods, headers and bodies, wrong lengths, broken chunks, pipelined requests. The storefront runs alone on
an embedded server; the control page steers a whole scene of few keys. Each answer has at most `HANG_S` seconds.

Faults: a status of 500 or above, no answer in time, a status that the description does not have, a traceback in the
output of a process, memory that grows by more than `GROWTH` after the first tenth of the requests, and a bad health at
the end. Exit code 0 without a fault, else 1. `--write FILE` keeps the figures for the pages.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from app.settings import STRATEGY_NAMES
from bench.fuzz_requests import raw_requests
from bench.kit import ROOT, Faults, OneLineParser, interrupts_raise, keep, server
from lab.errors import INTERRUPTED, StackError
from lab.stacks.http import Http
from lab.stacks.native_scene import NativeScene
from lab.stacks.processes import Child, free_port
from lab.stacks.servers import find_server

if TYPE_CHECKING:
    from schemathesis import Case

HANG_S = 5.0
GROWTH = 0.5
ROUND = 500
"""Requests of one run of Hypothesis, which remembers all that it tried."""
SEVERE = 500
HONEST = {501, 505}
"""Not faults: the HTTP server does not know the transfer coding, or the version of HTTP."""
ALWAYS = {404, 405, 414, 431}
"""What any operation may be answered with. An odd value of a parameter leads to a path or a method that does not exist,
or makes the request's line or a header longer than the HTTP server reads.
"""
LIMITS: dict[str, dict[str, Any]] = {
    "count": {"maximum": 20},
    "miss_cost_ms": {"maximum": 5},
    "events_per_second": {"maximum": 5},
    "strategy": {"enum": list(STRATEGY_NAMES)},
}
"""Field or parameter → the values that are sent if they are valid: larger ones would load the machine, or take long."""
VALID = 1e6
"""No value above is valid for any of these fields."""
RARE = re.compile(r"/api/(?:pause|start|stop|servers/[^/ ]*/restart)\b")
"""Actions after which most others are refused for a while: one in `Target.one_in` is sent, and then taken back.

Each of them may take twice as long: a pause waits until the autopilots have finished what they are doing.
"""


@dataclass
class Target:
    """What is fuzzed. `server`: the name of the scene's server, if there is a scene. `pids`: of its processes, without
    their children; `logs`: the files with their output.
    """

    name: str
    port: int
    pids: Callable[[], list[int]]
    logs: Callable[[], list[Path]]
    server: str = ""
    one_in: int = 20

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def description(self) -> dict[str, Any]:
        """Its OpenAPI description, within `LIMITS`."""
        found = json.loads((ROOT / "docs" / "openapi" / f"{self.name}.json").read_text(encoding="utf-8"))
        _narrow(found, self.server)
        return dict(found)

    def memory_mb(self) -> float:
        """The resident memory of its processes."""
        total = 0
        for pid in self.pids():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                total += sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
        return total / 1e6


def _narrow(node: Any, server_name: str) -> None:
    """Put `LIMITS` into a description, and the server's name for the path parameter `name` of the levers."""
    if isinstance(node, list):
        for one in node:
            _narrow(one, server_name)
    elif isinstance(node, dict):
        for name, limit in LIMITS.items():
            schema = node.get("properties", {}).get(name)
            if schema and "enum" not in schema:
                schema.update(limit)
        if node.get("in") == "query" and node["name"] in LIMITS:
            node["schema"].update(LIMITS[node["name"]])
        if server_name and node.get("name") == "name" and node.get("in") == "path":
            node.update(schema={"enum": [server_name]}, example=server_name)
        for one in node.values():
            _narrow(one, server_name)


@dataclass
class Findings(Faults):
    """What came of the requests. `closed`: requests after which the connection was closed without an answer."""

    sent: int = 0
    closed: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    before_mb: float = 0.0
    after_mb: float = 0.0

    def answered(self, status: int, example: str, known: set[int] | None = None) -> None:
        """Count an answer. `known`: the statuses that its operation may have."""
        self.statuses[status] += 1
        if status >= SEVERE and status not in HONEST:
            self.fault(f"status {status}", example)
        elif known is not None and status not in known | ALWAYS:
            self.fault(f"undescribed status {status}", example)

    def close(self, target: Target) -> None:
        """Look at memory and at the processes' output, and ask whether the target still answers."""
        self.after_mb = target.memory_mb()
        if self.after_mb > self.before_mb * (1 + GROWTH):
            self.fault("memory", f"{self.before_mb:.0f} MB before, {self.after_mb:.0f} MB after")
        for log in target.logs():
            found = log.read_text(errors="replace").partition("Traceback (most recent call last)")[2]
            if found:
                self.fault("traceback", f"{log.name}: {' '.join(found.split())}")
        try:
            healthy = exchange(target.port, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", HANG_S)
        except OSError:
            healthy = []
        if healthy != [200]:
            self.fault("ill at the end", f"/healthz: {healthy or 'no answer'}")

    def kept(self) -> dict[str, Any]:
        """For the pages."""
        return {
            "requests": self.sent,
            "closed": self.closed,
            "statuses": {str(status): number for status, number in sorted(self.statuses.items())},
            "faults": dict(self.faults),
            "examples": self.examples,
            "before_mb": round(self.before_mb),
            "after_mb": round(self.after_mb),
        }


STATUS = re.compile(rb"(?m)^HTTP/1\.[01] ([0-9]{3})\b")


def exchange(port: int, data: bytes, seconds: float) -> list[int]:
    """Send bytes, end the sending side, and return the status of each answer. Raises `TimeoutError` after `seconds`."""
    end, came = time.monotonic() + seconds, b""
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        with suppress(ConnectionError):  # closed before all was read: it may have answered all the same
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while True:
                connection.settimeout(max(0.01, end - time.monotonic()))
                part = connection.recv(65536)
                if not part:
                    break
                came += part
    return [int(found) for found in STATUS.findall(came)]


class Sender:
    """Sends requests to a target and notes what comes of them."""

    def __init__(self, target: Target, description: dict[str, Any]) -> None:
        self.target, self.found = target, Findings()
        self._session = requests.Session()
        self._session.trust_env = False
        self._rare = 0
        # Its import takes two seconds, which every process of the tests would spend that only collects them.
        import schemathesis
        from schemathesis import GenerationMode
        from schemathesis.core.result import Ok

        schema = schemathesis.openapi.from_dict(description)
        operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
        paths = description["paths"]
        plain = [
            one
            for one in operations
            if "parameters" not in paths[one.path] and "requestBody" not in paths[one.path][one.method]
        ]
        self._cases = st.one_of(
            *(one.as_strategy(GenerationMode.POSITIVE) for one in operations),
            *(one.as_strategy(GenerationMode.NEGATIVE) for one in operations if one not in plain),
        )
        self._raw = raw_requests(description)

    def round(self, number: int, seed_value: int) -> None:
        """Send `number` requests, or a few less."""

        @seed(seed_value)
        @settings(
            max_examples=number,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.booleans().flatmap(lambda described: self._cases if described else self._raw))
        def each(one: Case[Any] | bytes) -> None:
            self.send(one)

        each()

    def send(self, one: Case[Any] | bytes) -> None:
        """Send a request, unless it asks for something rare that has to wait for its turn."""
        shown = (
            repr(one[:300]) if isinstance(one, bytes) else f"{one.method} {one.formatted_path} {one.body!r}"
        )
        rare = RARE.search(one.decode("latin-1") if isinstance(one, bytes) else one.formatted_path)
        if rare:
            self._rare += 1
            if self._rare % self.target.one_in:
                return
        elif not isinstance(one, bytes) and (_beyond(one.body) or _beyond(_numbers(one.query))):
            return
        self.found.sent += 1
        seconds = 2 * HANG_S if rare else HANG_S
        try:
            if isinstance(one, bytes):
                statuses = exchange(self.target.port, one, seconds)
                for status in statuses:
                    self.found.answered(status, shown)
                self.found.closed += not statuses
            else:
                answer = one.call(base_url=self.target.url, session=self._session, timeout=seconds)
                known = {int(status) for status in one.operation.responses.status_codes}
                self.found.answered(answer.status_code, shown, known)
        except (TimeoutError, requests.Timeout):
            self.found.fault("hang", shown)
        except (OSError, ValueError):  # refused by the client, or closed; requests' errors are OSErrors
            self.found.closed += 1
        if rare:
            for path in ("stop", "resume"):
                self._session.post(f"{self.target.url}/api/{path}", json={}, timeout=4 * HANG_S)


def _numbers(query: Any) -> Any:
    """Query parameters with their digits as numbers, as the target reads them."""
    if not isinstance(query, dict):
        return query
    digits = re.compile("[0-9]+")
    return {
        name: int(value) if isinstance(value, str) and digits.fullmatch(value) else value
        for name, value in query.items()
    }


def _beyond(body: Any) -> bool:
    """True if a field or parameter is beyond its maximum in `LIMITS`, and perhaps valid."""
    if not isinstance(body, dict):
        return False
    asked = ((body.get(name), limit.get("maximum")) for name, limit in LIMITS.items())
    return any(most and isinstance(value, int | float) and most < value <= VALID for value, most in asked)


def fuzz(
    target: Target, number: int, seed_value: int = 1, say: Callable[[str], None] = lambda _: None
) -> Findings:
    """Send at least `number` requests to a target; returns what came of them."""
    sender = Sender(target, target.description())
    found, rounds = sender.found, 0
    while found.sent < number:
        aim = number if found.before_mb else max(1, number // 10)
        sender.round(min(ROUND, max(1, aim - found.sent)), seed_value + rounds)
        rounds += 1
        if not found.before_mb and found.sent >= number // 10:
            found.before_mb = target.memory_mb()
        if rounds % 20 == 0:
            say(f"{target.name}: {found.sent:,} of {number:,} requests, {sum(found.faults.values())} faults")
    found.close(target)
    return found


@contextmanager
def storefront(folder: Path) -> Iterator[Target]:
    """The web process alone, on an embedded server."""
    with server() as url:
        port, log = free_port(), folder / "web.log"
        environment = {
            "PORT": str(port), "APP_STORE_URL": url, "APP_STATE_DIR": str(folder / "state"),
            "APP_MISS_COST_MS": "0", "OTEL_TRACES_EXPORTER": "none",
        }  # fmt: skip
        child = Child("web", [sys.executable, "-m", "app.web"], log, environment, ROOT)
        try:
            Http("web", f"http://127.0.0.1:{port}").wait("/readyz", 30, lambda: _alive(child))
            yield Target("storefront", port, lambda: [child.pid], lambda: [log])
        finally:
            child.stop()


def _alive(child: Child) -> None:
    if not child.alive():
        raise StackError(child.end_message())


@contextmanager
def console(folder: Path) -> Iterator[Target]:
    """The control page with a whole scene of few keys; a thread starts again what the control page shuts down."""
    port, over = free_port(), threading.Event()
    place = folder / "scene"
    scene = NativeScene(find_server("embedded"), place, port, keys=2000, healthy=True)
    name, log = scene.server_name, place / "logs" / "control.log"

    def mend() -> None:
        while not over.wait(0.2):
            scene.mend(lambda _: None)

    thread = threading.Thread(target=mend, daemon=True)
    try:
        scene.up(lambda _: None)
        thread.start()
        yield Target("console", port, lambda: [scene.pids()["control"]], lambda: [log], name)
    finally:
        over.set()
        if thread.ident:
            thread.join()
        scene.down()


TARGETS = {"storefront": storefront, "console": console}


def main() -> int:
    """The command; its exit code."""
    parser = OneLineParser(prog="bench.fuzz", description="Random requests to the pages of the lab.")
    parser.add_argument("--requests", type=int, default=100_000, help="for each of the two")
    parser.add_argument("--only", choices=TARGETS, help="one of the two")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="keep the figures, for the table in SECURITY.md"
    )
    options = parser.parse_args()
    if options.requests < 1:
        parser.error("--requests must be at least 1")
    bad = False
    for name in [options.only] if options.only else TARGETS:
        with tempfile.TemporaryDirectory(prefix="lab-fuzz-") as folder, TARGETS[name](Path(folder)) as target:
            found = fuzz(target, options.requests, options.seed, lambda text: print(text, flush=True))
        print(json.dumps({"target": name, **found.kept()}), flush=True)
        for example in found.examples:
            print(f"{name}: {example}", file=sys.stderr)
        keep(options.write, name, "bench.fuzz", **found.kept())
        bad = bad or bool(found.faults)
    return int(bad)


if __name__ == "__main__":
    interrupts_raise()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
