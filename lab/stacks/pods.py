"""Finds the release of the chart in a namespace, and in it the containers that make up one server's scene.

Each container is called as its service in `compose.yaml`. Nothing here changes anything in the cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab.errors import StackError
from lab.stacks.containers import PORTS, ROLES
from lab.stacks.kubectl import Forward, Kubectl
from lab.stacks.servers import find_server

CHART = "redis-latency-lab"
SELECTOR = f"app.kubernetes.io/name={CHART}"
INSTANCE = "app.kubernetes.io/instance"
RIGHTS = (
    ("list", "pods", ""),
    ("get", "pods", ""),
    ("delete", "pods", ""),
    ("create", "pods", "exec"),
    ("create", "pods", "portforward"),
)
"""What a run must be allowed: verb, resource, part of it. deploy/README.md has them as a Role."""
UNITS = {
    "": 1,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
FACTS = (
    "cat /proc/sys/kernel/osrelease; uname -m; grep -m1 MemTotal /proc/meminfo; grep -c ^processor /proc/cpuinfo; "
    "grep -m1 '^model name' /proc/cpuinfo || true"
)
"""Prints the node's kernel, machine, memory, number of cores, and processor where the kernel names it."""


@dataclass(frozen=True)
class PodContainer:
    """A container of a pod. `memory`: its limit in bytes, 0 for none. `why`: why it does not run, if it says so.

    `address` is the pod's inside the cluster. `uid` is the pod's: a pod that is replaced by one of the same name has
    another.
    """

    service: str
    pod: str
    uid: str
    node: str
    component: str
    env: dict[str, str] = field(default_factory=dict)
    memory: int = 0
    running: bool = True
    ready: bool = True
    restarts: int = 0
    why: str = ""
    address: str = ""


@dataclass(frozen=True)
class ServerPods:
    """The part of a release that belongs to one server, and the rest of it."""

    kubectl: Kubectl
    release: str
    server: str
    found: tuple[PodContainer, ...]

    @cached_property
    def containers(self) -> dict[str, PodContainer]:
        """Containers by service; of a scaled service any one."""
        return {container.service: container for container in self.found}

    def of(self, role: str) -> PodContainer:
        """The container of a role: ``server``, ``web``, ``invalidator``, ``warmer``, ``locust`` or ``probe``."""
        return self.containers[self.server if role == "server" else f"{role}-{self.server}"]

    def has(self, service: str) -> bool:
        """True if the release has this service."""
        return service in self.containers

    def env(self, service: str) -> dict[str, str]:
        """The environment that a service was started with."""
        return self.containers[service].env

    def others(self) -> list[str]:
        """The other servers of the release whose storefront and load run."""
        names = [service.removeprefix("web-") for service in self.containers if service.startswith("web-")]
        return [name for name in names if name != self.server and self.has(f"locust-{name}")]

    def parts(self) -> dict[str, PodContainer]:
        """The containers of this server's scene by the names that a run's records have for them."""
        own = {role: self.of(role) for role in ROLES if role != "probe"}
        return {"store": self.of("server"), **own, "probe-containers": self.of("probe")}

    @contextlib.contextmanager
    def server_forward(self) -> Iterator[str]:
        """The server's URL, through a port-forward that ends with the block."""
        with TemporaryDirectory(prefix="latency-lab-") as folder:
            forward = Forward(
                self.kubectl, self.of("server").pod, [PORTS["server"]], Path(folder) / "forward.log"
            )
            try:
                yield f"{forward.url(PORTS['server'], 'redis')}/0"
            finally:
                forward.close()


def read_pods(answer: Any) -> list[PodContainer]:
    """The containers in what ``kubectl get pods --output json`` said, without those of pods that are ending."""
    found = []
    for pod in answer["items"]:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        if meta.get("deletionTimestamp"):
            continue
        told = {each["name"]: each for each in status.get("containerStatuses", ())}
        for raw in spec["containers"]:
            state = told.get(raw["name"], {})
            now = state.get("state", {})
            waiting = now.get("waiting") or now.get("terminated") or {}
            found.append(
                PodContainer(
                    service=raw["name"],
                    pod=meta["name"],
                    uid=meta["uid"],
                    node=spec.get("nodeName", ""),
                    component=meta.get("labels", {}).get("app.kubernetes.io/component", ""),
                    env={each["name"]: each["value"] for each in raw.get("env", ()) if "value" in each},
                    memory=in_bytes(raw.get("resources", {}).get("limits", {}).get("memory", "0")),
                    running="running" in now,
                    ready=bool(state.get("ready")),
                    restarts=int(state.get("restartCount", 0)),
                    why=str(waiting.get("reason") or _unplaced(status) or status.get("phase", "")),
                    address=str(status.get("podIP", "")),
                )
            )
    return found


def _unplaced(status: dict[str, Any]) -> str:
    """Why no node takes a pod, in the scheduler's words; empty if one does."""
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason", ""))
    return ""


def in_bytes(quantity: str) -> int:
    """The bytes of a quantity as Kubernetes writes it, such as 640Mi; 0 for what is none."""
    digits = quantity.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    try:
        return int(float(digits) * UNITS[quantity.removeprefix(digits)])
    except (ValueError, KeyError):
        return 0


def pods_of(kubectl: Kubectl, *options: str) -> list[PodContainer]:
    """The containers of the chart's pods in the namespace. Raises `StackError` when they cannot be listed."""
    answer = kubectl.json("get", "pods", "--selector", SELECTOR, *options)
    try:
        return read_pods(answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StackError(f"kubectl get pods says something unexpected: {error!r}") from error


def release_in(kubectl: Kubectl) -> tuple[str, list[PodContainer]]:
    """The release in a namespace, and its containers. Raises `StackError` where there is none, or more than one."""
    answer = kubectl.json("get", "pods", "--selector", SELECTOR)
    try:
        names = sorted({pod["metadata"]["labels"][INSTANCE] for pod in answer["items"]})
        found = read_pods(answer)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StackError(f"kubectl get pods says something unexpected: {error!r}") from error
    if not names:
        raise StackError(
            f"the namespace {kubectl.namespace} has no release of the lab: deploy/README.md has the command."
        )
    if len(names) > 1:
        raise StackError(
            f"the namespace {kubectl.namespace} has {len(names)} releases of the lab, {' and '.join(names)}: "
            "a run needs one that is alone in its namespace."
        )
    return names[0], found


def servers_in(found: list[PodContainer]) -> list[str]:
    """The servers of a release that have a storefront."""
    return sorted(each.service.removeprefix("web-") for each in found if each.service.startswith("web-"))


def _scene_of(server: str, kubectl: Kubectl) -> ServerPods:
    """The release in a namespace, as the scene of one of its servers. Raises `StackError` if it has no such server."""
    release, found = release_in(kubectl)
    scene = ServerPods(kubectl, release, server, tuple(found))
    if not scene.has(server):
        known = servers_in(found)
        has = f"it has {', '.join(known)}: --server {known[0]}" if known else "it has no server at all"
        raise StackError(f"the release {release} in {kubectl.namespace} has no {server}; {has}.")
    return scene


def _require_running(container: PodContainer, namespace: str) -> None:
    if not container.running:
        raise StackError(
            f"{container.service} does not run ({container.why}): "
            f"kubectl --namespace {namespace} describe pod {container.pod}"
        )


@contextlib.contextmanager
def server_in(namespace: str, server: str) -> Iterator[str]:
    """The URL of a server of the release in a namespace, through a port-forward that ends with the block.

    Raises `UsageError` for a bad name or an unknown server, and `StackError` in one line where it cannot be reached.
    """
    find_server(server)
    scene = _scene_of(server, Kubectl(namespace))
    _require_running(scene.of("server"), namespace)
    with scene.server_forward() as url:
        yield url


def find_pods(server: str, kubectl: Kubectl) -> ServerPods:
    """The scene of one server of the release in a namespace.

    Raises `StackError` in one line: no kubectl, no cluster, no right to look, no release or two, no such server, a part
    that does not run or is not ready.
    """
    scene = _scene_of(server, kubectl)
    release, space = scene.release, kubectl.namespace
    for service in (server, *(f"{role}-{server}" for role in ROLES)):
        if not scene.has(service):
            raise StackError(
                f"the release {release} in {space} has no {service}: helm upgrade brings it back."
            )
        container = scene.containers[service]
        _require_running(container, space)
        if not container.ready:
            raise StackError(
                f"{service} is not ready: kubectl --namespace {space} describe pod {container.pod}"
            )
    return scene


def missing_rights(kubectl: Kubectl) -> list[str]:
    """The rights in `RIGHTS` that the user lacks here, such as ``create pods/exec``. Raises `StackError`."""
    with ThreadPoolExecutor(thread_name_prefix="right") as at_once:
        allowed = list(at_once.map(lambda right: kubectl.may(*right), RIGHTS))
    return [
        f"{verb} {resource}{f'/{part}' if part else ''}"
        for (verb, resource, part), may in zip(RIGHTS, allowed, strict=True)
        if not may
    ]


def require_rights(kubectl: Kubectl) -> None:
    """Raise `StackError` that names the rights which a run needs and the user lacks."""
    if missing := missing_rights(kubectl):
        raise StackError(
            f"no right in the namespace {kubectl.namespace} to {', '.join(missing)}: "
            "deploy/README.md has the Role that a run needs."
        )


def versions(kubectl: Kubectl, node: str) -> dict[str, str]:
    """The versions of the API server and, if the user may look at nodes, of a node's kubelet and container runtime."""
    found: dict[str, str] = {}
    with contextlib.suppress(StackError, KeyError, TypeError):
        found["kubernetes"] = str(kubectl.json("version")["serverVersion"]["gitVersion"])
    with contextlib.suppress(StackError, KeyError, TypeError):
        told = kubectl.json("get", "node", node)["status"]["nodeInfo"]
        found |= {"kubelet": str(told["kubeletVersion"]), "runtime": str(told["containerRuntimeVersion"])}
    return found


def node_facts(scene: ServerPods) -> dict[str, str | int | float]:
    """Facts about the server's node, as `run.json` has them about a machine. Raises `StackError`."""
    server = scene.of("server")
    said = scene.kubectl.ask("exec", server.pod, "--container", server.service, "--", "sh", "-c", FACTS)
    lines = said.splitlines()
    facts: dict[str, str | int | float] = {"nodes": len({each.node for each in scene.parts().values()})}
    with contextlib.suppress(ValueError, IndexError):
        kernel, machine, memory, cores = lines[:4]
        facts |= {
            "system": f"Linux {kernel}",
            "machine": machine,
            "memory_gb": round(int(memory.split()[1]) * 1024 / 1e9, 1),
            "cores": int(cores),
            "processor": lines[4].partition(":")[2].strip() if len(lines) > 4 else "unknown",
        }
    return {**facts, **versions(scene.kubectl, server.node)}
