"""A scene of real processes that a cluster seems to run, for the tests of the Kubernetes stack."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.stacks.foreign import KEY_PREFIX
from lab.stacks.native import NativeStack
from lab.stacks.servers import SERVERS
from tests.lab.stacks.kubekit import FakeKubectl, container, pod, release
from tests.lab.stacks.running import SCENARIO, Neighbour


@dataclass
class Scene:
    """A scene of real processes that a cluster seems to run."""

    kubectl: FakeKubectl
    control: Any
    neighbour: Neighbour
    native: NativeStack

    def pods(self) -> list[dict[str, Any]]:
        """The pods as they are now."""
        found: list[dict[str, Any]] = json.loads((self.kubectl.folder / "pods.json").read_text())
        return found

    @property
    def server_pid(self) -> int:
        """The id of the server's current process, which a new pod changes."""
        return int(next(each for each in self.pods() if each["pod"] == "valkey-0")["containers"][0]["pid"])


def bring_up(kubectl: FakeKubectl, control: Any, tmp_path: Path) -> Iterator[Scene]:
    """Valkey with its whole storefront, a neighbour called redis, and the control page."""
    native = NativeStack(SCENARIO, SERVERS["embedded"], tmp_path / "scene", seed=1)
    (tmp_path / "scene" / "server").mkdir()
    neighbour = Neighbour()
    try:
        native.up(lambda text: None)
        ports = {
            "valkey": {6379: native.server_port},
            "web-valkey": {8000: urlsplit(native.web.base_url).port or 0},
            "invalidator-valkey": {9102: urlsplit(native.invalidator.base_url).port or 0},
            "locust-valkey": {8089: urlsplit(native.locust.base_url).port or 0},
        }
        again = SERVERS["embedded"].command(native.server_port, str(tmp_path / "scene" / "server"))
        made = release("valkey", ports, pid=native.pids()["store"], restart=again)
        for each in made[1]["containers"]:
            each["env"] = {"APP_STORE_URL": native.server_url, "APP_KEY_PREFIX": KEY_PREFIX}
        kubectl.has(
            [
                *made,
                pod("storefront-redis", container("web-redis", {8000: neighbour.port})),
                pod("locust-redis", container("locust-redis", {8089: neighbour.port})),
                pod("control", container("control", {8080: control.port})),
            ]
        )
        found = Scene(kubectl, control, neighbour, native)
        try:
            yield found
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.server_pid, signal.SIGKILL)
    finally:
        native.down()
        neighbour.close()
