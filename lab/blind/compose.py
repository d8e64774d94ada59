"""The scene of a blind session on the running compose stack, as far as it goes.

The programs of other teams run in the container probe-redis, told over stdin as they are natively. The storefront's
containers are the stack's own: there is no link before them, and nobody replaces their connection pool. So causes
that need either are left out, and so is the noisy neighbour: each container has a share of the CPU of its own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from lab.blind.errands import CHANGES, PRICES
from lab.blind.orders import Order
from lab.blind.scene import PROGRAMS, SCENARIO, tell
from lab.errors import StackError
from lab.processes import Child, stop_all
from lab.stacks.base import Say
from lab.stacks.compose import ComposeStack
from lab.stacks.scene import find_scene

SERVER = "redis"
DASHBOARDS, DASHBOARDS_PORT = "grafana", 3000


class ComposeBlindStack(ComposeStack):
    """One server of the running compose stack, and programs beside it that follow orders."""

    core: int | None = None

    def __init__(self, folder: Path, server: str = SERVER) -> None:
        super().__init__(SCENARIO, find_scene(server), folder, seed=1)
        self._programs: dict[str, Child] = {}

    def up(self, say: Say) -> None:
        """Pause everybody else, empty the server, start the programs. Raises `StackError`."""
        super().up(say)
        self.web.use("index", SCENARIO.scan_count)
        say("starting programs beside the storefront")
        for name in PROGRAMS:
            child = Child(
                name,
                ["docker", "exec", "-i", self._scene.of("probe").id, "python", "-m", "lab.blind.worker"],
                self._logs / f"{name}.log",
                leash=True,
            )
            self._programs[name] = child
            tell(
                child, {"module": "lab.blind.errands", "arguments": [], "env": {"PROBE_URL": self._inner_url}}
            )

    def check(self) -> None:
        """Raise `StackError` if a container of this server, a probe or a program has ended."""
        super().check()
        for child in self._programs.values():
            child.check()

    def order(self, name: str, order: Order) -> None:
        """Tell a program what to do from now on; there is neither a link nor a pool to tell anything."""
        if name in self._programs:
            tell(self._programs[name], order)

    def limit_memory(self, headroom: int) -> None:
        """Set the store's limit so much above what it holds, until the end of the session."""
        self._undo.append(self.store.limit_memory(headroom))

    def shown(self) -> dict[str, str]:
        """Where everything is, by name."""
        parts = {
            "store": self.store.url.removesuffix("/0"),
            "storefront": self.web.base_url,
            "metrics of the storefront": f"{self.web.base_url}/metrics",
            "metrics of the invalidator": f"{self.invalidator.base_url}/metrics",
            "Locust": self.locust.base_url,
        }
        if DASHBOARDS in self._scene.containers:
            host, port = self._scene.containers[DASHBOARDS].reach(DASHBOARDS_PORT)
            parts["dashboards"] = f"http://{host}:{port}"
        return parts

    def pids(self) -> dict[str, int]:
        """None: what runs in containers is seen with `docker top` and `docker stats`."""
        return {}

    def link_url(self) -> str:
        """The store's own address: there is no link."""
        return self.store.url

    def waited_s(self) -> float | None:
        """Not known: the store runs in a container."""
        return None

    def neighbours_s(self) -> float:
        """No program here computes."""
        return 0.0

    def down(self) -> None:
        """End the programs, remove their keys, and put everything back."""
        stop_all(list(self._programs.values()))
        self._programs.clear()
        with contextlib.suppress(StackError):  # it is gone, and its keys with it
            self.store.remove_own((PRICES, CHANGES))
        super().down()
