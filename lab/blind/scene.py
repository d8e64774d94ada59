"""The scene of a blind session, natively: the lab's own stack, with everything that may differ told over stdin.

Between storefront and store there is always the link, and beside them there are always four programs of other teams;
what each of them does is an order. The first carries out changes of prices in every session.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from lab.blind.inbox import Order
from lab.blind.observer import cpu_seconds, waited_s
from lab.blind.sizing import LINK, PROGRAMS, WEB
from lab.errors import StackError
from lab.scenarios.model import Phase, Scenario
from lab.stacks.base import Stack
from lab.stacks.http import Storefront
from lab.stacks.native import ROOT, NativeStack
from lab.stacks.processes import Child
from lab.stacks.servers import SERVERS

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


def tell(child: Child, words: dict[str, Any]) -> None:
    """Give a program a line on its stdin; one that has ended hears nothing."""
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ValueError):
        child.process.stdin.write(json.dumps(words).encode() + b"\n")
        child.process.stdin.flush()


class SceneStack(Stack, Protocol):
    """What a session needs of a scene, on either stack."""

    core: int | None

    @property
    def invalidator(self) -> Storefront:
        """What carries out the storefront's own events."""
        ...

    def order(self, name: str, order: Order) -> None:
        """Tell the link, the storefront or a program what to do from now on; who is not there hears nothing."""
        ...

    def limit_memory(self, headroom: int) -> None:
        """Set the store's limit so much above what it holds."""
        ...

    def shown(self) -> dict[str, str]:
        """Where everything is, by name."""
        ...

    def pids(self) -> dict[str, int]:
        """Process ids by name, of those that run on this machine and belong to the scene."""
        ...

    def link_url(self) -> str:
        """The storefront's way to the store."""
        ...

    def waited_s(self) -> float | None:
        """Seconds that the store's main thread was ready to run without a core; None where the system does not tell."""
        ...

    def neighbours_s(self) -> float:
        """CPU seconds of the programs of other teams."""
        ...


class BlindStack(NativeStack):
    """The native stack with a link, and programs that follow orders."""

    def __init__(self, folder: Path, server: str = "embedded") -> None:
        super().__init__(SCENARIO, SERVERS[server], folder, seed=1)
        self.link_port = 0
        self.core: int | None = None
        self._told: dict[str, Child] = {}

    def _start_service(self) -> None:
        self._pin_store()
        link = self._sealed(
            LINK, "lab.blind.latency_proxy", ["127.0.0.1", "0"], {"PROBE_URL": self.store_url}, pipe=True
        )
        try:
            self.link_port = int(json.loads(next(link.lines()))["port"])
        except (StopIteration, ValueError):
            link.check()
            raise StackError("the link does not say where it listens.") from None
        super()._start_service()
        for name in PROGRAMS:
            self._sealed(name, "lab.blind.tenants", [], {"PROBE_URL": self.store_url})

    def _add(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        if name != WEB:
            return super()._add(name, command, env)
        words = command[command.index("gunicorn") + 1 :]
        link = f"redis://127.0.0.1:{self.link_port}/0"
        return self._sealed(name, "lab.blind.faulty_pool", words, env | {"APP_STORE_URL": link})

    def _sealed(
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
        self._told[name] = child
        tell(child, {"module": module, "arguments": arguments, "env": env})
        return child

    def _pin_store(self) -> None:
        """Keep the store on one core, whatever the cause: the cause may be that other programs crowd it out there."""
        if hasattr(os, "sched_setaffinity") and self._store_child and (os.cpu_count() or 1) > 1:
            self.core = max(os.sched_getaffinity(0))
            os.sched_setaffinity(self._store_child.pid, {self.core})

    @property
    def store_pid(self) -> int:
        """The store's process id."""
        assert self._store_child is not None
        return self._store_child.pid

    def limit_memory(self, headroom: int) -> None:
        """Set the store's limit so much above what it holds."""
        self.store.limit_memory(headroom)

    def order(self, name: str, order: Order) -> None:
        """Tell one of the link, the storefront or the programs what to do from now on."""
        tell(self._told[name], order)

    def shown(self) -> dict[str, str]:
        """Where everything is, by name."""
        return {
            "store": f"redis://127.0.0.1:{self.store_port}",
            "link": f"redis://127.0.0.1:{self.link_port} (the storefront's way to the store)",
            "storefront": self.web.base_url,
            "metrics of the storefront": f"{self.web.base_url}/metrics",
            "metrics of the invalidator": f"{self.invalidator.base_url}/metrics",
            "Locust": self.locust.base_url,
        }

    def link_url(self) -> str:
        """The storefront's way to the store."""
        return f"redis://127.0.0.1:{self.link_port}/0"

    def waited_s(self) -> float | None:
        """See `lab.blind.observer.SessionTarget`."""
        return waited_s(self.store_pid)

    def neighbours_s(self) -> float:
        """See `lab.blind.observer.SessionTarget`."""
        return cpu_seconds([self._told[name].pid for name in PROGRAMS[1:]])
