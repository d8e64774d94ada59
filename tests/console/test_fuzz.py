"""Random requests and slow clients do the control page no harm."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import fuzz
from tests.app.servicekit import ROOT, ServerProcess, end, eventually, free_port, http
from tests.console.standins import StandIns
from tests.slowkit import SOON_S, slow_clients


@pytest.fixture
def target(tmp_path: Path, standins: StandIns, own_server: ServerProcess) -> Iterator[fuzz.Target]:
    """A control page in a process of its own, on stand-ins, with a server that is ready for actions."""
    port, log = free_port(), tmp_path / "control.log"
    addresses = [
        own_server.url,
        *(f"{standins.url}/{role}" for role in ("web", "invalidator", "locust", "probe")),
    ]
    environment = {
        "CONTROL_SERVERS": f"one={'|'.join(addresses)}",
        "CONTROL_PORT": str(port),
        "CONTROL_STORY": "off",
    }
    with log.open("w") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "console"],
            cwd=ROOT,
            env=environment,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    found = fuzz.Target("console", port, lambda: [process.pid], lambda: [log], "one", one_in=1_000_000)

    def ready() -> bool:
        try:
            servers = http("GET", f"{found.url}/api/state").json["servers"]
        except OSError:
            return False
        return [server["free"] and server["up"] for server in servers] == [True]

    try:
        eventually(ready)
        yield found
    finally:
        end(process)


def test_random_requests_find_no_fault(target: fuzz.Target) -> None:
    """Hundreds of random requests bring no error of the control page, no hang and no traceback. They reach the
    handlers: most kinds of answers are among those that came.
    """
    found = fuzz.fuzz(target, 400)

    assert found.faults == {}, found.examples
    assert found.sent >= 400
    assert {200, 400, 404, 405} <= set(found.statuses)


@pytest.mark.parametrize("what", ["headers", "bodies"])
def test_slow_clients_delay_no_lever(target: fuzz.Target, what: str) -> None:
    """While 300 clients have sent half a request, state and levers answer soon."""
    with slow_clients(target.port, what, "POST /api/stop"):
        for _ in range(5):
            began = time.monotonic()
            assert http("GET", f"{target.url}/healthz").status == 200
            assert http("GET", f"{target.url}/api/state").status == 200
            assert http("POST", f"{target.url}/api/servers/one/growth", {"on": False}).status == 200
            assert time.monotonic() - began < SOON_S
