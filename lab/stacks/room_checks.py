"""What `make room-cluster` looks at before it changes anything: programs, cluster, values, rights, names, and room."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import StackError, UsageError
from lab.stacks import room_kube, room_plan
from lab.stacks.asking import Finding
from lab.stacks.room_kube import Object

RELEASE, ROOM_RELEASE = "scene", "room"
"""What Helm calls the release in a group's namespace, and the one in the room's own."""
OWNED_BY = "meta.helm.sh/release"
"""How the names of Helm's notes on an object begin: they say to which release it belongs."""
OLDEST = 30
"""Minor version of Kubernetes 1, as Chart.yaml has it."""
DEFAULT_STORAGE = "storageclass.kubernetes.io/is-default-class"
DEFAULT_INGRESS = "ingressclass.kubernetes.io/is-default-class"
HOST = re.compile(r"(?=.{1,200}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Asked:
    """The room that is asked for. `files`: values for every release. `host`: the domain of the pages, or empty."""

    groups: int
    files: Sequence[Path] = ()
    host: str = ""
    ingress_class: str = ""
    ingress_namespace: str = "ingress-nginx"

    @property
    def names(self) -> list[str]:
        """All namespaces: the room's own, and one for each group."""
        return [room_plan.ROOM, *room_plan.names(self.groups)]


def asked(
    groups: str,
    files: Sequence[Path] = (),
    host: str = "",
    ingress_class: str = "",
    ingress_namespace: str = "ingress-nginx",
) -> Asked:
    """What somebody typed, checked for its form. Raises `UsageError` in one line."""
    most = room_plan.GROUPS_MOST
    if not re.fullmatch(r"[0-9]{1,6}", groups) or not 1 <= int(groups) <= most:
        raise UsageError(f"the number of groups must be 1 to {most}, not {groups!r}: make room-cluster N=40.")
    if host and not HOST.fullmatch(host):
        raise UsageError(f"{host!r} is no domain in small letters, such as lab.example: HOST=lab.example.")
    if not NAMESPACE.fullmatch(ingress_namespace):
        raise UsageError(f"{ingress_namespace!r} is no name of a namespace: see INGRESS_NAMESPACE.")
    return Asked(int(groups), files, host, ingress_class, ingress_namespace)


# -- one check each ---------------------------------------------------------------------------------------------------


def programs() -> Iterator[Finding]:
    """kubectl and Helm are on PATH."""
    for name, where in (
        ("kubectl", "kubernetes.io/docs/tasks/tools"),
        ("helm", "helm.sh/docs/intro/install"),
    ):
        found = shutil.which(name)
        yield Finding(name, found is not None, found or f"not on PATH: {where} says how to install it")


def cluster() -> Finding:
    """The cluster answers, and is new enough."""
    context = room_kube.call("kubectl", "config", "current-context").out.strip()
    if not context:
        return Finding(
            "cluster", False, "kubectl has none chosen: kubectl config use-context NAME, or KUBECONFIG"
        )
    said = room_kube.call("kubectl", "version", "--output", "json", seconds=20)
    if said.code:
        return Finding("cluster", False, f"{context} does not answer: {said.why}")
    found = re.search(r'"serverVersion".*?"gitVersion":\s*"v1\.(\d+)([^"]*)"', said.out, re.DOTALL)
    if not found:
        return Finding("cluster", False, f"{context} does not say its version")
    version = f"Kubernetes 1.{found[1]}{found[2]}"
    old = int(found[1]) < OLDEST
    return Finding("cluster", not old, f"{context}, {version}" + (f": 1.{OLDEST} is needed" if old else ""))


def values(wanted: Asked, own: Path) -> Finding:
    """The chart takes the values; `own` is the file with a group's own, as it will be given to Helm."""
    words = ["template", "scene", str(room_plan.CHART), "--namespace", "team-1"]
    words += ["--kube-version", f"1.{OLDEST}.0"]
    for file in (*wanted.files, own):
        words += ["--values", str(file)]
    said = room_kube.call("helm", *words)
    return Finding("values", said.code == 0, said.why if said.code else _in_short(wanted))


def _in_short(wanted: Asked) -> str:
    found = room_plan.chart_values(wanted.files)
    return f"{', '.join(found['servers'])} for each group, the lab's image is {found['images']['lab']}"


def rights(wanted: Asked, found: dict[str, Any]) -> Finding:
    """Whoever types this may make what a room is made of."""
    needed = ["create namespaces", "delete namespaces", "list nodes", "list pods -A", "create secrets -A"]
    needed += ["create deployments.apps -A", "create networkpolicies.networking.k8s.io -A"]
    if found["probePriority"]["create"]:
        needed += [f"{verb} priorityclasses.scheduling.k8s.io" for verb in ("create", "list")]
    if found["quota"]:
        needed.append("create resourcequotas -A")
    if wanted.host:
        needed.append("create ingresses.networking.k8s.io -A")
    missing = [each for each in needed if room_kube.call("kubectl", "auth", "can-i", *each.split()).code]
    said = (
        f"missing: {', '.join(each.removesuffix(' -A') for each in missing)}"
        if missing
        else "all that are needed"
    )
    return Finding("rights", not missing, said)


def namespaces(wanted: Asked, there: Sequence[Object]) -> Finding:
    """No namespace of the room is somebody else's, and none of an earlier room is in the way."""
    by_name = {room_kube.name_of(each): each for each in there}
    ours = [name for name, each in by_name.items() if room_kube.is_ours(each)]
    strangers = [name for name in wanted.names if name in by_name and name not in ours]
    ending = [name for name in ours if room_kube.is_ending(by_name[name])]
    more = [name for name in ours if name not in wanted.names]
    if strangers:
        return Finding(
            "namespaces",
            False,
            f"{short(strangers)} there already, and not made by this command: it stays as it is",
        )
    if ending:
        return Finding("namespaces", False, f"{short(ending)} still being deleted: wait a minute")
    if more:
        said = f"{short(more)} of a larger room: take as many groups, or make room-cluster-down first"
        return Finding("namespaces", False, said)
    if wanted.host and wanted.ingress_namespace not in by_name:
        said = f"there is no {wanted.ingress_namespace}: where does the ingress controller run? INGRESS_NAMESPACE=..."
        return Finding("namespaces", False, said)
    return Finding(
        "namespaces", True, f"{len(ours)} of {len(wanted.names)} there" if ours else "none there yet"
    )


def priorities(wanted: Asked, found: dict[str, Any]) -> Finding:
    """No class of a probe's priority belongs to another release: such a class outlives its release's namespace."""
    if not found["probePriority"]["create"]:
        return Finding("priorities", True, "none is made")
    owners = {f"{name}-probe": (name, RELEASE) for name in wanted.names[1:]}
    theirs = []
    for each in room_kube.listed("priorityclasses"):
        notes = each["metadata"].get("annotations", {})
        owner = notes.get(f"{OWNED_BY}-namespace"), notes.get(f"{OWNED_BY}-name")
        if owners.get(name := room_kube.name_of(each), owner) != owner:
            theirs.append(name)
    if theirs:
        said = f"the class {short(theirs)} another release's: kubectl delete priorityclass {' '.join(theirs[:4])}"
        return Finding("priorities", False, said)
    return Finding("priorities", True, "each probe may have its class")


def storage(found: dict[str, Any]) -> Finding:
    """The class of storage that the values name is there, or the cluster has a default one."""
    classes = room_kube.listed("storageclasses")
    wanted = found["storage"]["className"]
    if wanted:
        there = wanted in {room_kube.name_of(each) for each in classes}
        return Finding(
            "storage", there, wanted if there else f"there is no class {wanted}: see storage.className"
        )
    usual = _default(classes, DEFAULT_STORAGE)
    return Finding(
        "storage", bool(usual), usual or "no default class: name one in VALUES (storage.className)"
    )


def ingress(wanted: Asked) -> Finding:
    """The class of ingress that is named is there; without a name the default one, or the only one."""
    classes = room_kube.listed("ingressclasses")
    known = [room_kube.name_of(each) for each in classes]
    if not known:
        return Finding(
            "ingress", False, "the cluster has no ingress class: leave HOST out, or install a controller"
        )
    chosen = (
        wanted.ingress_class or _default(classes, DEFAULT_INGRESS) or (known[0] if len(known) == 1 else "")
    )
    if chosen not in known:
        what = f"there is no class {chosen}" if chosen else "none of the classes is the default"
        return Finding("ingress", False, f"{what}: INGRESS_CLASS={' or '.join(known)}")
    return Finding("ingress", True, chosen)


def _default(classes: Sequence[Object], annotation: str) -> str:
    for each in classes:
        if each["metadata"].get("annotations", {}).get(annotation) == "true":
            return room_kube.name_of(each)
    return ""


def room(wanted: Asked, found: dict[str, Any], ours: Sequence[str]) -> Finding:
    """The nodes have room for all pods. Pods of this room that run already are packed anew with the rest."""
    nodes = room_kube.nodes(ours)
    free = sum(max(0, node.cpu - node.taken_cpu) for node in nodes) / 1000
    free_gib = sum(max(0, node.memory - node.taken_memory) for node in nodes) / 1024
    cores, gib = room_plan.needed(found, wanted.groups)
    fit = room_plan.groups_that_fit(found, wanted.groups, nodes)
    have = (
        f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} with {free:.1f} cores and {free_gib:.1f} GiB free"
    )
    need = f"{wanted.groups} groups need {cores:.1f} cores and {gib:.1f} GiB"
    if fit == wanted.groups:
        return Finding("room", True, f"{have}; {need}")
    advice = f"take N={fit}, or add nodes" if fit else "add nodes"
    return Finding(
        "room", False, f"{fit} of {wanted.groups} groups fit: {have}, {need}, pod by pod; {advice}"
    )


def short(names: Sequence[str]) -> str:
    """Names in a few words, with a verb."""
    said = ", ".join(names) if len(names) <= 4 else f"{names[0]}, ..., {names[-1]} ({len(names)})"
    return f"{said} {'is' if len(names) == 1 else 'are'}"


# -- all of them ------------------------------------------------------------------------------------------------------


def examine(wanted: Asked, own: Path, say: Callable[[Finding], None]) -> str:
    """Make all checks, and say each finding; the class of ingress, or an empty text without a host.

    Raises `StackError` after the last check that makes sense, if one was not ok. Nothing was changed then.
    """

    def judge(found: Sequence[Finding]) -> None:
        for finding in found:
            say(finding)
        if wrong := [finding.what for finding in found if not finding.ok]:
            raise StackError(f"nothing was changed: see {', '.join(wrong)} above.")

    judge(list(programs()))
    judge([cluster()])
    judge([values(wanted, own)])
    found = room_plan.chart_values(wanted.files)
    judge([rights(wanted, found)])
    there = room_kube.listed("namespaces")
    ours = [room_kube.name_of(each) for each in there if room_kube.is_ours(each)]
    way = [ingress(wanted)] if wanted.host else []
    judge(
        [
            namespaces(wanted, there),
            priorities(wanted, found),
            storage(found),
            *way,
            room(wanted, found, ours),
        ]
    )
    return way[0].detail if way else ""
