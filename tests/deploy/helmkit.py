"""Helm, and what it makes of the chart: `render` returns the objects of a release as they would be sent to a cluster.

A Helm on PATH is used. If there is none it is built from its Go module, once, and kept in the folder that the engine of
the tests uses (LAB_ENGINE_CACHE or ~/.cache/redis-latency-lab).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab import ROOT

CHART = ROOT / "deploy" / "helm" / "redis-latency-lab"
ROOM = ROOT / "deploy" / "helm" / "room.yaml"
MODULE, VERSION = "helm.sh/helm/v3/cmd/helm", "v3.22.0"
KUBERNETES = "1.34.2"
"""What Helm is told that the cluster is, where there is none. Helm itself does not know: built from its module, it
takes Kubernetes for 1.20, which is too old for the chart."""
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The dashboards make half a megabyte of YAML, for which the loader in Python takes seconds."""

Object = dict[str, Any]


class NoHelm(Exception):
    """The message says what this machine lacks."""


class Refused(Exception):
    """Helm ended with an error; the message is what it said, without its remarks about links in the chart."""


def cache_folder() -> Path:
    """Where the tests keep what they build."""
    folder = Path(os.environ.get("LAB_ENGINE_CACHE") or Path.home() / ".cache" / "redis-latency-lab")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def helm() -> str:
    """The path of a Helm; it is built if there is none. Raises `NoHelm`."""
    found = shutil.which("helm")
    if found:
        return found
    place = cache_folder() / f"helm-{VERSION}"
    # Several of pytest's workers may come here at once; one builds, the others wait.
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "helm").exists():
            go_install(f"{MODULE}@{VERSION}", place)
    return str(place / "helm")


def go_install(package: str, folder: Path) -> None:
    """Build a program from its Go module into a folder. Raises `NoHelm` without Go, or if that fails."""
    if not shutil.which("go"):
        raise NoHelm(f"there is no Go to build {package.partition('@')[0]} with, and none on PATH")
    done = subprocess.run(
        ["go", "install", "-trimpath", "-ldflags=-s -w", package],
        env={**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise NoHelm(f"{package} cannot be built: {done.stderr.strip()[-500:]}")


def run(*arguments: str) -> str:
    """Run Helm and return its output. Raises `Refused`."""
    done = subprocess.run(
        [helm(), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        # Helm remarks on each symbolic link in a chart; the chart's files are links to the tree's.
        said = [line for line in done.stderr.splitlines() if "symbolic link" not in line]
        raise Refused("\n".join(line for line in said if line.strip()))
    return done.stdout


def render(*options: str, namespace: str = "team-7") -> list[Object]:
    """The objects of a release with these options of `helm template`. Raises `Refused`."""
    words = ["template", "lab", str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES]
    text = run(*words, *options)
    return [found for found in yaml.load_all(text, Loader=LOADER) if found]


def find(objects: list[Object], kind: str, name: str) -> Object:
    """The object of this kind and name. Raises StopIteration if there is none."""
    return next(o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)


def workloads(objects: list[Object]) -> list[Object]:
    """All that makes pods."""
    return [found for found in objects if "template" in found.get("spec", {})]


def pod(workload: Object) -> dict[str, Any]:
    """The specification of a workload's pods."""
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def containers(objects: list[Object]) -> dict[str, dict[str, Any]]:
    """All containers by name; each name is that of a service in compose.yaml."""
    return {each["name"]: each for made in workloads(objects) for each in pod(made)["containers"]}


def environment(container: dict[str, Any]) -> dict[str, str]:
    """A container's environment."""
    return {row["name"]: row["value"] for row in container.get("env", ())}


def millicores(text: str) -> int:
    """CPU in thousandths of a core: of "250m", or of "2"."""
    return int(text[:-1]) if text.endswith("m") else round(1000 * float(text))


def mebibytes(text: str) -> int:
    """Memory in MiB; the chart writes all in Mi."""
    return int(text.removesuffix("Mi"))


if __name__ == "__main__":  # is there one, or can one be had? For .ci/run, which says what it could not run
    try:
        print(f"helm: {helm()}")
    except NoHelm as error:
        sys.exit(f"helm: {error}")
