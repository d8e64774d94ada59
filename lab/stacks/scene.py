"""A run on a server of the scene that `docker compose up` has brought up, from the container `lab` of the same network.

The run is a process of that container, and so are its storefront, its loads and its probes: this is the native stack,
with a server that the scene started. Nothing else loads the scene meanwhile: the control page rests while the run has
its lease. When the lease ends, the control page restarts the server, so that the settings of compose.yaml hold again,
and goes on with its own load.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

from lab.errors import StackError, UsageError
from lab.scenarios.model import Scenario
from lab.server.http import Http
from lab.server.inside import COMPOSE, CONTROL
from lab.server.processes import CpuMeter
from lab.server.server_stats import ServerObserver
from lab.server.servers import Server, scene_url
from lab.stacks.base import Say
from lab.stacks.native import READY_S, NativeStack, ProcessMeter

PORTS = {"web": 8000, "invalidator": 9102, "warmer": 9103, "locust": 8089}
"""Ports of a run's processes in the container `lab`, where Prometheus scrapes them."""
LEASE_S = 60.0
REST_S = 3.0
REST_MOST = 0.4
"""The largest share of a core that counts as the scene's own use at rest: any more is that of other programs."""


def require_server(server: Server) -> None:
    """Raise `UsageError` if the scene does not have this server running."""
    try:
        socket.getaddrinfo(server.name, None)
    except OSError:
        option = f" --profile {server.profile}" if server.profile else ""
        raise UsageError(
            f"{server.name} is not part of a running scene: docker compose{option} up -d. With --stack native the run "
            "starts a server of its own in this container."
        ) from None


class Lease:
    """A lease of the scene: the control page rests, and restarts `server` at its end, a minute after a crash."""

    def __init__(self, control: Http, server: str, lease_s: float = LEASE_S) -> None:
        self._control, self._server, self._lease_s = control, server, lease_s
        self._over = threading.Event()
        self._error: StackError | None = None
        self._ask()
        threading.Thread(target=self._renew, name="lease", daemon=True).start()

    def _ask(self) -> None:
        self._control.ask("POST", "/api/pause", {"seconds": self._lease_s, "server": self._server})

    def _renew(self) -> None:
        while not self._over.wait(self._lease_s / 3):
            try:
                self._ask()
            except StackError as error:
                self._error = error
                return

    def check(self) -> None:
        """Raise `StackError` if the lease could not be renewed."""
        if self._error:
            raise self._error

    def end(self) -> None:
        """End the lease: the scene goes on."""
        self._over.set()
        self._control.ask("POST", "/api/resume", {})


class SceneStack(NativeStack):
    """The native stack on a server of the running scene, which it restarts (and so empties) but did not start."""

    name = COMPOSE
    host = "0.0.0.0"  # Prometheus scrapes from another container

    def __init__(self, scenario: Scenario, kind: Server, folder: Path, seed: int) -> None:
        super().__init__(scenario, kind, folder, seed)
        self.server.close()
        self.server_url = scene_url(kind)
        self.server = ServerObserver(self.server_url, scenario.timeout_s)
        self._control = Http("control", os.environ[CONTROL])
        self._lease: Lease | None = None
        self._at_rest = 0.0
        if scenario.replica:
            self.has_replica = False
            self.cannot["replica-unharmed"] = "no server of the compose stack has a replica"

    def up(self, say: Say) -> None:
        """Pause the scene, restart the server, and start the rest. Raises `StackError` if a part does not answer."""
        say("pausing the scene")
        self._lease = Lease(self._control, self._kind.name)
        super().up(say)

    def _start_server(self) -> None:
        """Restart the server, which empties it, and give it the scenario's settings."""
        self.server.wait(READY_S)
        before = self.server.snapshot().run_id
        self.server.shutdown()
        end = time.monotonic() + READY_S
        while True:
            try:
                if self.server.snapshot().run_id != before:
                    break
            except StackError:
                pass  # it is starting
            if time.monotonic() > end:
                raise StackError(f"{self._kind.name} did not come back within {READY_S:g} s.")
            time.sleep(0.1)
        self.server.configure(self._scenario.server_settings)

    def _start_service(self) -> None:
        self._at_rest = self._use_at_rest()
        super()._start_service()

    def _use_at_rest(self) -> float:
        """Return the share of a core that the scene's containers use at rest, which does not disturb a run."""
        meter = CpuMeter()
        meter.shares({})
        time.sleep(REST_S)
        _, machine = meter.shares({})
        return min(REST_MOST, machine["others"])

    def _stop_server(self) -> None:
        """Do nothing: `_start_server` restarts it."""

    def _port(self, name: str) -> int:
        return PORTS[name]

    _metrics_port = _port

    def check(self) -> None:
        """Raise `StackError` if a process of the run has ended, or the lease was lost."""
        super().check()
        if self._lease:
            self._lease.check()

    def meter(self) -> ProcessMeter:
        """Return a new meter; its part `scene` is the scene's use at rest."""

        def seconds() -> dict[str, float]:
            scene = {"scene": self._at_rest * time.monotonic()}
            return self._own_seconds() | self._foreign_server_seconds() | scene

        return ProcessMeter(seconds)

    def memory_mb(self) -> dict[str, float]:
        """Return resident memory of each process in MB; for the server its used_memory."""
        return {**super().memory_mb(), "store": self.server.snapshot().memory_mb}

    def down(self) -> None:
        """End every process, and the lease: the control page restarts the server and goes on."""
        try:
            super().down()
        finally:
            lease, self._lease = self._lease, None
            if lease:
                try:
                    lease.end()
                except StackError as error:
                    print(f"the scene rests for another minute: {error}", file=sys.stderr)
            self._control.close()
