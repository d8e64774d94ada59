"""The Kubernetes stack: a run against one server of a release of the chart (deploy/README.md), in a namespace.

What a run pauses, holds and puts back is told in `lab.stacks.guest`. The lab itself may be anywhere: it reaches pages
and the server through port-forwards of kubectl, for settings and counters only. Whatever measures or loads is a process
in the container probe-NAME, which reaches the server as the storefront does. Such processes end when their stdin does,
even if the lab is killed.

The server is emptied by deleting its pod, for which its StatefulSet makes a new one. Scenarios need a fresh process:
its memory, its counters, its slow log, and in one claim the restart itself; FLUSHALL gives none of these. SHUTDOWN, by
which the control page restarts a server, would give them, but the kubelet waits longer each time before it starts the
same container again (10 s, 20 s, 40 s), and a run empties the server up to a dozen times.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab.errors import StackError
from lab.results.histograms import values_of
from lab.scenarios.model import Scenario
from lab.stacks.base import Say
from lab.stacks.containers import PORTS
from lab.stacks.guest import READY_S, GuestStack
from lab.stacks.http import Locust, Storefront
from lab.stacks.kubectl import END, Forward, Inside, Kubectl, KubectlChild
from lab.stacks.pods import PodContainer, ServerPods, find_pods, node_facts, pods_of, require_rights
from lab.stacks.podusage import PodMeter, PodUsage, Reading, require_metrics
from lab.stacks.processes import Child, memory_mb
from lab.stacks.server_stats import ServerObserver

CLOCK = f"import sys, time\nfor n in sys.stdin: print(time.time()); print('{END}' + n.strip(), flush=True)"
ROUNDS = 5
NEAR_S = 0.1
"""Clocks that differ by less than this count as one: it is mostly the way to the cluster."""
APART_S = 1.0
"""The most by which this machine's clock may differ from a node's."""
PINGS_PER_S = 200
REPLACED_S = 90.0
"""Seconds until a deleted pod must run again."""


@dataclass(frozen=True)
class Examined:
    """A scene that a run can be made on. `offset_s`: how far the clock of the probe's node is ahead of this machine's.

    `readings`: a first reading of each part that is judged. `facts`: about the server's node.
    """

    scene: ServerPods
    readings: dict[str, Reading]
    offset_s: float
    facts: dict[str, str | int | float]

    @property
    def quota(self) -> float | None:
        """The server's limit in cores, None without one."""
        return self.readings["store"].quota


def examine(server: str, kubectl: Kubectl) -> Examined:
    """Look whether a run on a server of the release can succeed. Changes nothing.

    Raises `StackError` in one line: see `find_pods`, `require_rights`, `require_metrics`, `clock_offset`.
    """
    scene = find_pods(server, kubectl)
    require_rights(kubectl)
    readings = require_metrics(scene)
    return Examined(scene, readings, clock_offset(scene), node_facts(scene))


def clock_offset(scene: ServerPods) -> float:
    """How far the clock of the probe's node is ahead of this machine's, in seconds.

    Raises `StackError` where that is more than `APART_S`: the probes' figures could not be matched with the phases.
    """
    probe = scene.of("probe")
    rounds: list[tuple[float, float]] = []
    with TemporaryDirectory(prefix="latency-lab-") as folder:
        clock = Inside(
            scene.kubectl, probe.pod, probe.service, ("python", "-c", CLOCK), Path(folder) / "clock.log"
        )
        try:
            for _ in range(ROUNDS):
                before = time.time()
                clock.ask()
                there = float(clock.answer()[0])
                took = time.time() - before
                rounds.append((took, there - (before + took / 2)))
        except (ValueError, IndexError) as error:
            raise StackError(f"{probe.service} does not tell the time: {error}") from error
        finally:
            clock.close()
    _, offset = min(rounds)  # the quickest round says most exactly when the clock was read
    if abs(offset) > APART_S:
        raise StackError(
            f"the clocks of this machine and of the node of {probe.service} differ by {abs(offset):.1f} s, and a run "
            f"bears {APART_S:g} s: set this machine's by a time server."
        )
    return offset if abs(offset) > NEAR_S else 0.0


class Ways:
    """The ways into a scene: port-forwards, made when they are first needed. Only for the main thread."""

    def __init__(self, scene: ServerPods, logs: Path) -> None:
        self._scene, self._logs = scene, logs
        self._forwards: dict[str, Forward] = {}

    @property
    def server(self) -> str:
        """The server under test."""
        return self._scene.server

    def has(self, service: str) -> bool:
        """True if the release has this service."""
        return self._scene.has(service)

    def env(self, service: str) -> dict[str, str]:
        """The environment that a service was started with."""
        return self._scene.env(service)

    def others(self) -> list[str]:
        """The other servers of the release whose storefront and load run."""
        return self._scene.others()

    def begin(self, container: PodContainer) -> Forward:
        """The forward to all ports that a run needs of a container's pod; it is started if there is none yet."""
        if container.pod not in self._forwards:
            services = [each.service for each in self._scene.found if each.pod == container.pod]
            ports = [port for each in services or [container.service] if (port := self._port(each))]
            log = self._logs / f"forward-{container.component or container.pod}.log"
            self._forwards[container.pod] = Forward(self._scene.kubectl, container.pod, ports, log)
        return self._forwards[container.pod]

    def _port(self, service: str) -> int | None:
        """The port of a service that a run asks; None if it asks none."""
        role = "server" if service == self.server else service.partition("-")[0]
        return PORTS.get(role)

    def address(self, role: str, server: str | None = None) -> str:
        """Base URL of a role's HTTP interface, as seen from here. Raises `StackError` where it cannot be reached."""
        service = role if self.has(role) else f"{role}-{server or self.server}"
        return self.begin(self._scene.containers[service]).url(PORTS[role])

    def server_url(self, container: PodContainer) -> str:
        """URL of the server in this pod, as seen from here. Raises `StackError` where it cannot be reached."""
        return f"{self.begin(container).url(PORTS['server'], 'redis')}/0"

    def end(self, pod: str) -> None:
        """End the forward to a pod that will be deleted."""
        if forward := self._forwards.pop(pod, None):
            forward.close()

    def check(self) -> None:
        """Raise `StackError` if a forward has ended."""
        for forward in self._forwards.values():
            forward.check()

    def mend(self) -> None:
        """Start the forwards that have ended once more, at the same addresses."""
        for forward in self._forwards.values():
            forward.again()

    def close(self) -> None:
        """End all forwards."""
        for pod in list(self._forwards):
            self.end(pod)


class ForwardedObserver(ServerObserver):
    """The observer behind a port-forward. What a round trip takes is measured in the cluster, where the probes are."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        shown: str,
        share: Callable[[], float],
        ping_us: Callable[[int], list[float]],
    ) -> None:
        super().__init__(url, timeout_s, shown, share)
        self._ping_us = ping_us
        self._ahead_s: float | None = None

    def ping_us(self, times: int = 200) -> list[float]:
        """Round-trip times of PING in µs, from the probe's container: the network floor of an idle server."""
        return self._ping_us(times)

    def slowlog(self, newest: int = 512) -> list[tuple[str, float, str, int]]:
        """Entries of the slow log as in `ServerObserver`, their moments told by this machine's clock."""
        if self._ahead_s is None:
            self._ahead_s = self._clock_ahead()
        return [(number, at - self._ahead_s, name, us) for number, at, name, us in super().slowlog(newest)]

    def _clock_ahead(self) -> float:
        """How far the server's clock is ahead of this machine's, in seconds; 0 if by less than `NEAR_S`."""
        rounds = []
        for _ in range(ROUNDS):
            before = time.time()
            seconds, micros = self._ask("TIME", self._client.time)
            took = time.time() - before
            rounds.append((took, seconds + micros / 1e6 - (before + took / 2)))
        _, ahead = min(rounds)  # as in `clock_offset`
        return ahead if abs(ahead) > NEAR_S else 0.0


class Elsewhere(KubectlChild):
    """A probe or a load on a node whose clock is `offset_s` ahead. Its lines are told by this machine's clock."""

    offset_s = 0.0

    def lines(self) -> Iterator[bytes]:
        """Its JSON lines as they come, until it ends."""
        for line in super().lines():
            yield shifted(line, self.offset_s) if self.offset_s else line


def shifted(line: bytes, offset_s: float) -> bytes:
    """A JSON line whose moment `t` is told by a clock that is `offset_s` behind; any other line as it is."""
    with contextlib.suppress(ValueError):
        told: Any = json.loads(line)
        if isinstance(told, dict) and isinstance(told.get("t"), (int, float)):
            return json.dumps({**told, "t": round(told["t"] - offset_s, 6)}).encode() + b"\n"
    return line


class KubernetesStack(GuestStack):
    """One server of a release in a cluster as a run's scene.

    `host`: facts about the server's node. `share`: the share of a core that the server may use.
    """

    name = "kubernetes"
    settings_in = "the chart's templates"

    def __init__(self, scenario: Scenario, examined: Examined, folder: Path, seed: int) -> None:
        self._scene = examined.scene
        self._ways = Ways(self._scene, folder / "logs")
        super().__init__(scenario, self._ways, folder, seed)
        self._kubectl = self._scene.kubectl
        self._offset_s = examined.offset_s
        self._usage: PodUsage | None = None
        self._container = self._scene.of("server")
        self.host = examined.facts
        self.share = min(1.0, examined.quota or 1.0)

    def up(self, say: Say) -> None:
        """Open the ways in, pause all other load, empty the server. Raises `StackError` naming what does not answer."""
        scene, ways = self._scene, self._ways
        if self.share < 1:
            say(
                f"{scene.server} may use {self.share:g} of a core: near the knee its limit holds it, and the run will "
                "not be valid. Give it a whole one (resources.server.cpu)."
            )
        say("opening port-forwards")
        for service in self._asked():
            ways.begin(scene.containers[service])  # all at once; each is waited for when its address is asked
        self._usage = PodUsage(self._kubectl, scene.parts(), self._logs)
        self.web = Storefront(f"web-{scene.server}", ways.address("web"))
        self.invalidator = Storefront(f"invalidator-{scene.server}", ways.address("invalidator"))
        self.locust = Locust(f"locust-{scene.server}", ways.address("locust"))
        self.server = self._observe_server()
        self._usage.read()
        self._take_over(say)

    def _observe_server(self) -> ForwardedObserver:
        """An observer of the server in the pod that it runs in now."""
        return ForwardedObserver(
            self._ways.server_url(self._container),
            self._scenario.timeout_s,
            f"{self._scene.server} in {self._kubectl.namespace}",
            lambda: self.share,
            self._ping_us,
        )

    def _asked(self) -> list[str]:
        """The services whose pods a run reaches through forwards."""
        scene = self._scene
        names = [scene.server, f"web-{scene.server}", f"locust-{scene.server}"]
        names += ["control"] if scene.has("control") else []
        return names + [f"{role}-{other}" for other in scene.others() for role in ("web", "locust")]

    def _inside(self, name: str, module: str, arguments: list[str]) -> Child:
        child = Elsewhere(
            name,
            self._in_probe(module, [*arguments, "--until-stdin-ends"], "--stdin"),
            self._logs / f"{name}.log",
            pipe=True,
            stdin_open=True,
        )
        child.offset_s = self._offset_s
        return child

    def _in_probe(self, module: str, arguments: list[str], *options: str) -> list[str]:
        """The command that runs a module of the load in the probe's container.

        The URL may stand on a command line: it is the address inside the namespace, and a server of the chart has no
        password.
        """
        probe = self._scene.of("probe")
        words = ["exec", *options, probe.pod, "--container", probe.service, "--"]
        words += ["env", f"PROBE_URL={self._inner_url}", "python", "-m", f"loadtest.{module}", *arguments]
        return self._kubectl.words(*words)

    def _ping_us(self, times: int) -> list[float]:
        """Round-trip times of PING in µs, sent by a probe in the cluster. Raises `StackError` when there is none."""
        seconds = max(1.0, times / PINGS_PER_S)
        words = ["--command", "ping", "--rate", str(PINGS_PER_S), "--duration", f"{seconds:g}"]
        words += ["--interval-seconds", f"{seconds:g}", "--name", "ping"]
        child = KubectlChild("probe-ping", self._in_probe("probe", words), self._logs / "ping.log", pipe=True)
        try:
            waited = [
                float(value) for line in child.lines() for value in values_of(json.loads(line)["service"])
            ]
        except (ValueError, KeyError) as error:
            raise StackError(f"a probe in the cluster says something unexpected: {error!r}") from error
        finally:
            child.stop()
        if not waited:
            raise StackError(
                f"a probe in the cluster gets no answer: {child.last_words() or 'no reason is told'}"
            )
        return waited

    def empty(self, shards: int = 1) -> None:
        """Empty the server by replacing its pod, and make the ways to it anew.

        Raises `StackError` if the pod does not come back, or more than `LEFTOVERS` keys are left.
        """
        old = self._container
        assert self._usage is not None, "the stack is not up"
        self._usage.end("store")
        self._ways.end(old.pod)
        self._kubectl.ask("delete", "pod", old.pod, "--wait=false")
        self._container = self._await_pod(old)
        # The storefront finds the new server first: a port-forward ends as soon as the pod refuses a connection.
        self.web.wait("/readyz", READY_S, self.check)
        observer = self.server
        self.server = self._observe_server()
        observer.close()
        self._usage.begin("store", self._container)
        self._settle()

    def _await_pod(self, old: PodContainer) -> PodContainer:
        """Wait until another pod of the server runs. Raises `StackError`, with the reason that Kubernetes tells."""
        end, why = time.monotonic() + REPLACED_S, "no new pod was made"
        while True:
            for found in pods_of(self._kubectl):
                if found.component == old.component and found.uid != old.uid:
                    if found.running:
                        return found
                    why = found.why
            if time.monotonic() > end:
                raise StackError(f"{old.pod} does not run again after {REPLACED_S:g} s: {why}.")
            self.check()
            time.sleep(0.2)

    def check(self) -> None:
        """Raise `StackError` if a container of this server, a port-forward or a probe has ended."""
        if self._usage and (ended := self._usage.ended()):
            raise StackError(self._explain(ended[0]))
        self._ways.check()
        super().check()

    def _explain(self, container: PodContainer) -> str:
        """What became of a container whose shell has ended."""
        why = "its connection was lost"
        with contextlib.suppress(StackError):
            now = [each for each in pods_of(self._kubectl) if each.uid == container.uid]
            mine = next((each for each in now if each.service == container.service), None)
            if mine is None:
                why = "its pod was deleted"
            elif mine.restarts > container.restarts or not mine.running:
                why = "it ended, and Kubernetes starts it again"
        return (
            f"{container.service} is gone in the middle of the run, {why}: "
            f"kubectl --namespace {self._kubectl.namespace} describe pod {container.pod}"
        )

    def meter(self) -> PodMeter:
        """A new meter of this server's containers, and of their nodes."""
        assert self._usage is not None, "the stack is not up"
        return PodMeter(self._usage.read)

    def memory_mb(self) -> dict[str, float]:
        """Memory by part in MB; the lab's own, on its own machine, is ``lab``."""
        found = self._usage.read() if self._usage else {}
        return {
            **{part: each.reading.memory_mb for part, each in found.items()},
            "lab": memory_mb(os.getpid()),
        }

    def down(self) -> None:
        """End the probes, put everything back, let the story go on, and end the port-forwards."""
        self._end_programs()
        self._ways.mend()  # after a lost connection everything is put back all the same
        self._put_back()
        if self._usage:
            self._usage.close()
        self._ways.close()
