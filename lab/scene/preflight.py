"""Checks the requirements of `docker compose up`, before anything starts. A failed result says what to do.

Needs only the standard library, so that `make up` works with the system's Python before an environment exists.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lab import ROOT
from lab.scene import engine
from lab.scene.door import MEMORY_GB
from lab.server.checks import CheckResult, ask, guarded
from lab.server.servers import IN_COMPOSE, PROFILES

OLDEST_COMPOSE = (2, 20)
ANSWER_S = 0.5
PLATFORM = "DOCKER_DEFAULT_PLATFORM"
"""With this variable Docker takes images for another processor, which the engine then emulates."""


def examine(root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> list[CheckResult]:
    """Check everything that `make up` needs, in the order in which to repair it. Changes nothing."""
    settings = read_env_file(root / ".env")
    results = [_env_file(root, settings)]
    docker = _docker()
    results.append(docker)
    ours: set[int] | None = None
    if docker.ok:
        answers = _engine()
        results.append(_compose())
        if answers.ok:
            scene = check_project(root)
            results.append(scene)
            ours = ports_of(scene.detail) if scene.ok else set()
            found = engine.detect()
            results.append(replace(answers, detail=found.name) if found else answers)
            results.append(_memory(found, running=bool(ours)))
            results += engine.check_engine(found) if found else []
            results += _images(found, wanted_profiles({**(settings or {}), **environ}))
        else:
            results.append(answers)
    if settings is not None:
        results += check_settings({**settings, **environ}, ours or set(), environ)
    return results


def check_settings(
    settings: Mapping[str, str], ours: set[int], shell: Mapping[str, str] | None = None
) -> list[CheckResult]:
    """Check the ports. `ours`: ports at which the lab itself listens. `shell`: variables that override .env."""
    return [_ports(settings, ours, shell or {})]


def read_env_file(path: Path) -> dict[str, str] | None:
    """Name → value of each NAME=value line, without comments; None when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): _value(value.strip()) for name, _, value in pairs}


def _value(text: str) -> str:
    """Return a value of .env as Compose reads it: the text in quotes, else the text before a comment."""
    if quoted := re.match(r"""(["'])(.*?)\1""", text):
        return quoted[2]
    return re.split(r"\s+#", f" {text}", maxsplit=1)[0].strip()


def wanted_profiles(settings: Mapping[str, str]) -> set[str]:
    """Return the profiles that COMPOSE_PROFILES names."""
    profiles = {name.strip() for name in settings.get("COMPOSE_PROFILES", "").split(",")} - {""}
    return set(PROFILES) if "*" in profiles else profiles


def wanted_ports(settings: Mapping[str, str]) -> dict[str, str]:
    """Return name and value of every port of this machine that will be published."""
    on = wanted_profiles(settings)
    off = {server.locust_port for server in IN_COMPOSE if server.profile and server.profile not in on}
    return {
        name: value
        for name, value in settings.items()
        if re.fullmatch(r"(CONTROL|GRAFANA|PROMETHEUS|TEMPO|LOCUST_[A-Z_]+)_PORT", name) and name not in off
    }


def _env_file(root: Path, settings: dict[str, str] | None) -> CheckResult:
    if settings is None:
        return CheckResult(
            ".env", False, f"{root / '.env'} is missing or unreadable: git checkout .env brings it back"
        )
    lines = (root / "compose.yaml").read_text(encoding="utf-8").splitlines()
    required = {name for line in lines for name in re.findall(r"\$\{([A-Z_]+):\?", line.partition("#")[0])}
    missing = sorted(name for name in required if not settings.get(name) and not os.environ.get(name))
    if missing:
        return CheckResult(
            ".env", False, f"{', '.join(missing)} missing: git diff .env shows what was changed"
        )
    return CheckResult(".env", True, "complete")


def _docker() -> CheckResult:
    if shutil.which("docker") is None:
        return CheckResult("docker", False, "not found: install Docker Engine or Docker Desktop")
    return CheckResult("docker", True, ask("docker", "--version")[1].split(",")[0])


def _compose() -> CheckResult:
    code, output = ask("docker", "compose", "version", "--short")
    oldest = ".".join(map(str, OLDEST_COMPOSE))
    version = re.match(r"v?(\d+)\.(\d+)", output) if code == 0 else None
    if version is None:
        more = " (docker-compose, version 1, is not enough)" if shutil.which("docker-compose") else ""
        return CheckResult(
            "docker compose", False, f"not found{more}: install the Compose plugin, {oldest} or newer"
        )
    if (int(version[1]), int(version[2])) < OLDEST_COMPOSE:
        return CheckResult(
            "docker compose", False, f"{output} is too old: update the Compose plugin to {oldest} or newer"
        )
    return CheckResult("docker compose", True, output)


def _engine() -> CheckResult:
    code, output = ask("docker", "version", "--format", "{{.Server.Version}}")
    if code == 0:
        return CheckResult("engine", True, output)
    reason = output.splitlines()[-1] if output else "no answer"
    if "permission denied" in reason.lower():
        remedy = "this user may not use it: sudo usermod -aG docker $USER, then log in again"
    elif platform.system() == "Darwin":
        remedy = "it does not run: open Docker Desktop"
    else:
        remedy = "it does not run: sudo systemctl start docker, or open Docker Desktop"
    return CheckResult("engine", False, f"{remedy} ({reason[:160]})")


def check_project(root: Path) -> CheckResult:
    """Check that `docker compose` in this folder acts on this folder's scene only. The detail names the project.

    COMPOSE_FILE and COMPOSE_PROJECT_NAME, in the shell or in a file of variables, can lead to another one. So the check
    reads from Compose which files it uses, and from the engine which folder the project's containers were started in.
    """
    return guarded("scene", lambda: _check_project(root))


def _check_project(root: Path) -> CheckResult:
    code, output = ask("docker", "compose", "--profile", "*", "config", "--format", "json", cwd=root)
    if code:
        return CheckResult(
            "scene", False, f"docker compose cannot read its files: {(output.splitlines() or [''])[-1]}"
        )
    config = json.loads(output)
    built = config.get("services", {}).get("control", {}).get("build", {}).get("context", "")
    if not built or not _same(built, root):
        return CheckResult(
            "scene",
            False,
            f"docker compose reads other files than {root / 'compose.yaml'}: unset COMPOSE_FILE",
        )
    project = str(config["name"])
    label = "com.docker.compose.project"
    folder = f'{{{{.Label "{label}.working_dir"}}}}'
    code, output = ask("docker", "ps", "--all", "--filter", f"label={label}={project}", "--format", folder)
    others = sorted({place for place in output.splitlines() if not _same(place, root)}) if code == 0 else []
    if others:
        return CheckResult(
            "scene",
            False,
            f"containers of the Compose project {project} were started from {others[0]}: make down there (is it gone? "
            f"docker compose -p {project} down), or choose COMPOSE_PROJECT_NAME and ports of your own here",
        )
    return CheckResult("scene", True, project)


def _same(place: str, root: Path) -> bool:
    return os.path.realpath(place) == os.path.realpath(root)


def ports_of(project: str) -> set[int]:
    """Return the ports of this machine that the running containers of a Compose project hold."""
    label = f"label=com.docker.compose.project={project}"
    code, output = ask("docker", "ps", "--filter", label, "--format", "{{.Ports}}")
    return {int(port) for port in re.findall(r":(\d+)->", output)} if code == 0 else set()


def memory_for_containers(found: engine.Engine | None) -> float | None:
    """Return the gigabytes that containers may take: free memory here, or all of the engine's virtual machine.

    None if that is not known.
    """
    total = found.memory_bytes / 1e9 if found and found.memory_bytes else None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii")
        own = {name: int(kb) * 1024 / 1e9 for name, kb in re.findall(r"(\w+):\s+(\d+) kB", lines)}
    except OSError:
        return total
    if total is None or abs(total - own["MemTotal"]) < 0.05 * own["MemTotal"]:
        return own["MemAvailable"]
    return total


def _memory(found: engine.Engine | None, *, running: bool) -> CheckResult:
    free = memory_for_containers(found)
    if free is None:
        return CheckResult("memory for containers", True, "unknown")
    if free >= MEMORY_GB or running:
        return CheckResult(
            "memory for containers", True, f"{free:.1f} GB" + (", the lab runs" if running else "")
        )
    return CheckResult(
        "memory for containers",
        False,
        f"{free:.1f} GB available, {MEMORY_GB:g} GB needed: close programs, or give the engine's machine more "
        "(Docker Desktop: Settings, Resources; Colima: colima start --memory 6)",
    )


def _images(found: engine.Engine | None, profiles: set[str]) -> list[CheckResult]:
    """Return a failed result for each wanted server without an image for the engine's kind of processor."""
    if found is None or not found.processor or os.environ.get(PLATFORM):
        return []
    return [
        CheckResult(
            f"image of {server.title}",
            False,
            f"for {', '.join(server.image_for)} only, and this engine is {found.processor}: "
            f"leave {server.profile} out of COMPOSE_PROFILES, or set {PLATFORM}=linux/amd64 where it emulates that",
        )
        for server in IN_COMPOSE
        if server.profile in profiles and found.processor not in server.image_for
    ]


def _ports(settings: Mapping[str, str], ours: set[int], shell: Mapping[str, str]) -> CheckResult:
    wrong = []
    holders: dict[int, str] = {}
    for name, value in wanted_ports(settings).items():
        # A variable of the shell overrides that of .env.
        change = (
            f"unset {name} in your shell, or change it there" if name in shell else f"change {name} in .env"
        )
        port = int(value) if re.fullmatch("[0-9]{1,5}", value) else 0
        if not 1 <= port <= 65535:
            wrong.append(f"{name}={value[:40] or '(empty)'} is no port from 1 to 65535: {change}")
        elif port in holders:
            wrong.append(f"{name} and {holders[port]} are both {port}: {change}")
        elif port not in ours and not is_free(port):
            wrong.append(f"port {port} is taken: stop what listens there, or {change}")
        holders.setdefault(port, name)
    if wrong:
        return CheckResult("ports", False, "; ".join(wrong))
    more = " (the lab runs)" if ours else ""
    return CheckResult(
        "ports", True, f"{', '.join(str(port) for port in sorted(holders))} on 127.0.0.1{more}"
    )


def is_free(port: int) -> bool:
    """Return True if a server could listen on 127.0.0.1 at this port, and none answers there.

    macOS lets a server take 127.0.0.1 while another one holds the port on all addresses.
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    with socket.socket() as client:
        client.settimeout(ANSWER_S)
        return client.connect_ex(("127.0.0.1", port)) != 0
