"""`bin/lab doctor --scene --namespace NAME`: whether a workshop, and a run, could begin on a release in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.errors import StackError
from lab.stacks.asking import Finding
from lab.stacks.containers import PORTS
from lab.stacks.kubectl import Forward, Kubectl
from lab.stacks.kubernetes import clock_offset
from lab.stacks.pods import PodContainer, ServerPods, missing_rights, release_in, servers_in, versions
from lab.stacks.podusage import Reading, require_metrics
from lab.stacks.rehearsal import Pages, Rehearsal, look_at
from lab.stacks.servers import SERVERS

GRAFANA, GRAFANA_PORT = "grafana", 3000
ROLE = "deploy/README.md has the Role that a run needs"


def rehearse_release(namespace: str, folder: Path, say: Callable[[Finding], None]) -> Rehearsal:
    """Check the release in a namespace: rights, pods, what validity is judged by, then all pages (`look_at`).

    Without the right to port-forward the pages are left out. Raises `UsageError` for a bad name, and `StackError` where
    kubectl, the cluster or the release is missing.
    """
    kubectl = Kubectl(namespace)
    release, found = release_in(kubectl)
    missing = missing_rights(kubectl)
    with ExitStack() as opened:
        logs = Path(opened.enter_context(TemporaryDirectory(prefix="latency-lab-")))
        pages = Pages("", "", dict)
        if "create pods/portforward" not in missing:
            pages = _pages(kubectl, found, logs, opened)
        return look_at(pages, _findings(kubectl, release, found, missing), folder, say)


def _pages(kubectl: Kubectl, found: list[PodContainer], logs: Path, opened: ExitStack) -> Pages:
    """The pages of a release, through port-forwards that end with `opened`."""
    running = {each.service: each for each in found if each.running}

    def forward(service: str, port: int) -> Callable[[], str]:
        if service not in running:
            return str
        way = Forward(kubectl, running[service].pod, [port], logs / f"{service}.log")
        opened.callback(way.close)
        return lambda: way.url(port)

    control, grafana = forward("control", PORTS["control"]), forward(GRAFANA, GRAFANA_PORT)
    locusts = {
        SERVERS[name].title: forward(f"locust-{name}", PORTS["locust"])
        for name in servers_in(found)
        if name in SERVERS and f"locust-{name}" in running
    }
    return Pages(control(), grafana(), lambda: {title: address() for title, address in locusts.items()})


def _findings(
    kubectl: Kubectl, release: str, found: list[PodContainer], missing: list[str]
) -> Iterator[Finding]:
    told = versions(kubectl, found[0].node if found else "")
    yield Finding(
        "cluster", True, ", ".join(f"{name} {version}" for name, version in told.items()) or "it answers"
    )
    yield Finding(
        "rights", not missing, f"missing: {', '.join(missing)}; {ROLE}" if missing else "all that a run needs"
    )
    servers = servers_in(found)
    yield Finding("release", True, f"{release}, with {', '.join(servers) or 'no server (a room)'}")
    yield _pods(found)
    if "create pods/exec" in missing:
        return
    for server in servers:
        yield _metrics(ServerPods(kubectl, release, server, tuple(found)))
    if not any(each.service == GRAFANA for each in found):
        yield Finding("dashboards", True, "the room's: bin/lab doctor --scene --namespace ROOM looks at them")


def _pods(found: list[PodContainer]) -> Finding:
    ill = [
        f"{each.service} ({each.why if not each.running else 'not ready'})"
        for each in found
        if not (each.running and each.ready)
    ]
    return Finding("containers", not ill, "; ".join(ill) or f"all {len(found)} ready")


def _metrics(scene: ServerPods) -> Finding:
    """Whether a run on this server could be judged: what its containers can read, and the clocks."""
    what = f"validity, {scene.server}"
    try:
        readings = require_metrics(scene)
        clock_offset(scene)
    except StackError as error:
        return Finding(what, False, str(error))
    except KeyError as error:
        return Finding(what, False, f"{error.args[0]} is not there")
    return Finding(what, True, _seen(readings["store"]))


def _seen(reading: Reading) -> str:
    """What a reading shows, in words."""
    parts = ["CPU time", "throttling", "the node's steal"]
    parts += ["waiting for a core"] if reading.waited_s is not None else []
    limit = "no limit of CPU time" if reading.quota is None else f"a limit of {reading.quota:g} cores"
    held = ", which will hold it near the knee" if (reading.quota or 1) < 1 else ""
    return (
        f"control groups of version {reading.version} show {', '.join(parts)}; the server has {limit}{held}"
    )
