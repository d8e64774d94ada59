"""The native stack: server, storefront, load generator and probes as processes of this machine, on 127.0.0.1."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab import ROOT
from lab.errors import StackError, Unfit, UsageError
from lab.scenarios.model import LoadSpec, ProbeSpec, Scenario
from lab.server.address import Route
from lab.server.http import Locust, Metrics, Storefront, scrape
from lab.server.processes import (
    Child,
    CpuMeter,
    Waits,
    free_port,
    memory_mb,
    port_taken,
    raise_if_interrupted,
    stop_all,
    waits,
)
from lab.server.server_stats import ServerObserver
from lab.server.servers import CLUSTER, Server
from lab.stacks import foreign
from lab.stacks.base import LoadProcess, Probe, Say, probe_arguments
from lab.stacks.foreign import KEY_PREFIX
from lab.stacks.own_core import OwnCore
from lab.stacks.quota import allowed

CACHED_PREFIXES = (
    f"{KEY_PREFIX}:",
    *(f"{KEY_PREFIX}-{rest}" for rest in ("index:", "hash:", "generation:", "warmed", "e")),
)
"""Prefixes of all the storefront's keys, in every layout and epoch."""
READY_S = 30.0
NODES = "nodes.conf"
"""The file in which a server in cluster mode notes its slots. It is removed before an empty start."""


class ProcessMeter:
    """A meter of CPU time of processes that come and go. `elsewhere` returns CPU seconds of parts on other machines.

    `waits` returns the waits of the measured parts' threads for a core.
    """

    def __init__(
        self,
        seconds: Callable[[], dict[str, float]],
        elsewhere: Callable[[], dict[str, float]] = dict,
        waits: Callable[[], dict[str, Waits]] = dict,
    ) -> None:
        self._seconds, self._elsewhere, self._waits = seconds, elsewhere, waits
        self._meter = CpuMeter()

    def sample(self) -> tuple[dict[str, float], dict[str, float]]:
        """See `lab.stacks.base.Meter`."""
        return self._meter.shares(self._seconds(), self._elsewhere(), self._waits())


class NativeStack:
    """Starts and ends the parts of a run as processes of this machine.

    With `route` the lab does not own the server: it is neither started nor restarted, and only keys with the
    lab's prefix are written and, in the end, removed.
    """

    name = "native"
    key_prefix = KEY_PREFIX
    load_file = "loadtest/locustfile.py"
    host = "127.0.0.1"

    def __init__(
        self,
        scenario: Scenario,
        kind: Server,
        folder: Path,
        seed: int,
        route: Route | None = None,
        port: int | None = None,
    ) -> None:
        self._scenario = scenario
        self._kind = kind
        self._folder = folder
        self._seed = seed
        self._external = route
        self._children: list[Child] = []
        self._loads: list[Child] = []
        self._server_child: Child | None = None
        self._replica: Child | None = None
        self._taken: foreign.Taken | None = None
        self._restorer: foreign.Restorer | None = None
        self.cannot = dict(kind.cannot)
        self.has_replica = scenario.replica and route is None
        if scenario.replica and not self.has_replica:
            self.cannot["replica-unharmed"] = (
                "the lab does not add a replica to a server that it did not start"
            )
        self.server_port = port or free_port()
        if route is None and port_taken(self.server_port):
            raise UsageError(f"port {port} is taken. Choose another --port, or leave it out.")
        self.server_url = route.url if route else f"redis://127.0.0.1:{self.server_port}/0"
        shown = route.shown if route else ""
        self.server = ServerObserver(self.server_url, scenario.timeout_s, shown, self._server_share)
        self._core = OwnCore(scenario.server_core and route is None)
        (folder / "logs").mkdir(parents=True, exist_ok=True)

    @property
    def web_url(self) -> str:
        """The storefront's address."""
        return self.web.base_url

    def _server_share(self) -> float:
        """Return the share of a core that the lab's own server may use: less than 1 under a quota."""
        return allowed(self._server_child.pid) if self._server_child else 1.0

    @property
    def owns_server(self) -> bool:
        """True if the lab started the server, and so may restart it."""
        return self._external is None

    def up(self, say: Say) -> None:
        """Start everything and wait until all of it answers. Raises `StackError`, which names a part that did not."""
        self._core.keep()
        if self._external is None:
            say(f"starting {self._kind.name}")
            self._start_server()
            self.server.configure_slowlog(self._scenario.slowlog_threshold_us)
        else:
            self._take_over(self._external)
        say("starting the storefront and the load generator")
        self._start_service()

    def _take_over(self, route: Route) -> None:
        """Lock the server of --url for this run, and start the restorer, which restores the changed settings."""
        self.server.wait(5.0)
        self._taken = foreign.take_over(self.server, route)
        self._restorer = foreign.Restorer(route, self._taken, self._folder / "logs" / "restorer.log")
        self.cannot["restart-restores"] = "the lab does not restart a server that it did not start"
        try:
            self.server.configure_slowlog(self._scenario.slowlog_threshold_us)
        except StackError:
            self.cannot["victims-not-slow"] = "this server does not let its slow log be set up"

    def _start_server(self) -> None:
        command = self._kind.command(self.server_port, str(self._folder / "logs"))
        command += [
            word for pair in self._scenario.server_settings.items() for word in (f"--{pair[0]}", pair[1])
        ]
        in_cluster_mode = CLUSTER in self._scenario.server_settings
        if in_cluster_mode:  # by default the nodes' own port is 10,000 above the server's, which may be none
            command += ["--cluster-port", str(free_port())]
            (self._folder / "logs" / NODES).unlink(missing_ok=True)
        child = Child(self._kind.name, command, self._folder / "logs" / "server.log")
        self._server_child = child
        self._children.insert(0, child)
        self._core.give(child.pid)
        self.server.wait(READY_S, child.check)
        if in_cluster_mode:
            self._begin_cluster(child)
        if self.has_replica:
            self._start_replica()

    def _begin_cluster(self, child: Child) -> None:
        """Give the server all slots. Raises `Unfit` if a search for a pattern of one slot visits all."""
        self.server.take_all_slots(READY_S, child.check)
        if not self.server.searches_one_slot():
            server = " ".join(self.server.identity())
            raise Unfit(
                f"{server} searches all slots, whatever the pattern; {self._scenario.id} needs Redis 8 or "
                "Valkey 8 at least: leave --server out for the embedded one.",
                server,
            )

    def _start_replica(self) -> None:
        """Start a replica, or after a restart of the server connect the running replica to it again."""
        if self._replica is None:
            self._replica_port = free_port()
            command = self._kind.command(self._replica_port, str(self._folder / "logs"))
            self._replica = Child("replica", command, self._folder / "logs" / "replica.log")
            self._children.append(self._replica)
        replica = ServerObserver(self._replica_url)
        try:
            replica.wait(READY_S, self._replica.check)
            replica.follow("127.0.0.1", self.server_port, READY_S, self._replica.check)
        finally:
            replica.close()

    @property
    def _replica_url(self) -> str:
        return f"redis://127.0.0.1:{self._replica_port}/0"

    def _start_service(self) -> None:
        web, locust = self._port("web"), self._port("locust")
        state = self._folder / "state"
        app = {
            "APP_STORE_URL": self.server_url,
            "APP_STATE_DIR": str(state),
            "APP_SERVER_NAME": self._kind.name,
            "APP_KEY_PREFIX": self.key_prefix,
            "APP_STRATEGY": self._scenario.phases[0].strategy,
            "APP_SCAN_COUNT": str(self._scenario.scan_count or self._kind.scan_count),
            "APP_FRAGMENTS_PER_USER": str(self._scenario.fragments_per_user),
            "APP_STORE_TIMEOUT_SECONDS": f"{self._scenario.timeout_s:g}",
            "APP_STORE_CLUSTER": "1" if self._scenario.node_share else "0",
            "OTEL_TRACES_EXPORTER": "none",  # no trace backend natively; spans and sampling work all the same
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.1",
        }
        python = sys.executable
        self._add(
            "web",
            [python, "-m", "gunicorn", "-c", "app/gunicorn_conf.py", "app.web:application"],
            app | {"HOST": self.host, "PORT": str(web)},
        )
        invalidator, warmer = (
            self._add(
                name,
                [python, "-m", f"app.{name}"],
                app | {"APP_METRICS_HOST": self.host, "APP_METRICS_PORT": str(self._metrics_port(name))},
            )
            for name in ("invalidator", "warmer")
        )
        self.web = Storefront("the storefront", f"http://127.0.0.1:{web}")
        self.web.wait("/readyz", READY_S, self.check)
        self._add(
            "locust",
            [python, "-m", "locust", "-f", self.load_file, "--host", self.web.base_url, "--autostart",
             "--web-host", self.host, "--web-port", str(locust)],
            {
                "LOADTEST_KEYS": "0",
                "LOADTEST_READS_PER_SECOND": "0",
                "LOADTEST_EVENTS_PER_SECOND": "0",
                "LOADTEST_TIMEOUT_SECONDS": f"{self._scenario.patience_s:g}",
            },
        )  # fmt: skip
        self.locust = Locust("Locust", f"http://127.0.0.1:{locust}")
        self.locust.wait("/load", READY_S, self.check)
        self.invalidator = Storefront("the invalidator", self._metrics_address(invalidator))
        self._metrics_address(warmer)

    def _port(self, name: str) -> int:
        """Return a free port for a process that needs one."""
        return free_port()

    def _metrics_port(self, name: str) -> int:
        """Return the port for a process's metrics; 0: it takes a free one, and prints it."""
        return 0

    def _add(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        # One BLAS thread: nothing here computes, and idle thread pools cost memory.
        child = Child(
            name, command, self._folder / "logs" / f"{name}.log", env | {"OMP_NUM_THREADS": "1"}, ROOT
        )
        self._children.append(child)
        return child

    def _metrics_address(self, child: Child) -> str:
        end = time.monotonic() + READY_S
        while True:
            child.check()
            found = re.search(r"metrics on (http://\S+)/metrics", child.log.read_text(errors="replace"))
            if found:
                return found.group(1).replace("//0.0.0.0:", "//127.0.0.1:")
            if time.monotonic() > end:
                raise StackError(f"{child.name} is not ready after {READY_S:g} s.")
            time.sleep(0.05)

    def observe(self) -> Metrics:
        """Scrape the metrics of the storefront and the invalidator."""
        return scrape([self.web.text("/metrics"), self.invalidator.text("/metrics")])

    def start_probe(self, spec: ProbeSpec, rate: float) -> Child:
        """Start an open-loop probe as a process of its own; its lines come on a pipe."""
        url, tag = self._probed(spec)
        child = Child(
            f"probe-{spec.name}",
            [sys.executable, "-m", "loadtest.probe", *probe_arguments(spec, rate, self._seed, tag)],
            self._folder / "logs" / f"probe-{spec.name}.log",
            # Not on the command line, where every user could read a password.
            env={"PROBE_URL": url},
            cwd=ROOT,
            pipe=True,
        )
        self._core.give(child.pid)
        self._children.append(child)
        return child

    def _probed(self, spec: ProbeSpec) -> tuple[str, str]:
        """Return the address of a probe's server, and the hash tag of its keys ('' for none)."""
        return self._replica_url if spec.replica else self.server_url, ""

    def start_load(self, spec: LoadSpec, arguments: list[str]) -> Child:
        """Start a load as a process of its own; its lines come on a pipe."""
        name = f"load-{spec.name}"
        child = Child(
            name,
            [sys.executable, "-m", f"loadtest.incidents.{spec.module}", *arguments],
            self._folder / "logs" / f"{name}.log",
            env={"PROBE_URL": self.server_url, "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            pipe=True,
        )
        self._loads.append(child)
        return child

    def end_load(self, load: LoadProcess) -> None:
        """End a load, and wait for it."""
        for child in [child for child in self._loads if child is load]:
            child.finish()
            self._loads.remove(child)

    def empty(self, shards: int = 1) -> None:
        """Empty the server by restarting it; on a server of --url remove the storefront's keys instead."""
        if self._external is not None:
            self.server.remove_own(CACHED_PREFIXES)
            return
        self._stop_server()
        self._start_server()
        self.server.configure_slowlog(self._scenario.slowlog_threshold_us)

    def _stop_server(self) -> None:
        assert self._server_child is not None
        self._children.remove(self._server_child)
        self._server_child.stop()

    def check(self) -> None:
        """Raise `StackError` if any process has ended, and KeyboardInterrupt if an earlier one was dropped."""
        raise_if_interrupted()
        for child in self._children:
            child.check()

    def _parts(self) -> dict[str, Child]:
        """Return all processes by their names in a run's records; the server's is `store`."""
        return {
            "store" if child is self._server_child else child.name: child
            for child in (*self._children, *self._loads)
        }

    def pids(self) -> dict[str, int]:
        """Return process ids by name."""
        return {name: child.pid for name, child in self._parts().items()}

    def meter(self) -> ProcessMeter:
        """Return a new meter. A sample covers the processes of its moment, and the phase's loads that have ended."""
        if self._external is None:
            return ProcessMeter(self._own_seconds, waits=self._thread_waits)
        if self._external.is_here:
            return ProcessMeter(lambda: self._own_seconds() | self._foreign_server_seconds())
        return ProcessMeter(self._own_seconds, self._foreign_server_seconds)

    def _own_seconds(self) -> dict[str, float]:
        """Return CPU seconds so far of each process of the run."""
        return {name: child.cpu_seconds() for name, child in self._parts().items()}

    def _thread_waits(self) -> dict[str, Waits]:
        """Return the waits of the threads of server and probes for a core; empty if the server has a quota.

        Linux counts the time in which a thread is throttled as waiting.
        """
        if not self._server_child or self._server_share() < 1:
            return {}
        probes = [child.pid for name, child in self._parts().items() if name.startswith("probe-")]
        found = {thread: seconds for pid in probes for thread, seconds in waits(pid).items()}
        return {"store": waits(self._server_child.pid), "probe": found}

    def _foreign_server_seconds(self) -> dict[str, float]:
        """Return the CPU seconds that a server of --url reports; empty if it reports none."""
        seconds = self.server.cpu_seconds()
        return {} if seconds is None else {"store": seconds}

    def memory_mb(self) -> dict[str, float]:
        """Return resident memory of each process with its children, in MB; the lab's own is `lab`."""
        return {name: memory_mb(pid) for name, pid in {**self.pids(), "lab": os.getpid()}.items()}

    def forget(self, probe: Probe) -> None:
        """End a probe that is no longer needed."""
        for child in [child for child in self._children if child is probe]:
            child.stop()
            self._children.remove(child)

    def _put_back(self, taken: foreign.Taken) -> None:
        """Restore the server of --url. If that fails, a line on stderr says why and what to do."""
        why = None
        if self._restorer:
            why = self._restorer.end()
        else:  # the restorer was never started
            try:
                foreign.put_back(self.server, taken.settings, taken.token)
            except StackError as error:
                why = str(error)
        self._taken = None
        if why:
            again = foreign.cleaning(self._external) if self._external else ""
            print(f"could not clean up: {why} When the server answers, run: {again}", file=sys.stderr)

    def down(self) -> None:
        """End every process; on a server of --url also remove the lab's keys and restore its settings."""
        server = [self._server_child] if self._server_child else []
        stop_all(self._loads)
        self._loads.clear()
        stop_all([child for child in self._children if child not in server])
        if self._taken is not None:
            self._put_back(self._taken)
        stop_all(server)
        self._children.clear()
        self._core.release()
        for client in ("web", "locust", "invalidator"):
            if hasattr(self, client):
                getattr(self, client).close()
        self.server.close()
