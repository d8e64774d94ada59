"""The compose stack: a run against one server of the scene that `docker compose up` has brought up.

A run is a guest there. It starts and ends only its own probes and loads. Nothing else acts during the run: the control
page's story is paused, and the other servers' load and growth stand still. At the end load, growth, strategy and slow
log are put back as they were found, and the story goes on. The server under test is restarted (and so emptied) as often
as the scenario wants.

Probes and loads are processes in the container probe-NAME, which reaches the server without a detour. When `docker
exec` is ended, the process that it started goes on; so probes and loads end when their stdin does, even if the lab is
killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab.errors import StackError
from lab.scenarios.model import LoadSpec, ProbeSpec, Scenario
from lab.stacks.base import LoadProcess, Probe, Say, probe_arguments
from lab.stacks.containers import PORTS, ROLES, ServerContainers, StoryPause, Watch, hold_growth, hold_load
from lab.stacks.http import CLEARING, Http, Locust, Metrics, Storefront, scrape
from lab.stacks.processes import Child, memory_mb, raise_if_interrupted, stop_all
from lab.stacks.server_stats import ServerObserver
from lab.stacks.servers import SERVERS
from lab.stacks.usage import ContainerMeter, Usage, usage_of

READY_S = 60.0
STILL_S = 120.0
LEFTOVERS = 10_000
"""The most keys that probes and late events may have written into a server that was restarted a moment ago."""


class ComposeStack:
    """One server of the running compose stack as a run's scene."""

    name = "compose"
    owns_server = True
    has_replica = False

    def __init__(self, scenario: Scenario, scene: ServerContainers, folder: Path, seed: int) -> None:
        self._scenario = scenario
        self._scene = scene
        self._docker = scene.docker
        self._seed = seed
        self.cannot = dict(SERVERS[scene.server].cannot)
        if scenario.replica:
            self.cannot["replica-unharmed"] = "no server of the compose stack has a replica"
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._probes: list[Child] = []
        self._loads: list[Child] = []
        self._pause: StoryPause | None = None
        self._control: Http | None = None
        self._undo: list[Callable[[], object]] = []
        self._watch: Watch | None = None
        self._usage: Usage | None = None
        env = scene.env(f"web-{scene.server}")
        self.key_prefix = env.get("APP_KEY_PREFIX", "shop")
        self._inner_url = env.get("APP_STORE_URL", f"redis://{scene.server}:6379/0")
        self.web_url = f"http://web-{scene.server}:{PORTS['web']}"
        each = env.get("APP_FRAGMENTS_PER_USER", "20")
        if each != str(scenario.fragments_per_user):
            raise StackError(
                f"web-{scene.server} caches {each} fragments a user, {scenario.id} needs "
                f"{scenario.fragments_per_user}: take APP_FRAGMENTS_PER_USER out of compose.yaml."
            )
        self.web = Storefront(f"web-{scene.server}", scene.address("web"))
        self.invalidator = Storefront(f"invalidator-{scene.server}", scene.address("invalidator"))
        self.locust = Locust(f"locust-{scene.server}", scene.address("locust"))
        self.server = ServerObserver(scene.server_url(scene.of("server")), scenario.timeout_s)

    def up(self, say: Say) -> None:
        """Pause all other load and empty the server. Raises `StackError` naming what does not answer."""
        scene = self._scene
        if scene.replaced:
            say(f"started again with ports on 127.0.0.1, to be within reach: {', '.join(scene.replaced)}")
        self._watch = Watch(self._docker, [scene.of(role) for role in ("server", *ROLES)], self._logs)
        self._usage = usage_of(self._docker, scene.by_part())
        self._undo.append(self._usage.close)
        self._take_over(say)

    def _inside(self, name: str, module: str, arguments: list[str]) -> Child:
        words = ["docker", "exec", "-i", "-e", "PROBE_URL", self._scene.of("probe").id]
        words += ["python", "-m", f"loadtest.{module}", *arguments, "--until-stdin-ends"]
        return Child(
            name,
            words,
            self._logs / f"{name}.log",
            env={"PROBE_URL": self._inner_url},  # passed on by name (-e), so that no process list shows it
            pipe=True,
            stdin_open=True,
        )

    def empty(self, shards: int = 1) -> None:
        """Empty the server by restarting its container. Raises `StackError` if more than `LEFTOVERS` keys are left."""
        container = self._scene.of("server")
        if self._watch:
            self._watch.expect(container)
        self._docker.ask("restart", "-t", "5", container.id)
        [again] = self._docker.inspect(container.id)
        end = time.monotonic() + READY_S
        while True:  # the address may have changed
            try:
                url = self._scene.server_url(again)
                break
            except StackError:
                if time.monotonic() > end:
                    raise
                self.check()
                time.sleep(0.1)
        if url != self.server.url:
            self.server.close()
            self.server = ServerObserver(url, self._scenario.timeout_s)
        self._settle()

    def check(self) -> None:
        """Raise `StackError` if a container of this server, a probe or the pause of the story has ended.

        Raises KeyboardInterrupt if one was raised before and swallowed.
        """
        raise_if_interrupted()
        if self._watch:
            self._watch.check()
        if self._pause:
            self._pause.check()
        for child in self._probes:
            child.check()

    def meter(self) -> ContainerMeter:
        """A new meter of all containers of the stack."""
        assert self._usage is not None, "the stack is not up"
        return ContainerMeter(self._usage.cpu_seconds)

    def memory_mb(self) -> dict[str, float]:
        """Memory by part in MB; the lab's own is ``lab``."""
        used = self._usage.memory_mb() if self._usage else {}
        return {**used, "lab": memory_mb(os.getpid())}

    def down(self) -> None:
        """End the probes, put everything back, and let the story go on."""
        self._end_programs()
        if self._watch:
            self._watch.close()
        self._put_back()

    def _take_over(self, say: Say) -> None:
        """Pause all other load, note what is to be put back, and empty the server."""
        scene = self._scene
        if scene.has("control"):
            say("pausing the story")
            self._control = Http("control", scene.address("control"))
            self._pause = StoryPause(self._control)
            self._undo.append(self._pause.end)
        for other in scene.others():
            say(f"holding the load and the growth of {other}")
            self._undo.append(hold_growth(scene, other))
            self._undo.append(hold_load(scene, other))
        self.web.wait("/readyz", READY_S, self.check)
        self.server.wait(READY_S, self.check)
        self._remember()
        say(f"emptying {scene.server}")
        self.locust.load(0.0, 0.0, 1)
        self._await_events()
        self.web.fill(0)
        self.empty()

    def _remember(self) -> None:
        """Note this server's load, growth, strategy and settings, so that `down` can put them back."""
        web, locust, server = self.web, self.locust, self.server
        invalidation = web.ask("GET", "/settings/invalidation")
        warming = web.ask("GET", "/settings/warming")
        load = locust.pause()
        threshold, length = server.slowlog_settings()
        settings = server.settings({"maxmemory", *self._scenario.server_settings})  # a load may set maxmemory
        self._undo += [
            lambda: self.server.configure(settings),
            lambda: self.web.use(invalidation["strategy"], invalidation["scan_count"]),
            lambda: self.web.fill(warming["target_keys"], warming["keys_per_second"]),
            lambda: locust.resume(load),
            lambda: self.server.configure_slowlog(threshold, length),
        ]

    def _await_events(self) -> None:
        """Finish the story's events with `CLEARING`: else they would scan during the calibration.

        Raises `StackError` when some are left after `STILL_S`.
        """
        end = time.monotonic() + STILL_S
        if (seen := self.observe()).pending + seen.in_flight:
            self.web.use(CLEARING, self._scenario.scan_count)
        while True:
            seen = self.observe()
            if seen.pending + seen.in_flight == 0:
                return
            if time.monotonic() > end:
                raise StackError(
                    f"{seen.pending:.0f} events are still under way after {STILL_S:g} s without a new one: "
                    "stop everything on the control page, and try again."
                )
            self.check()
            time.sleep(0.1)

    def _settle(self) -> None:
        """Wait for a server that was restarted, and give it the scenario's settings.

        Raises `StackError` if more than `LEFTOVERS` keys are left.
        """
        self.server.wait(READY_S, self.check)
        self.server.configure(self._scenario.server_settings)
        self.server.configure_slowlog(self._scenario.slowlog_threshold_us)
        self.web.wait("/readyz", READY_S, self.check)
        if (keys := self.server.keys_everywhere()) > LEFTOVERS:
            raise StackError(
                f"{self._scene.server} came back with {keys:,} keys: its persistence must be off in "
                "compose.yaml."
            )

    def observe(self) -> Metrics:
        """Scrape the metrics of the storefront and the invalidator."""
        return scrape([self.web.text("/metrics"), self.invalidator.text("/metrics")])

    def start_probe(self, spec: ProbeSpec, rate: float) -> Child:
        """Start an open-loop probe beside the scene's own, where the server is reached without a detour."""
        child = self._inside(f"probe-{spec.name}", "probe", probe_arguments(spec, rate, self._seed))
        self._probes.append(child)
        return child

    def start_load(self, spec: LoadSpec, arguments: list[str]) -> Child:
        """Start a load where the probes are. It ends when its stdin does, as they do."""
        child = self._inside(f"load-{spec.name}", f"incidents.{spec.module}", arguments)
        self._loads.append(child)
        return child

    def end_load(self, load: LoadProcess) -> None:
        """Tell a load to end, and wait for it."""
        for child in [child for child in self._loads if child is load]:
            child.finish()
            self._loads.remove(child)

    def forget(self, probe: Probe) -> None:
        """End a probe that is no longer needed."""
        for child in [child for child in self._probes if child is probe]:
            child.stop()
            self._probes.remove(child)

    def _end_programs(self) -> None:
        """End the probes and the loads."""
        stop_all([*self._loads, *self._probes])
        self._loads.clear()
        self._probes.clear()

    def _put_back(self) -> None:
        """Put everything back, let the story go on, and close the clients. What fails is said on stderr."""
        for undo in reversed(self._undo):
            try:
                undo()
            except StackError as error:
                print(f"could not put everything back: {error}", file=sys.stderr)
        self._undo.clear()
        for client in ("web", "invalidator", "locust", "server", "_control"):
            if found := getattr(self, client, None):
                found.close()
