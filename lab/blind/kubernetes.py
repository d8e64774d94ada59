"""The scene of a blind session on a release in a cluster (`lab.stacks.kubernetes`).

`kubectl exec` starts every program of the session in a container that the release has anyway (`AT`). The program is
`python -m lab.blind.launcher`, and learns over stdin what to be, so the cluster shows the same for every cause. It ends
with its stdin, even if the session is killed. Nothing is installed, and a session needs the rights of a run only.

The session's storefront runs beside the release's, in the same pod, because both share the outbox that the invalidator
empties. The session has customers of its own, too. Those of the release rest meanwhile, so its storefront has nothing
to do, and neither has its Locust.

A server whose limits are its requests keeps its share of the processor, whatever its neighbours do, and no right of a
run would take it away. So one cause cannot be played here (`WITHOUT`).
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

from lab import ROOT
from lab.blind.inbox import Order
from lab.blind.prices import CHANGES, PRICES
from lab.blind.scene import SCENARIO, tell
from lab.blind.sizing import LINK, PROGRAMS, WEB
from lab.errors import StackError
from lab.stacks.base import Say
from lab.stacks.guest import READY_S
from lab.stacks.http import Locust, Storefront
from lab.stacks.kubectl import END, Forward, Inside, Kubectl, KubectlChild
from lab.stacks.kubernetes import KubernetesStack, examine
from lab.stacks.pods import release_in
from lab.stacks.processes import Child, stop_all

SERVERS = ("redis", "valkey")
"""A session takes the first of these that the release has. Dragonfly searches in another way."""
WITHOUT = ("noisy-neighbour",)
CUSTOMERS = "customers"
DASHBOARDS, DASHBOARDS_PORT = "grafana", 3000
AT = {
    LINK: "invalidator",
    WEB: "invalidator",
    CUSTOMERS: "locust",
    **dict(zip(PROGRAMS, ("warmer", "warmer", "invalidator", "invalidator"), strict=True)),
}
"""Program → the role of the container that it is started in. The memory that the chart allows is enough for all there:
the invalidator may have twice as much as a storefront, and the warmer rests."""
LINK_PORT, WEB_PORT, OPERATIONS_PORT, LOCUST_PORT = 16379, 18000, 19101, 18089
"""Ports of the session's programs in their pods, beside those of the release."""
SERVE = ("-c", "app/gunicorn_conf.py", "app.web:application")
BEGIN = 'echo "{\\"pid\\": $$}"; exec python -m lab.blind.launcher'
"""Says the program's number among the container's processes, and becomes it."""
LISTENING = """
import socket, sys, time
for port in sys.argv[1:]:
    while socket.socket().connect_ex(("127.0.0.1", int(port))):
        time.sleep(0.05)
"""
"""Waits until a program of the container listens on each port. A port-forward would end at a connection to a port where
nothing listens yet."""
TICKS = 100.0
"""/proc/PID/stat counts in hundredths of a second (USER_HZ)."""


class KubernetesBlindStack(KubernetesStack):
    """One server of a release, with a storefront, customers and programs of the session beside those of the release."""

    healthy_samples = 3
    core: int | None = None

    def __init__(self, folder: Path, namespace: str) -> None:
        """Raises `UsageError` for a bad name of a namespace, and `StackError` as `examine` does."""
        kubectl = Kubectl(namespace)
        has = {each.service for each in release_in(kubectl)[1]}
        server = next((name for name in SERVERS if name in has), SERVERS[0])
        super().__init__(SCENARIO, examine(server, kubectl), folder, seed=1)
        self._child_of: dict[str, KubectlChild] = {}
        self._forwards: list[Forward] = []
        self._counters: list[Inside] = []
        self._restorer: Child | None = None
        self._of_release: tuple[Storefront, Locust] | None = None
        self._link_url = ""
        self._dashboards = ""

    def up(self, say: Say) -> None:
        """Pause all other load, empty the server, put a storefront behind the link. Raises `StackError`."""
        super().up(say)
        self.web.use("index", SCENARIO.scan_count)
        self._start_restorer()
        say("starting the programs of other teams")
        address = {"PROBE_URL": self._inner_url}
        self._start(LINK, "lab.blind.latency_proxy", ["127.0.0.1", str(LINK_PORT)], address)
        for name in PROGRAMS:
            self._start(name, "lab.blind.tenants", [name], address)
        say("putting a storefront behind the link")
        behind = {"APP_STORE_URL": f"redis://127.0.0.1:{LINK_PORT}/0", "PORT": str(WEB_PORT)}
        behind |= {"APP_OPERATIONS_PORT": str(OPERATIONS_PORT)}
        self._start(WEB, "lab.blind.faulty_pool", list(SERVE), behind)
        shop = f"http://{self._scene.of('web').address}:{WEB_PORT}"
        words = ["-f", "loadtest/locustfile.py", "--host", shop, "--autostart", "--loglevel", "WARNING"]
        words += ["--web-port", str(LOCUST_PORT)]
        self._start(CUSTOMERS, "lab.blind.customers", words, {})
        self._open_ways()
        self._start_counters()

    def _start_restorer(self) -> None:
        """Start the restorer: a process that outlives this one.

        After a session that was killed it replaces the server's pod, whose settings were changed.
        """
        self._restorer = Child(
            "restorer",
            [sys.executable, "-m", "lab.blind.restorer"],
            self._logs / "restorer.log",
            cwd=ROOT,
            pipe=True,
            stdin_open=True,
        )
        orphaned = [["delete", "pod", self._container.pod, "--wait=false"]]
        tell(self._restorer, {"namespace": self._kubectl.namespace, "commands": [], "orphaned": orphaned})
        if not next(self._restorer.lines(), b""):
            self._restorer.check()

    def _start(self, name: str, module: str, arguments: list[str], env: dict[str, str]) -> None:
        """Start the launcher in a container of the release, and tell it which program to be."""
        at = self._scene.of(AT[name])
        words = ["exec", "--stdin", at.pod, "--container", at.service, "--", "sh", "-c", BEGIN]
        log = self._logs / f"{name}.log"
        child = KubectlChild(name, self._kubectl.words(*words), log, pipe=True, stdin_open=True)
        self._child_of[name] = child
        tell(child, {"module": module, "arguments": arguments, "env": env})

    def _pid(self, name: str) -> int:
        """A program's number among its container's processes. Raises `StackError` when it did not start."""
        child = self._child_of[name]
        try:
            return int(json.loads(next(child.lines()))["pid"])
        except (StopIteration, ValueError, KeyError, TypeError):
            child.check()
            raise StackError(f"{name} does not start in {self._scene.of(AT[name]).service}.") from None

    def _open_ways(self) -> None:
        """Open ways to the session's storefront, link and Locust, and wait until they answer."""
        self._await_listening("web", LINK_PORT, WEB_PORT)
        self._await_listening("locust", LOCUST_PORT)
        pod, locust = self._scene.of("web").pod, self._scene.of("locust").pod
        shop = Forward(self._kubectl, pod, [LINK_PORT, WEB_PORT], self._logs / "forward-session.log")
        load = Forward(self._kubectl, locust, [LOCUST_PORT], self._logs / "forward-customers.log")
        self._forwards += [shop, load]
        if self._scene.has(DASHBOARDS):
            pages = Forward(
                self._kubectl,
                self._scene.containers[DASHBOARDS].pod,
                [DASHBOARDS_PORT],
                self._logs / "forward-dashboards.log",
            )
            self._forwards.append(pages)
            self._dashboards = pages.url(DASHBOARDS_PORT)
        self._link_url = f"{shop.url(LINK_PORT, 'redis')}/0"
        self._of_release = (self.web, self.locust)
        self.web = Storefront(f"web-{self._scene.server}", shop.url(WEB_PORT))
        self.locust = Locust(f"locust-{self._scene.server}", load.url(LOCUST_PORT))
        self.web.wait("/readyz", READY_S, self.check)
        self.locust.wait("/load", READY_S, self.check)

    def _await_listening(self, role: str, *ports: int) -> None:
        """Wait until programs of a container listen on these ports. Raises `StackError` after `READY_S`."""
        at = self._scene.of(role)
        words = ["exec", at.pod, "--container", at.service, "--", "python", "-c", LISTENING, *map(str, ports)]
        child = KubectlChild(
            f"waiting in {at.service}", self._kubectl.words(*words), self._logs / f"waiting-{role}.log"
        )
        end = time.monotonic() + READY_S
        try:
            while child.alive():
                self.check()
                if time.monotonic() > end:
                    raise StackError(f"nothing listens on port {ports[-1]} of {at.pod} after {READY_S:g} s.")
                time.sleep(0.1)
            if child.exit_code():
                raise StackError(child.end_message())
        finally:
            child.stop()

    def _start_counters(self) -> None:
        """Start a shell in each container with programs of other teams, which reads their CPU time when asked.

        So does one in the server's for the time that its main thread waited for a core.
        """
        files: dict[str, list[str]] = {}
        for name in PROGRAMS[1:]:
            files.setdefault(AT[name], []).append(f"/proc/{self._pid(name)}/stat")
        files["server"] = ["/proc/1/task/1/schedstat"]
        for role, names in files.items():
            at = self._scene.of(role)
            script = f'while read -r n; do cat {" ".join(names)}; echo "{END}$n"; done'
            log = self._logs / f"counter-{role}.log"
            self._counters.append(Inside(self._kubectl, at.pod, at.service, ("sh", "-c", script), log))

    def _count(self, counter: Inside) -> list[list[str]]:
        """The words of each line that a counter reads now; nothing if it does not answer."""
        with contextlib.suppress(StackError):
            counter.ask()
            return [line.rpartition(")")[2].split() for line in counter.answer()]
        return []

    def check(self) -> None:
        """Raise `StackError` if a container of this server, a way to it, a probe or a program has ended."""
        super().check()
        for child in self._child_of.values():
            child.check()
        for forward in self._forwards:
            forward.check()

    def order(self, name: str, order: Order) -> None:
        """Send an order to the link, the storefront or a program; it replaces the earlier one."""
        tell(self._child_of[name], order)

    def limit_memory(self, headroom: int) -> None:
        """Set the server's maxmemory `headroom` bytes above what it holds now, until the end of the session."""
        self._undo.append(self.server.limit_memory(headroom))

    def shown(self) -> dict[str, str]:
        """The addresses of all parts, by name."""
        parts = {
            "server": self.server.url.removesuffix("/0"),
            "link": f"{self._link_url.removesuffix('/0')} (the storefront's way to the server)",
            "storefront": self.web.base_url,
            "metrics of the storefront": f"{self.web.base_url}/metrics",
            "metrics of the invalidator": f"{self.invalidator.base_url}/metrics",
            "Locust": self.locust.base_url,
        }
        return parts | ({"dashboards": self._dashboards} if self._dashboards else {})

    def pids(self) -> dict[str, int]:
        """Always empty: the scene's processes run in the cluster."""
        return {}

    def link_url(self) -> str:
        """URL of the link, through which the storefront reaches the server."""
        return self._link_url

    def waited_s(self) -> float | None:
        """See `lab.blind.observer.SessionTarget`; the server is the first process of its container."""
        with contextlib.suppress(IndexError, ValueError):
            return int(self._count(self._counters[-1])[0][1]) / 1e9
        return None

    def neighbours_s(self) -> float:
        """See `lab.blind.observer.SessionTarget`."""
        rows = [row for counter in self._counters[:-1] for row in self._count(counter)]
        return sum(int(row[11]) + int(row[12]) for row in rows) / TICKS  # proc(5): utime and stime

    def down(self) -> None:
        """End the session's programs, remove their keys, and put everything back."""
        stop_all(list(self._child_of.values()))
        self._child_of.clear()
        for counter in self._counters:
            counter.close()
        self._counters.clear()
        with contextlib.suppress(StackError):  # the server is gone, and its keys with it
            self.server.remove_own((PRICES, CHANGES))
        if self._restorer:
            tell(self._restorer, {"in order": True})
            self._restorer.finish(READY_S)
        if self._of_release:  # what is put back is asked of them
            self.web.close()
            self.locust.close()
            self.web, self.locust = self._of_release
        super().down()
        for forward in self._forwards:
            forward.close()
        self._forwards.clear()
