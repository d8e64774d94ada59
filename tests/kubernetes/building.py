"""What a real Kubernetes on this machine needs, without a registry of images: programs, Debian packages, images.

All is kept in the folder that the tests' engine uses (LAB_ENGINE_CACHE or ~/.cache/redis-latency-lab):

- Kubernetes, CoreDNS, KWOK and kube-router, built from their Go modules, in `kubernetes-VERSION/`;
- the lab's image and the stand-ins of tests/compose/standins, made by the tests' own Docker Engine, which has ended
  before the cluster starts, in `kubernetes-images-….tar`. They are made anew when something changes that is in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lab import ROOT
from tests.compose.engine import BASE_IMAGE, Engine, NotPossible, install, run, say
from tests.deploy import helmkit
from tests.deploy.helmkit import KUBERNETES

COREDNS = "github.com/coredns/coredns@v1.12.4"
KWOK = "sigs.k8s.io/kwok/cmd/kwok@v0.7.0"
KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0"
PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "ip": "iproute2",
    "unshare": "util-linux",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""Program, or file -> Debian package."""
PAUSE_IMAGE = "redis-latency-lab-pause:1"
IMAGES = (
    "redis-latency-lab:1",
    *(
        f"redis-latency-lab-standin-{name}:1"
        for name in ("redis", "redis-exporter", "prometheus", "tempo", "grafana")
    ),
    PAUSE_IMAGE,
)
IN_THE_IMAGES = (
    "app",
    "loadtest",
    "lab",
    "console",
    "requirements-stack.lock",
    "tests/compose/standins",
    "tests/compose/compose.standins.yaml",
    "tests/compose/engine.py",
)
"""What the images are made of: they are made anew when it changes."""


def want_packages() -> None:
    """Install the Debian packages that are missing. Raises `NotPossible`."""
    missing = [
        package
        for needed, package in PACKAGES.items()
        if not (Path(needed).exists() if needed.startswith("/") else shutil.which(needed))
    ]
    if missing:
        install(*missing)


def want_programs(cache: Path) -> Path:
    """Build what is missing; return the folder of Kubernetes, CoreDNS, KWOK and kube-router. Raises `NotPossible`."""
    folder = cache / f"kubernetes-{KUBERNETES}"
    try:
        helmkit.helm()
        if not (folder / "coredns").exists():
            say("building CoreDNS from its Go module (about two minutes, once)")
            helmkit.go_install(COREDNS, folder)
        if not (folder / "kwok").exists():
            say("building KWOK, which plays nodes, from its Go module (about two minutes, once)")
            helmkit.go_install(KWOK, folder)
        if not (folder / "kube-router").exists():
            say(
                "building kube-router, which enforces NetworkPolicies, from its Go module (about two minutes, once)"
            )
            helmkit.go_install(KUBE_ROUTER, folder)
    except helmkit.NoHelm as error:
        raise NotPossible(str(error)) from None
    if not all((folder / program).exists() for program in PROGRAMS):
        _build_kubernetes(folder)
    return folder


def _build_kubernetes(folder: Path) -> None:
    """Build Kubernetes's programs in a small module of our own.

    Its own module replaces its parts (k8s.io/api and the like) by folders beside it, which is not allowed to a module
    that somebody else builds; ours replaces them by what is published of them: v0.34.2 belongs to 1.34.2.
    """
    if not shutil.which("go"):
        raise NotPossible("there is no Go to build Kubernetes with")
    say(f"building Kubernetes {KUBERNETES} from its Go modules (about seven minutes, 2 GB of memory, once)")
    module = folder / "module"
    module.mkdir(parents=True, exist_ok=True)
    said = subprocess.run(
        ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"],
        cwd=module,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if said.returncode:
        raise NotPossible(f"the module of Kubernetes cannot be had: {said.stdout[-300:]}{said.stderr[-300:]}")
    theirs = Path(json.loads(said.stdout)["GoMod"]).read_text()
    parts = [line.split()[0] for line in theirs.splitlines() if "=> ./staging/" in line]
    published = KUBERNETES.replace("1.", "v0.", 1)
    (module / "go.mod").write_text(
        "module build\n\ngo 1.24.0\n\n"
        f"require k8s.io/kubernetes v{KUBERNETES}\n\nreplace (\n"
        + "".join(f"\t{part} => {part} {published}\n" for part in parts)
        + ")\n"
    )
    # Programs cannot be imported; behind a build tag that nobody sets they are named for `go mod tidy` only.
    (module / "programs.go").write_text(
        "//go:build programs\n\npackage build\n\nimport (\n"
        + "".join(f'\t_ "k8s.io/kubernetes/cmd/{program}"\n' for program in PROGRAMS)
        + ")\n"
    )
    # Without its version the API server would call itself v0.0.0, which is too old for the chart.
    major, minor, _ = KUBERNETES.split(".")
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    flags = "-s -w " + " ".join(
        f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items()
    )
    run("go", "-C", str(module), "mod", "tidy", GOFLAGS="-mod=mod")
    for program in PROGRAMS:  # one after the other: the memory of one link at a time
        say(f"  {program}")
        run(
            "go",
            "-C",
            str(module),
            "build",
            "-trimpath",
            "-ldflags",
            flags,
            "-o",
            str(folder / program),
            f"k8s.io/kubernetes/cmd/{program}",
            CGO_ENABLED="0",
            GOFLAGS="-mod=mod",
            seconds=1800,
        )
    shutil.rmtree(module)


def _files() -> Iterator[Path]:
    for name in IN_THE_IMAGES:
        path = ROOT / name
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (each for each in found if each.is_file() and "__pycache__" not in each.parts)


def digest() -> str:
    """What the images are made of, in sixteen letters."""
    made = hashlib.sha256()
    for path in _files():
        made.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return made.hexdigest()[:16]


def want_images(cache: Path) -> Path:
    """The archive of all images, made if it is not there. Raises `NotPossible`."""
    archive = cache / f"kubernetes-images-{digest()}.tar"
    if archive.exists():
        return archive
    os.environ["LAB_IMAGES"] = "standins"  # they are what fits two cores, and need no registry
    engine = Engine(builds_only=True)
    try:
        engine.start()
        _make_pause()
        say("keeping the images in an archive")
        half = archive.with_suffix(".half")
        run("docker", "save", "--output", str(half), *IMAGES)
    finally:
        engine.stop()
    for old in cache.glob("kubernetes-images-*.tar"):
        old.unlink()
    half.rename(archive)
    return archive


def _make_pause() -> None:
    """Make the image of the process that holds a pod's namespaces: it sleeps."""
    made = subprocess.run(
        ["docker", "build", "--quiet", "--tag", PAUSE_IMAGE, "-"],
        input=f'FROM {BASE_IMAGE}\nCMD ["sleep", "infinity"]\n',
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if made.returncode:
        raise NotPossible(f"the image of the pause cannot be built: {made.stderr[-300:]}")
