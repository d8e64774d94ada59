"""The cluster under test, used as a person would: by kubectl and Helm, and by requests to its Services.

The tests run in the node's network namespace, so they reach a Service at its own address.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import ROOT
from tests.compose.stack import until
from tests.deploy.helmkit import CHART
from tests.kubernetes import configs

VALUES = ROOT / "tests" / "kubernetes" / "values.yaml"
RELEASE = "lab"
LEVEL = "pod-security.kubernetes.io"
EVIDENCE = ("get pods --all-namespaces --output wide", "get events --all-namespaces --sort-by .lastTimestamp")
KINDS = (
    "networkpolicies,resourcequotas,limitranges,configmaps,services,deployments,statefulsets,persistentvolumeclaims,"
    "secrets,pods"
)
"""What a release makes in its namespace, and what follows from it."""
NAMES = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "dns-of-the-node"},
    "spec": {
        "podSelector": {},
        "policyTypes": ["Egress"],
        "egress": [
            {
                "to": [{"ipBlock": {"cidr": f"{configs.NODE}/32"}}],
                "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")],
            }
        ],
    },
}
"""CoreDNS runs on the node here, as a DNS cache does elsewhere: that needs a policy of its own (deploy/README.md)."""
OF_THE_NAMESPACE = {"configmap/kube-root-ca.crt", "networkpolicy.networking.k8s.io/dns-of-the-node"}

Answer = tuple[int, dict[str, str], str]


class Kube:
    """Commands to the cluster. `run`: the folder of this cluster, which is removed with it."""

    def __init__(self) -> None:
        self.run = Path(os.environ["LAB_KUBERNETES_RUN"])
        self.addresses: dict[tuple[str, str], str] = {}

    def command(
        self, *words: str, given: str = "", seconds: float = 120, environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, with more variables if there are any, and return what it said, whatever the exit code."""
        return subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, **(environ or {})},
            input=given,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def __call__(self, *words: str, given: str = "", seconds: float = 120) -> str:
        """`kubectl WORDS`; its output. Raises AssertionError, with what happens in the cluster, if it fails."""
        done = self.command("kubectl", *words, given=given, seconds=seconds)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr[-2000:]}\n{self.evidence()}")
        return done.stdout

    def evidence(self) -> str:
        """Pods and the last events, for the message of a failed test."""
        said = [self.command("kubectl", *each.split()).stdout.splitlines() for each in EVIDENCE]
        return "\n".join([*said[0], *said[1][-30:]])

    def get(self, kind: str, namespace: str, *options: str) -> list[dict[str, Any]]:
        """All objects of a kind in a namespace."""
        found = json.loads(self("get", kind, "--namespace", namespace, "--output", "json", *options))
        items: list[dict[str, Any]] = found["items"]
        return items

    def objects(self, namespace: str) -> set[str]:
        """The names of all objects in a namespace, but for what was there before the release."""
        found = self("get", KINDS, "--namespace", namespace, "--output", "name", "--ignore-not-found").split()
        return set(found) - OF_THE_NAMESPACE

    # -- releases --------------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> None:
        """Make a namespace at Pod Security's strictest level, as deploy/README.md says."""
        self("create", "namespace", name)
        levels = [f"{LEVEL}/{mode}=restricted" for mode in ("enforce", "warn")]
        self("label", "namespace", name, *levels)
        self("apply", "--namespace", name, "--filename", "-", given=json.dumps(NAMES))

    def volume(self, namespace: str, server: str) -> None:
        """Make the volume that a cluster's storage would make for a storefront."""
        folder = self.run / "volumes" / f"{namespace}-{server}"
        folder.mkdir(parents=True)
        os.chown(folder, 10001, 10001)
        made = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": folder.name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "tests",
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(folder), "type": "Directory"},
                "claimRef": {"namespace": namespace, "name": f"state-{server}"},
            },
        }
        self("apply", "--filename", "-", given=json.dumps(made))

    def helm(self, verb: str, namespace: str, *options: str, release: str = RELEASE) -> None:
        """`helm install` or `helm upgrade` with the tests' values. Raises AssertionError if it fails."""
        done = self.try_helm(verb, namespace, *options, release=release)
        assert done.returncode == 0, f"{done.stderr[-2000:]}\n{self.evidence()}"

    def try_helm(
        self, verb: str, namespace: str, *options: str, release: str = RELEASE, kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The same, whatever becomes of it; with another kubeconfig, as somebody else."""
        words = ["helm", verb, release, str(CHART), "--namespace", namespace, "--values", str(VALUES)]
        environ = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else None
        return self.command(*words, *options, environ=environ)

    def wait_ready(self, namespace: str, seconds: float = 240) -> None:
        """Wait until every workload has all its pods, and every pod is ready."""

        def all_there() -> bool:
            made = self.get("deployments,statefulsets", namespace)
            return bool(made) and all(
                each["status"].get("readyReplicas", 0) == each["spec"]["replicas"]
                and each["status"].get("observedGeneration") == each["metadata"]["generation"]
                and each["status"].get("updatedReplicas", 0) == each["spec"]["replicas"]
                for each in made
            )

        try:
            until(all_there, f"everything in {namespace} ready", seconds, every=1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.evidence()}") from None

    def pod(self, namespace: str, component: str) -> dict[str, Any]:
        """The pod of a workload. Raises LookupError if there is not exactly one."""
        found = self.get("pods", namespace, "--selector", f"app.kubernetes.io/component={component}")
        if len(found) != 1:
            raise LookupError(f"{component}: {len(found)} pods")
        return found[0]

    def kill(self, namespace: str, component: str) -> None:
        """Kill every process of a pod at once, as a node that ran out of memory might."""
        uid = self.pod(namespace, component)["metadata"]["uid"]
        killed = 0
        for path in Path("/proc").glob("[0-9]*/cgroup"):
            try:
                if f"pod{uid}" in path.read_text():
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    killed += 1
            except (OSError, ProcessLookupError):
                continue
        assert killed, f"{component} has no processes"

    def inside(self, namespace: str, workload: str, container: str, *words: str, seconds: float = 60) -> str:
        """Run a command in a container and return what it prints."""
        where = ["--namespace", namespace, workload, "--container", container]
        return self("exec", *where, "--", *words, seconds=seconds)

    # -- requests --------------------------------------------------------------------------------------------------

    def ask(
        self, namespace: str, service: str, port: int, path: str, body: object = None, method: str = ""
    ) -> Answer:
        """A request to a Service at its own address: status, headers, body. Raises OSError if nobody answers."""
        if (namespace, service) not in self.addresses:
            found = json.loads(self("get", "service", service, "--namespace", namespace, "--output", "json"))
            self.addresses[namespace, service] = found["spec"]["clusterIP"]
        url = f"http://{self.addresses[namespace, service]}:{port}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        request.method = method or ("GET" if body is None else "POST")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read().decode()

    def json(
        self, namespace: str, service: str, port: int, path: str, body: object = None, method: str = ""
    ) -> Any:
        """The JSON of a request. Raises OSError for an answer that is an error."""
        status, _, text = self.ask(namespace, service, port, path, body, method)
        if status >= 400:
            raise OSError(f"{service}{path}: {status} {text[:300]}")
        return json.loads(text)

    def query(self, namespace: str, expression: str) -> dict[tuple[tuple[str, str], ...], float]:
        """A PromQL query's samples by labels, asked of the Prometheus of a namespace."""
        path = "/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        rows = self.json(namespace, "prometheus", 9090, path)["data"]["result"]
        return {tuple(sorted(row["metric"].items())): float(row["value"][1]) for row in rows}

    @contextmanager
    def forwarded(
        self, namespace: str, service: str, port: int, kubeconfig: Path | None = None
    ) -> Iterator[str]:
        """A Service behind `kubectl port-forward`: its address on this machine. A kubeconfig says who asks."""
        words = ["kubectl", "port-forward", "--namespace", namespace, f"service/{service}", f":{port}"]
        words += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found, "no port was forwarded"
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.terminate()
            process.wait(10)


class Customers(threading.Thread):
    """Sends events to a storefront, as a context, and remembers which were accepted.

    `accepted`: id of an event -> user. `refused`: how many requests were not answered with 202; their senders know that
    nothing was accepted.
    """

    def __init__(
        self, kube: Kube, namespace: str, server: str, first_user: int, per_second: float = 20
    ) -> None:
        super().__init__(daemon=True)
        self.kube, self.namespace, self.server = kube, namespace, server
        self.accepted: dict[int, int] = {}
        self.refused = 0
        self._user, self._pause = first_user, 1 / per_second
        self._ended = threading.Event()

    def run(self) -> None:
        """Send one event after the other until the context ends; each is of another user."""
        while not self._ended.wait(self._pause):
            self._user += 1
            try:
                status, _, text = self._ask(f"/users/{self._user}/events", {"type": "order"})
            except OSError:
                status = 0
            if status == 202:
                self.accepted[json.loads(text)["event"]] = self._user
            else:
                self.refused += 1

    def _ask(self, path: str, body: object = None) -> Answer:
        return self.kube.ask(self.namespace, f"web-{self.server}", 8000, path, body)

    def pending(self) -> list[int]:
        """Accepted events that are not done yet. Raises OSError while the storefront does not answer."""
        return [event for event, user in list(self.accepted.items()) if self._state(user, event) == "pending"]

    def _state(self, user: int, event: int) -> str:
        return str(
            self.kube.json(self.namespace, f"web-{self.server}", 8000, f"/users/{user}/events/{event}")[
                "state"
            ]
        )

    def wait(self, count: int, seconds: float = 60) -> None:
        """Wait until so many more events have been accepted."""
        wanted = len(self.accepted) + count
        until(lambda: len(self.accepted) >= wanted, f"{count} more events accepted", seconds, every=0.1)

    def __enter__(self) -> Customers:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self.join(30)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line with which a command refused. Raises AssertionError if it did not, or said more.

    Helm's remarks about links in the chart, and its advice to look closer, are left out.
    """
    assert done.returncode, done.stdout
    lines = [
        line
        for line in done.stderr.splitlines()
        if line.strip() and "symbolic link" not in line and "--debug" not in line
    ]
    assert len(lines) == 1, lines
    return lines[0]
