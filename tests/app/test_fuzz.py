"""Random requests and slow clients do the storefront no harm; and what `bench.fuzz` looks for, it finds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import fuzz
from docs.pages import fromfuzz
from lab.stacks.processes import port_taken
from tests.app.servicekit import ServerProcess, Service, eventually, free_port, http
from tests.httpkit import Answer, HttpStandIn, Request
from tests.slowkit import SOON_S, slow_clients

NewService = Callable[..., Service]


def test_random_requests_find_no_fault(new_service: NewService, server: ServerProcess) -> None:
    """Hundreds of random requests bring no error of the storefront, no hang and no traceback. They reach the handlers:
    most kinds of answers are among those that came.
    """
    service = new_service(server, APP_MISS_COST_MS="0").start("web")
    log = service.folder / "web.log"
    target = fuzz.Target("storefront", service.port, lambda: [service.running["web"].pid], lambda: [log])

    found = fuzz.fuzz(target, 400)

    assert found.faults == {}, found.examples
    assert found.sent >= 400
    assert {200, 202, 400, 404, 405} <= set(found.statuses)
    assert service.event(1).status == 202


def test_nobody_says_under_which_path_the_storefront_lies(
    new_service: NewService, server: ServerProcess
) -> None:
    """Headers by which a proxy would move the storefront to another path are answered as if they were not there."""
    service = new_service(server).start("web")
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nSCRIPT_NAME: /x\r\nPATH_INFO: /y\r\n\r\n"
    assert fuzz.exchange(service.port, request, 5) == [200]


@pytest.mark.parametrize(
    ("status", "line", "header"), [(200, 3000, 8000), (414, 4090, 1), (431, 1, 8200)], ids=str
)
def test_what_is_too_long_is_refused_as_the_description_says(
    status: int, line: int, header: int, new_service: NewService, server: ServerProcess
) -> None:
    """A request's line and a header have a limit each, whatever the path."""
    service = new_service(server).start("web")
    request = f"GET /healthz?{'x' * line} HTTP/1.1\r\nHost: localhost\r\nX-Long: {'y' * header}\r\n\r\n"
    assert fuzz.exchange(service.port, request.encode(), 5) == [status]


class Faulty(HttpStandIn):
    """A storefront with every fault, by path. `log`: where it leaves its traceback."""

    def __init__(self, log: Path) -> None:
        self.log = log
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """A fault."""
        if request.path == "/readyz":
            time.sleep(0.3)
        if request.path == "/metrics":
            self.log.write_text("Traceback (most recent call last)\n  x\n")
        return Answer({}, {"/healthz": 500, "/settings/invalidation": 418}.get(request.path, 200))


def test_each_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, an undescribed status, a hang, a traceback, memory that grows, and bad health at the end, are found."""
    monkeypatch.setattr(fuzz, "HANG_S", 0.2)
    sizes = iter((100.0, 151.0))
    monkeypatch.setattr(fuzz.Target, "memory_mb", lambda _: next(sizes))
    log = tmp_path / "web.log"
    log.touch()
    with Faulty(log) as faulty:
        found = fuzz.fuzz(fuzz.Target("storefront", faulty.port, lambda: [os.getpid()], lambda: [log]), 150)
    assert set(found.faults) >= {
        *("status 500", "undescribed status 418", "hang", "memory", "traceback", "ill at the end")
    }


class Right(HttpStandIn):
    """A storefront that answers every request with a status of its own."""

    status = 200

    def answer(self, request: Request) -> Answer:
        """The status; health is good."""
        return Answer({}, 200 if request.path == "/healthz" else self.status)


@pytest.mark.parametrize(("status", "code", "faults"), [(404, 0, "none"), (500, 1, "status 500: ")])
def test_the_command_keeps_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, code: int, faults: str
) -> None:
    """The exit code is 1 if there was a fault. The figures are kept, and the page's table shows them."""
    place = tmp_path / fromfuzz.FILE
    place.parent.mkdir()
    assert fromfuzz.fuzz_list(tmp_path).startswith(
        "Not measured yet: `.venv/bin/python -m bench.fuzz --write"
    )
    with Right() as right:
        right.status = status
        target = fuzz.Target("storefront", right.port, list, list)
        monkeypatch.setattr(fuzz, "TARGETS", {"storefront": lambda _: nullcontext(target)})
        monkeypatch.setattr(sys, "argv", ["fuzz", "--requests", "30", "--write", str(place)])
        assert fuzz.main() == code
    table = fromfuzz.fuzz_list(tmp_path)
    assert "| the storefront | 30 |" in table
    assert f"| {faults}" in table
    assert "`python -m bench.fuzz --requests 30`, 20" in table


def test_what_would_load_the_machine_is_not_sent(tmp_path: Path) -> None:
    """No request asks for many fragments. Of the actions that block the control page only one in so many is sent."""
    with Faulty(tmp_path / "log") as nothing:
        target = fuzz.Target("console", nothing.port, list, list, "one", one_in=3)
        sender = fuzz.Sender(target, target.description())
        for _ in range(7):
            sender.send(b"POST /api/pause HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sender.found.sent == 2
    assert fuzz._beyond({"count": 21})
    assert fuzz._beyond({"events_per_second": 6.5})
    assert not fuzz._beyond({"count": 20})
    assert not fuzz._beyond({"count": 2_000_000})
    assert not fuzz._beyond({"count": "21"})
    assert fuzz._beyond(fuzz._numbers({"miss_cost_ms": "6"}))
    assert not fuzz._beyond(fuzz._numbers({"miss_cost_ms": "5"}))
    assert not fuzz._beyond(fuzz._numbers({"miss_cost_ms": "x"}))
    assert not fuzz._beyond(b"count")


@pytest.mark.parametrize("what", ["headers", "bodies"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared port", "own port"])
def test_slow_clients_delay_no_settings(
    new_service: NewService, server: ServerProcess, what: str, shared: bool
) -> None:
    """While 300 clients have sent half a request, to the storefront's port or to that of the settings, health and
    settings answer on the latter without waiting for one of them to be given up.
    """
    port = free_port()
    service = new_service(server, APP_OPERATIONS_PORT=str(port)).start("web")
    base = f"http://127.0.0.1:{port}"
    eventually(lambda: port_taken(port))
    with slow_clients(service.port if shared else port, what, "PUT /settings/warming"):
        for _ in range(5):
            began = time.monotonic()
            assert http("GET", f"{base}/healthz").status == 200
            assert http("PUT", f"{base}/settings/invalidation", {"strategy": "index"}).status == 200
            assert time.monotonic() - began < SOON_S
    assert service.get("/healthz").status == 200
    assert "Traceback" not in service.log("web")
