"""The container engine: its kind and limits, and an overlay of compose.yaml without the parts that it cannot do.

Needs only the standard library, as `lab.scene.preflight` does.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.server.checks import CheckResult, ask

DISK_GB = 5.0
"""Free disk space that the images and an hour of the scene need."""
NETWORKS = 28
"""From this many networks on the check fails. By default an engine has addresses for about thirty (16 in 172.16.0.0/12
and 16 in 192.168.0.0/16, less its own)."""
OVERLAY = "compose.override.yaml"
MARK = "# Written by `make up` for this engine"


@dataclass(frozen=True)
class Engine:
    """A container engine. `cpu_limits`: it can limit a container's CPU time. `root`: where it keeps its images.

    `processor`: the kind of processor, as `docker info` names it (x86_64, aarch64); empty if that is not known.
    """

    kind: str
    version: str
    rootless: bool = False
    cpus: int = 0
    memory_bytes: int = 0
    cpu_limits: bool = True
    root: str = ""
    processor: str = ""

    @property
    def is_podman(self) -> bool:
        """True for Podman, whether it runs by its own command or behind Docker's."""
        return self.kind == "Podman"

    @property
    def name(self) -> str:
        """Kind and version, for people."""
        return f"{self.kind} {self.version}{', rootless' if self.rootless else ''}"


def detect() -> Engine | None:
    """Return the engine that `docker` talks to, or None if `docker info` fails or cannot be read."""
    code, output = ask("docker", "info", "--format", "{{json .}}")
    try:
        info: dict[str, Any] = json.loads(output) if code == 0 else {}
        if "host" in info:
            return _from_podman(info)
        found = _from_docker(info) if info else None
        return _from_podman(own) if found and found.is_podman and (own := _podman_info()) else found
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _podman_info() -> dict[str, Any]:
    """Return what `podman info` reports about the service behind Docker's command; empty without a `podman`.

    Podman's answer to `docker info` names no missing limits, and (in version 4.3) not that it runs without root.
    """
    _, address = ask("docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    code, output = ask("podman", "--url", address, "info", "--format", "json")
    info: dict[str, Any] = json.loads(output) if code == 0 else {}
    return info


def _from_podman(info: dict[str, Any]) -> Engine:
    """Return the engine that `podman info` describes."""
    host = info["host"]
    rootless = bool(host["security"]["rootless"])
    # Without root, limits are refused on cgroups v2 without their controllers, and ignored on v1.
    able = set(host["cgroupControllers"] or ()) if rootless else {"cpu"}
    return Engine(
        kind="Podman",
        version=str(info["version"]["Version"]),
        rootless=rootless,
        cpus=int(host["cpus"]),
        memory_bytes=int(host["memTotal"]),
        cpu_limits="cpu" in able,
        root=str(info["store"]["graphRoot"]),
        processor=_processor(host.get("arch")),
    )


def _from_docker(info: dict[str, Any]) -> Engine:
    """Return the engine that `docker info` describes: Docker's own, or Podman's service."""
    kind = "Docker Engine"
    system, name = str(info.get("OperatingSystem") or ""), str(info.get("Name") or "")
    _, parts = ask("docker", "version", "--format", "{{json .Server.Components}}")
    if "Podman Engine" in parts:
        kind = "Podman"
    elif "Docker Desktop" in system:
        kind = "Docker Desktop"
    elif name.startswith("colima"):
        kind = "Colima"
    return Engine(
        kind=kind,
        version=str(info["ServerVersion"]),
        rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
        cpus=int(info.get("NCPU") or 0),
        memory_bytes=int(info.get("MemTotal") or 0),
        cpu_limits=bool(info.get("CpuCfsQuota", info.get("CPUCfsQuota", True))),
        root=str(info.get("DockerRootDir") or ""),
        processor=_processor(info.get("Architecture")),
    )


def _processor(architecture: object) -> str:
    """Return the kind of processor by Docker's name. Podman uses Go's names."""
    name = str(architecture or "")
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def check_engine(engine: Engine) -> list[CheckResult]:
    """Check the engine before the stack starts. Returns a result for each thing that a person should know."""
    return [*_cpus(engine), *_masquerade(engine), *_disk(engine), *_networks()]


def _cpus(engine: Engine) -> list[CheckResult]:
    found = []
    if engine.cpus == 1:
        detail = (
            "1: limits above it are lowered. The server shares its core with all the rest: its p99 is higher from the "
            "start, and runs will not be valid. Give the engine 2 CPUs"
        )
        found.append(CheckResult("CPUs for containers", True, detail))
    elif engine.cpus:
        found.append(CheckResult("CPUs for containers", True, str(engine.cpus)))
    if not engine.cpu_limits:
        detail = (
            "not possible here, and left out: a busy container slows the others down. Delegate the cpu controller "
            "(systemd: Delegate=cpu cpuset memory pids), or use an engine that root runs"
        )
        found.append(CheckResult("CPU limits", True, detail))
    return found


def _masquerade(engine: Engine) -> list[CheckResult]:
    if not engine.is_podman:
        return []
    detail = (
        "Podman lacks the option that keeps containers off the outside network, and would ask only the name server "
        "that compose.yaml names. Both are left out, so containers could reach the outside"
    )
    return [CheckResult("network without a way out", True, detail)]


def _disk(engine: Engine) -> list[CheckResult]:
    try:
        free = shutil.disk_usage(engine.root).free / 1e9
    except OSError:  # the engine runs in a virtual machine, with a disk of its own
        detail = f"unknown: {DISK_GB:g} GB needed; docker system df shows what is taken"
        return [CheckResult("disk for containers", True, detail)]
    if free >= DISK_GB:
        return [CheckResult("disk for containers", True, f"{free:.0f} GB")]
    return [
        CheckResult(
            "disk for containers",
            False,
            f"{free:.1f} GB free in {engine.root}, {DISK_GB:g} GB needed: docker system prune removes what is not used",
        )
    ]


def _networks() -> list[CheckResult]:
    code, output = ask("docker", "network", "ls", "--quiet")
    count = len(output.split())
    if code or count < NETWORKS:
        return []
    return [
        CheckResult(
            "networks",
            False,
            f"{count}, and an engine has addresses for about thirty: docker network prune removes those not used",
        )
    ]


def overlay(engine: Engine, services: dict[str, dict[str, Any]]) -> str:
    """Return the overlay of compose.yaml for this engine, as YAML; empty if the engine takes compose.yaml as it is.

    `services` are those of ``docker compose config``.
    """
    lines = []
    for name, service in services.items():
        changes = []
        wanted = float(service.get("cpus") or 0)
        if wanted and not engine.cpu_limits:
            changes.append("cpus: !reset null")
        elif engine.cpus and wanted > engine.cpus:
            changes.append(f"cpus: {engine.cpus}.0")
        if service.get("cpu_shares") and not engine.cpu_limits:
            changes.append("cpu_shares: !reset null")
        if engine.is_podman and service.get("dns"):
            changes.append("dns: !reset null")
        if changes:
            lines.append(f"  {name}: {{{', '.join(changes)}}}")
    lines = ["services:", *lines] if lines else []
    if engine.is_podman:
        lines += ["networks:", "  default: {driver_opts: !reset null}"]
    if not lines:
        return ""
    return (
        "\n".join([f"{MARK} ({engine.name}), which does not support the settings left out here.", *lines])
        + "\n"
    )


def is_adapted(root: Path) -> bool:
    """Return True if there is an overlay that the lab wrote."""
    place = root / OVERLAY
    return place.is_file() and place.read_text(encoding="utf-8").startswith(MARK)


def adapt(root: Path, engine: Engine) -> str | None:
    """Write the overlay next to compose.yaml, where Compose reads it by itself, or remove one made for another engine.

    Returns None; or, if the overlay's name is taken by a file of the user, the lines to add to that file.
    """
    place = root / OVERLAY
    before = place.read_text(encoding="utf-8") if place.is_file() else ""
    mine = not before or before.startswith(MARK)
    if mine and before:
        place.unlink()
    code, output = ask("docker", "compose", "--profile", "*", "config", "--format", "json")
    text = overlay(engine, json.loads(output)["services"]) if code == 0 else ""
    if text and not mine:
        return (
            f"the lab did not write {place}, and leaves it alone. Add what this engine needs: "
            + re.sub(r"\s+", " ", text.partition("\n")[2]).strip()
        )
    if text:
        place.write_text(text, encoding="utf-8")
    return None
