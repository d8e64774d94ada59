"""Values under which the chart is looked at: options of `helm template`, by what they are about."""

from __future__ import annotations

from tests.deploy.helmkit import ROOM

DEFAULT = "two servers, and who watches them"
ALL = "all servers"
COMPARED = {
    DEFAULT: (),
    "one server": ("--set", "servers={redis}"),
    ALL: ("--set", "servers={dragonfly,redis,valkey}"),
}
"""Values with which a release is what Compose starts, but for the servers that it lacks."""
MATRIX: dict[str, tuple[str, ...]] = {
    **COMPARED,
    "Dragonfly alone": ("--set", "servers={dragonfly}"),
    "a group of a room": ("--set", "observability.shared=true"),
    "the room": ("--values", str(ROOM)),
    "a group with a name outside": (
        "--set",
        "observability.shared=true,ingress.enabled=true,ingress.className=nginx,ingress.host=team-7.lab.example",
    ),
    "the room with a name outside": (
        "--values",
        str(ROOM),
        "--set",
        "ingress.enabled=true,ingress.host=grafana.lab.example",
    ),
    "somebody's cluster": (
        "--set",
        "nodeSelector.pool=measured,probePriority.create=false,probePriority.className=measured,storage.className=fast,"
        "imagePullSecrets={registry}",
    ),
    "an admin of the namespace": ("--set", "probePriority.create=false,quota=false"),
    "with the lab's commands": ("--set", "lab.enabled=true"),
    "small limits": (
        "--set",
        "resources.server.cpu=300,resources.probe.cpu=100,resources.web.cpu=20,spare.pods=0",
    ),
}
