"""A real Kubernetes with one node, for the tests, on a machine without a registry of images:

    python -m tests.kubernetes.cluster COMMAND ...     run COMMAND beside it, then take everything down

It needs Linux, root, Debian's apt, Go, and two cores. What is missing is built or installed first, once (see
`tests.kubernetes.building`): that needs the package registries. The cluster itself then lives in namespaces of its own,
for network, mounts and processes: it reaches nothing outside, and when COMMAND has ended the kernel ends every process
of it and drops every mount. What no namespace holds is put back by hand and looked at afterwards: cgroups, settings of
the kernel, folders. The engine that builds the images runs before, outside, and makes no network.

COMMAND runs inside, with KUBECONFIG, a kubectl and a Helm on PATH, LAB_KUBERNETES=1. Exit codes: that of COMMAND; 3 if
no cluster can be had, in one line; 4 if something was left behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from lab import ROOT
from tests.compose.engine import NotPossible, say
from tests.deploy import helmkit
from tests.kubernetes import building, configs

OTHERS = ("dockerd", "kubelet", "k3s", "k3s-server", "kube-apiserver")
"""Who else would use this machine's cgroups and cores."""
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""The kubelet writes these files of /proc/sys, which hold for the whole machine."""
HIDDEN = ("/run", "/var/log", "/var/lib/cni")
"""Folders that programs write to whatever they are told: inside they are empty and in memory."""
KUBELET_FOLDER = Path("/var/lib/kubelet")
"""Likewise; it is too large for memory, and is mounted from the run's folder."""
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
START_S, READY_S = 90.0, 120.0


def others() -> list[str]:
    """Engines and Kubernetes nodes that run on this machine."""
    return sorted({name for each in psutil.process_iter(["name"]) if (name := each.info["name"]) in OTHERS})


def cgroups() -> list[Path]:
    """The cgroups that a kubelet makes for pods, in every hierarchy."""
    top = Path("/sys/fs/cgroup")
    return [path for path in (*top.glob("kubepods*"), *top.glob("*/kubepods*")) if path.is_dir()]


def settings() -> dict[str, str]:
    """The kernel's settings that the kubelet changes."""
    files = {name: Path("/proc/sys") / name for name in SETTINGS}
    return {name: path.read_text().strip() for name, path in files.items() if path.exists()}


def interfaces() -> set[str]:
    """The names of this machine's network interfaces."""
    return {name for _, name in socket.if_nameindex()}


class Machine:
    """The outside: what must be as it was before, when all is over."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.settings = settings()
        self.interfaces = interfaces()
        self.mounts = Path("/proc/mounts").read_text()
        self.made = [Path(name) for name in (*HIDDEN, KUBELET_FOLDER) if not Path(name).exists()]
        self.absent = [path for path in (Path.home() / ".kube", Path.home() / ".docker") if not path.exists()]
        for path in self.made:
            path.mkdir(parents=True)  # something must be there to mount upon

    def put_back(self) -> list[str]:
        """Remove what no namespace held; return what is left all the same."""
        for name, value in self.settings.items():
            (Path("/proc/sys") / name).write_text(value)
        end = time.monotonic() + 20
        while cgroups() and time.monotonic() < end:  # the kernel takes a moment to empty them
            for top in cgroups():
                below = [path for path in top.rglob("*") if path.is_dir()]
                for path in sorted((*below, top), key=lambda each: -len(each.parts)):
                    with suppress(OSError):
                        path.rmdir()
            time.sleep(0.2)
        shutil.rmtree(self.run, ignore_errors=True)
        for path in self.made:
            with suppress(OSError):
                path.rmdir()
        left = [f"the cgroup {path}" for path in cgroups()]
        left += [f"the folder {path}" for path in (self.run, *self.made, *self.absent) if path.exists()]
        left += [f"{name} of /proc/sys" for name, value in settings().items() if self.settings[name] != value]
        left += ["mounts"] if Path("/proc/mounts").read_text() != self.mounts else []
        left += [f"the network interface {name}" for name in sorted(interfaces() - self.interfaces)]
        return left + [f"the process {each}" for each in _processes_of(self.run)]


def _processes_of(run: Path) -> list[str]:
    """Processes that were started with a file below a folder."""
    return [
        f"{each.info['pid']}: {' '.join(each.info['cmdline'])[:80]}"
        for each in psutil.process_iter(["pid", "cmdline"])
        if any(str(run) in word for word in each.info["cmdline"] or ())
    ]


def refuse() -> None:
    """Raise `NotPossible` where a cluster may not or cannot be started."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise NotPossible("a Kubernetes of our own needs Linux and root")
    if found := others():
        raise NotPossible(f"{', '.join(found)} runs on this machine, and would be disturbed: stop it first")
    if found := [str(path) for path in cgroups()]:
        raise NotPossible(f"{found[0]} is there: another Kubernetes runs here, or was not cleaned up")


# -- inside -----------------------------------------------------------------------------------------------------------


class Cluster:
    """The inside: the processes, which end with the namespace of processes."""

    def __init__(self, run: Path, programs: Path, images: Path, logs: Path) -> None:
        self.run, self.programs, self.images, self.logs = run, programs, images, logs
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start everything and wait until the node is ready. Raises `NotPossible` with the end of a log."""
        began = time.monotonic()
        self._place()
        self._network()
        commands = configs.commands(self.run, self.programs)
        for name in ("etcd", "containerd"):
            self._begin(name, commands[name])
        self._until("containerd", ["ctr", "--address", configs.SOCKET, "version"])
        say("importing the images")
        self._do(
            "ctr", "--address", configs.SOCKET, "--namespace", "k8s.io", "images", "import", str(self.images)
        )
        self._begin("kube-apiserver", commands["kube-apiserver"])
        self._until("kube-apiserver", ["kubectl", "get", "--raw", "/readyz"])
        for name in ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns"):
            self._begin(name, commands[name])
        wait = ["kubectl", "wait", "node", configs.NODE_NAME, "--for=condition=Ready", "--timeout=2s"]
        self._until("kubelet", wait, READY_S)
        self._begin("kube-router", commands["kube-router"])  # it asks for the node as soon as it starts
        # Pods need the account, although none has its token.
        self._until("kube-controller-manager", ["kubectl", "get", "serviceaccount", "default"])
        say(
            f"Kubernetes {helmkit.KUBERNETES} is ready after {time.monotonic() - began:.0f} s, logs in {self.logs}"
        )

    def _place(self) -> None:
        for folder in HIDDEN:
            self._do("mount", "-t", "tmpfs", "tmpfs", folder)
        (self.run / "kubelet").mkdir()
        self._do("mount", "--bind", str(self.run / "kubelet"), str(KUBELET_FOLDER))
        Path("/run/lab").mkdir()
        configs.write(self.run)
        self._do("openssl", "genrsa", "-out", str(self.run / "service-accounts.pem"), "2048")

    def _network(self) -> None:
        self._do("ip", "link", "set", "lo", "up")
        self._do("ip", "address", "add", f"{configs.NODE}/32", "dev", "lo")
        self._do("ip", "route", "add", "default", "dev", "lo", "src", configs.NODE)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _begin(self, name: str, command: list[str]) -> None:
        with (self.logs / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def _until(self, name: str, question: list[str], seconds: float = START_S) -> None:
        """Wait until a command succeeds that asks the process of this name."""
        end = time.monotonic() + seconds
        while subprocess.run(question, capture_output=True, check=False).returncode:
            if self.processes[name].poll() is not None or time.monotonic() > end:
                lines = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
                raise NotPossible(f"{name} does not start, see {self.logs}:\n" + "\n".join(lines[-10:]))
            time.sleep(0.5)

    def _do(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotPossible(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")


def inside(run: Path, programs: Path, images: Path, command: list[str]) -> int:
    """Start the cluster in these namespaces, run `command` beside it, and return its exit code."""
    logs = run.with_name("kubernetes-logs")
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    os.environ["PATH"] = f"{programs}:{Path(helmkit.helm()).parent}:{os.environ['PATH']}"
    os.environ |= {
        "KUBECONFIG": str(run / "admin.conf"),
        "LAB_KUBERNETES": "1",
        "LAB_KUBERNETES_RUN": str(run),
        "KUBECACHEDIR": str(run / "kubectl"),
    }
    os.environ |= {f"HELM_{kind}_HOME": str(run / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
    # A company's proxy is not in here.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    try:
        Cluster(run, programs, images, logs).start()
    except NotPossible as error:
        say(str(error))
        return 3
    return subprocess.run(command, cwd=ROOT, check=False).returncode


# -- outside ----------------------------------------------------------------------------------------------------------


def main(command: list[str]) -> int:
    """Run `command` beside a cluster; the exit code."""
    try:
        refuse()
    except NotPossible as error:
        say(str(error))
        return 3
    cache = helmkit.cache_folder()
    run = cache / "kubernetes-run"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir()
    machine = Machine(run)
    code = 1
    try:
        building.want_packages()
        programs, images = building.want_programs(cache), building.want_images(cache)
        own = [
            sys.executable,
            "-m",
            "tests.kubernetes.cluster",
            "--inside",
            *map(str, (run, programs, images)),
        ]
        # The shell is the first process in there, and so the one that buries those whose parents have ended.
        shell = ["sh", "-c", '"$@"; exit $?', "sh"]
        code = subprocess.run(
            ["unshare", *NAMESPACES, *shell, *own, *command], cwd=ROOT, check=False
        ).returncode
    except NotPossible as error:
        say(str(error))
        code = 3
    finally:
        left = machine.put_back()
        if left:
            say(f"left behind: {'; '.join(left)}")
    return code or (4 if left else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        folder, programs, images = map(Path, sys.argv[2:5])
        sys.exit(inside(folder, programs, images, sys.argv[5:]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
