"""The scene of a blind session in the container `lab`: the native one, on the Redis of the scene that is up.

Grafana shows that server, and this storefront.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from lab.blind.scene import BlindStack
from lab.stacks.scene import SceneStack

SERVER = "redis"


class SceneBlindStack(BlindStack, SceneStack):
    """The native scene of a session on the scene's server. Its processes are children of the session."""

    healthy_samples = 3
    """With Grafana, Prometheus and Tempo on the same machine, healthy samples of 5 s had a p99 of 1.7 to 5.3 ms for a
    GET, and of 11 to 39 ms for a page. Compared with the lowest of them every other sample would be a symptom."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SERVER)

    def shown(self) -> dict[str, str]:
        """Return the addresses of all parts in the scene's network, by name."""
        host = socket.gethostbyname(socket.gethostname())  # pages answer to an address, not to any name
        parts = super().shown() | {"server": self.server_url.removesuffix("/0")}
        parts = {name: place.replace("127.0.0.1", host) for name, place in parts.items()}
        return parts | {"dashboards": os.environ.get("CONTROL_GRAFANA_URL", "")}

    def waited_s(self) -> float | None:
        """Always None: the server's process is in another container."""
        return None
