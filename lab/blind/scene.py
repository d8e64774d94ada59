"""The native scene of a blind session: the lab's own stack. Causes differ only in the orders that are sent over stdin.

Every session has the link between storefront and server, and four programs of other teams. They follow orders. The
first program carries out price changes in every session.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from lab import ROOT
from lab.blind.diagnostics import ReadableScene
from lab.blind.inbox import Order
from lab.blind.observer import ObservedScene, cpu_seconds, waited_s
from lab.blind.sizing import LINK, PROGRAMS, WEB
from lab.errors import StackError
from lab.scenarios.model import Phase, Scenario
from lab.server.processes import Child
from lab.server.servers import SERVERS
from lab.stacks.base import Stack
from lab.stacks.native import NativeStack

EVENTS_PER_S, PROBES_PER_S = 4.0, 100.0
SCENARIO = Scenario(
    id="blind",
    title="blind",
    story="",
    source="",
    phases=(Phase("blind", "blind", "blind", "index", 1.0),),
    claims=(),
    paces={},
    knee_at=None,
    scan_count=1000,
)


def send_line(child: Child, message: dict[str, Any]) -> None:
    """Write `message` to a program's stdin as one JSON line; ignore a program that has ended."""
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ValueError):
        child.process.stdin.write(json.dumps(message).encode() + b"\n")
        child.process.stdin.flush()


class SessionScene(Stack, ObservedScene, ReadableScene, Protocol):
    """A scene as a session uses it, on either stack.

    `core`: the core that the server is pinned to. `healthy_samples`: the number of samples from which the healthy
    figures of users come; more than one where the parts of the scene disturb each other.
    """

    core: int | None
    healthy_samples: int

    def order(self, name: str, order: Order) -> None:
        """Send an order to the link, the storefront or a program; ignore one that has ended."""
        ...

    def limit_memory(self, headroom: int) -> None:
        """Set the server's maxmemory `headroom` bytes above its memory in use."""
        ...

    def shown(self) -> dict[str, str]:
        """Return the addresses of all parts, by name."""
        ...


class BlindStack(NativeStack):
    """The native stack with a link, and programs that follow orders."""

    healthy_samples = 1

    def __init__(self, folder: Path, server: str = "embedded") -> None:
        super().__init__(SCENARIO, SERVERS[server], folder, seed=1)
        self.link_port = 0
        self.core: int | None = None
        self._children_by_name: dict[str, Child] = {}

    def _start_service(self) -> None:
        self._pin_server()
        link = self._start_sealed(
            LINK, "lab.blind.latency_proxy", [self.host, "0"], {"PROBE_URL": self.server_url}, pipe=True
        )
        try:
            self.link_port = int(json.loads(next(link.lines()))["port"])
        except (StopIteration, ValueError):
            link.check()
            raise StackError("the link does not report its port.") from None
        super()._start_service()
        for name in PROGRAMS:
            self._start_sealed(name, "lab.blind.tenants", [name], {"PROBE_URL": self.server_url})

    def _add(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        if name != WEB:
            return super()._add(name, command, env)
        arguments = command[command.index("gunicorn") + 1 :]
        link = f"redis://127.0.0.1:{self.link_port}/0"
        return self._start_sealed(name, "lab.blind.faulty_pool", arguments, env | {"APP_STORE_URL": link})

    def _start_sealed(
        self, name: str, module: str, arguments: list[str], env: dict[str, str], pipe: bool = False
    ) -> Child:
        child = Child(
            name,
            [sys.executable, "-m", "lab.blind.launcher"],
            self._folder / "logs" / f"{name}.log",
            {"OMP_NUM_THREADS": "1"},
            ROOT,
            pipe=pipe,
            stdin_open=True,
        )
        self._children.append(child)
        self._children_by_name[name] = child
        send_line(child, {"module": module, "arguments": arguments, "env": env})
        return child

    def _pin_server(self) -> None:
        """Pin the server to one core under every cause, because one cause lets other programs take that core."""
        if hasattr(os, "sched_setaffinity") and self._server_child and (os.cpu_count() or 1) > 1:
            self.core = max(os.sched_getaffinity(0))
            os.sched_setaffinity(self._server_child.pid, {self.core})

    @property
    def server_pid(self) -> int:
        """The server's process id."""
        assert self._server_child is not None
        return self._server_child.pid

    def limit_memory(self, headroom: int) -> None:
        """Set the server's maxmemory `headroom` bytes above its memory in use."""
        self.server.limit_memory(headroom)

    def order(self, name: str, order: Order) -> None:
        """Send an order to the link, the storefront or a program; it replaces the earlier one."""
        send_line(self._children_by_name[name], order)

    def shown(self) -> dict[str, str]:
        """Return the addresses of all parts, by name."""
        return {
            "server": f"redis://127.0.0.1:{self.server_port}",
            "link": f"redis://127.0.0.1:{self.link_port} (the storefront's route to the server)",
            "storefront": self.web.base_url,
            "metrics of the storefront": f"{self.web.base_url}/metrics",
            "metrics of the invalidator": f"{self.invalidator.base_url}/metrics",
            "Locust": self.locust.base_url,
        }

    def link_url(self) -> str:
        """Return the URL of the link, through which the storefront reaches the server."""
        return f"redis://127.0.0.1:{self.link_port}/0"

    def waited_s(self) -> float | None:
        """See `lab.blind.observer.ObservedScene`."""
        return waited_s(self.server_pid)

    def neighbours_s(self) -> float:
        """See `lab.blind.observer.ObservedScene`."""
        return cpu_seconds([self._children_by_name[name].pid for name in PROGRAMS[1:]])
