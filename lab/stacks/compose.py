"""The compose stack: a run against one server of the scene that `docker compose up` has brought up.

What a run pauses, holds and puts back is told in `lab.stacks.guest`.

Probes and loads are processes in the container probe-NAME, which reaches the server without a detour. When `docker
exec` is ended, the process that it started goes on; so probes and loads end when their stdin does, even if the lab is
killed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from lab.errors import StackError
from lab.scenarios.model import Scenario
from lab.stacks.base import Say
from lab.stacks.containers import ROLES, ServerContainers, Watch
from lab.stacks.guest import READY_S, GuestStack
from lab.stacks.http import Locust, Storefront
from lab.stacks.processes import Child, memory_mb
from lab.stacks.server_stats import ServerObserver
from lab.stacks.usage import ContainerMeter, Usage, usage_of


class ComposeStack(GuestStack):
    """One server of the running compose stack as a run's scene."""

    name = "compose"
    settings_in = "compose.yaml"

    def __init__(self, scenario: Scenario, scene: ServerContainers, folder: Path, seed: int) -> None:
        super().__init__(scenario, scene, folder, seed)
        self._scene = scene
        self._docker = scene.docker
        self._watch: Watch | None = None
        self._usage: Usage | None = None
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
        """Raise `StackError` if a container of this server or a probe has ended."""
        if self._watch:
            self._watch.check()
        super().check()

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
