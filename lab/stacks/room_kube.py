"""The cluster of a room: kubectl and Helm, called as commands, and what they say of namespaces, nodes and pods."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lab.errors import StackError
from lab.stacks.room_plan import Node

MADE_BY, ROOM_CLUSTER = "redis-latency-lab/made-by", "room-cluster"
"""The label of the namespaces that this lab made. `down` removes those, and no other."""
SECURITY = "pod-security.kubernetes.io/enforce"
OF_THE_CHART = "app.kubernetes.io/name=redis-latency-lab"
SECONDS = 60.0
"""For a question to the cluster."""
UNITS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
}  # fmt: skip
REMARKS = ("symbolic link", "--debug")
"""In a line of Helm: that the chart has links, and advice to look closer. Neither is the reason of an error."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def why(self) -> str:
        """The last line of an error."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        told = [line for line in lines if not any(each in line for each in REMARKS)]
        return (told or ["no reason given"])[-1].removeprefix("Error: ").removeprefix("error: ")


def call(*command: str, given: str | None = None, seconds: float = SECONDS) -> Said:
    """Run a command. The exit code is 127 when it cannot be started, 124 when it does not end in time."""
    try:
        done = subprocess.run(
            command,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        return Said(127, "", error.strerror or str(error))
    except subprocess.TimeoutExpired:
        return Said(124, "", f"no answer within {seconds:g} s")
    return Said(done.returncode, done.stdout, done.stderr)


def kubectl(*words: str, given: str | None = None, seconds: float = SECONDS) -> str:
    """`kubectl WORDS`; its output. Raises `StackError` with the last line of its error."""
    said = call("kubectl", *words, given=given, seconds=seconds)
    if said.code:
        raise StackError(f"kubectl {' '.join(words[:2])}: {said.why}")
    return said.out


def listed(kind: str, *options: str) -> list[Object]:
    """All objects of a kind. Raises `StackError`, also for an answer that is no list."""
    text = kubectl("get", kind, *options, "--output", "json")
    try:
        items: list[Object] = json.loads(text)["items"]
    except (ValueError, KeyError, TypeError):
        raise StackError(f"kubectl get {kind}: an answer that cannot be read: {text[:80]!r}") from None
    return items


# -- namespaces -------------------------------------------------------------------------------------------------------


def name_of(made: Object) -> str:
    """An object's name."""
    return str(made["metadata"]["name"])


def is_ours(namespace: Object) -> bool:
    """True if this lab made the namespace."""
    return bool(namespace["metadata"].get("labels", {}).get(MADE_BY) == ROOM_CLUSTER)


def is_ending(namespace: Object) -> bool:
    """True while a namespace is being deleted."""
    return bool(namespace.get("status", {}).get("phase") == "Terminating")


def create_namespaces(names: Iterable[str]) -> None:
    """Make namespaces with the lab's label, at Pod Security's strictest level. Raises `StackError`.

    They are created, not applied: a namespace that somebody else has made meanwhile is an error, and stays as it is.
    """
    labels = {MADE_BY: ROOM_CLUSTER, SECURITY: "restricted"}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name in names
    ]
    if items:
        kubectl(
            "create",
            "--filename",
            "-",
            given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        )


def delete_namespaces(names: Iterable[str], seconds: float) -> None:
    """Delete namespaces and wait until they are gone. Raises `StackError` if they are not after so many seconds."""
    kubectl(
        "delete", "namespace", *names, "--ignore-not-found", f"--timeout={seconds:.0f}s", seconds=seconds + 30
    )


# -- nodes and what is on them ----------------------------------------------------------------------------------------


def quantity(text: object) -> Fraction:
    """A quantity as Kubernetes writes it: "250m", "2", "1e3", "64Mi". Raises `StackError` for anything else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)([A-Za-z]*)\s*", str(text))
    if not found or found[2] not in UNITS:
        raise StackError(f"the cluster has a quantity that cannot be read: {text!r}")
    return Fraction(found[1]) * UNITS[found[2]]


def requests(pod: Object) -> tuple[int, int]:
    """What the scheduler keeps free for a pod: thousandths of a core and MiB, each rounded up.

    Containers ask together; of init containers, which run one after the other, the largest counts if it is more. One
    that goes on running (restartPolicy Always) counts as a container.
    """
    spec = pod["spec"]
    first = spec.get("initContainers", ())
    together = [*spec["containers"], *(each for each in first if each.get("restartPolicy") == "Always")]
    found = []
    for what, unit in (("cpu", Fraction(1, 1000)), ("memory", UNITS["Mi"])):
        asked = sum((_request(each, what) for each in together), Fraction(0))
        largest = max((_request(each, what) for each in first), default=Fraction(0))
        overhead = quantity(spec.get("overhead", {}).get(what, "0"))
        found.append(math.ceil((max(asked, largest) + overhead) / unit))
    return found[0], found[1]


def _request(container: Object, what: str) -> Fraction:
    return quantity(container.get("resources", {}).get("requests", {}).get(what, "0"))


def takes_pods(node: Object) -> bool:
    """True for a node that is ready, not cordoned, and without a taint: the chart's pods tolerate none."""
    ready = [each["status"] for each in node["status"].get("conditions", ()) if each["type"] == "Ready"]
    kept_away = [
        each for each in node["spec"].get("taints", ()) if each.get("effect") in ("NoSchedule", "NoExecute")
    ]
    return ready == ["True"] and not node["spec"].get("unschedulable") and not kept_away


def nodes(without: Iterable[str]) -> list[Node]:
    """The nodes that take pods, with what pods of others have taken: those in the namespaces `without` do not count.

    Raises `StackError`.
    """
    left_out, taken = set(without), dict[str, tuple[int, int, int]]()
    for pod in listed("pods", "--all-namespaces"):
        place = pod["spec"].get("nodeName")
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if place and not over and pod["metadata"]["namespace"] not in left_out:
            cpu, memory, count = taken.get(place, (0, 0, 0))
            more = requests(pod)
            taken[place] = cpu + more[0], memory + more[1], count + 1
    found = []
    for node in filter(takes_pods, listed("nodes")):
        has, name = node["status"]["allocatable"], name_of(node)
        cpu, memory, count = taken.get(name, (0, 0, 0))
        found.append(
            Node(
                name,
                int(1000 * quantity(has["cpu"])),
                int(quantity(has["memory"]) / UNITS["Mi"]),
                int(quantity(has["pods"])),
                cpu,
                memory,
                count,
                node["metadata"].get("labels", {}),
            )
        )
    return found


def is_done(workload: Object) -> bool:
    """True while a workload has all its pods, of its newest kind, and all of them are ready."""
    status, wanted = workload["status"], workload["spec"]["replicas"]
    seen = status.get("observedGeneration") == workload["metadata"]["generation"]
    return bool(seen and status.get("updatedReplicas", 0) == status.get("readyReplicas", 0) == wanted)


def complaint(pod: Object) -> str:
    """Why a pod is not ready, in a few words: what the scheduler or the kubelet says of it; empty if neither does."""
    status = pod.get("status", {})
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"no node for it: {each.get('message', each.get('reason', 'unknown'))}"
    for each in status.get("containerStatuses", ()):
        waits = each.get("state", {}).get("waiting", {})
        if waits.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waits['reason']}, image {each.get('image', 'unknown')}"
    return ""


# -- releases ---------------------------------------------------------------------------------------------------------


def install(release: str, namespace: str, chart: str, values: Iterable[str], seconds: float) -> None:
    """Install a release, or bring it up to date if it is there. Raises `StackError` with Helm's last line.

    An interrupted Helm leaves a record that says `pending`, and Helm refuses everything after it: such a release is
    taken away first. Its pods may be there already; they are made anew.
    """
    there = call("helm", "status", release, "--namespace", namespace, "--output", "json")
    if there.code == 0 and _status(there.out).startswith(("pending", "uninstalling")):
        uninstall(release, namespace)
    words = ["upgrade", "--install", release, chart, "--namespace", namespace]
    for file in values:
        words += ["--values", file]
    said = call("helm", *words, seconds=seconds)
    if said.code:
        raise StackError(f"{namespace}: {said.why}")


def _status(text: str) -> str:
    try:
        return str(json.loads(text)["info"]["status"])
    except (ValueError, KeyError, TypeError):
        return ""


def uninstall(release: str, namespace: str) -> None:
    """Take a release away; one that is not there is no error. Raises `StackError` with Helm's last line."""
    said = call(
        "helm", "uninstall", release, "--namespace", namespace, "--ignore-not-found", seconds=5 * SECONDS
    )
    if said.code:
        raise StackError(f"{namespace}: {said.why}")
