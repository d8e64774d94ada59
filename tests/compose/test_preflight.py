"""`make up` says what is missing before anything starts. A fake docker plays each kind of machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from lab.scene import engine, preflight
from tests.compose.stack import PORTS, free_ports

Machine = Callable[..., subprocess.CompletedProcess[str]]

FAKE_DOCKER = """#!/bin/sh
echo "$*" >>"$FAKE_LOG"
[ -z "$COMPOSE_FILE" ] || echo "files $COMPOSE_FILE" >>"$FAKE_LOG"
case "$1 $2" in
"--version ") echo "Docker version 28.2.2, build 0" ;;
"compose version") [ -n "$FAKE_COMPOSE" ] && echo "$FAKE_COMPOSE" || { echo "unknown command: compose" >&2; exit 1; } ;;
"version --format")
  [ -z "$FAKE_ENGINE_ERROR" ] || { echo "$FAKE_ENGINE_ERROR" >&2; exit 1; }
  echo "${FAKE_PARTS:-28.2.2}" ;;
"context inspect") echo unix:///run/somewhere.sock ;;
"info --format") echo "${FAKE_INFO:-$FAKE_USUAL}" ;;
"network ls") seq ${FAKE_NETWORKS:-3} ;;
"compose --profile")
  case "$4" in
  config) [ -n "$FAKE_CONFIG" ] && echo "$FAKE_CONFIG" || { echo "yaml: line 1" >&2; exit 15; } ;;
  down) echo "removed" ;;
  esac ;;
"ps --filter") echo "$FAKE_PS" ;;
"ps --all") [ -z "$FAKE_FOLDER" ] || echo "$FAKE_FOLDER" ;;
*) exit 9 ;;
esac
"""


FAKE_PODMAN = """#!/bin/sh
echo "podman $*" >>"$FAKE_LOG"
[ -n "$FAKE_PODMAN" ] && echo "$FAKE_PODMAN"
"""


def usual(memory: int, **more: object) -> str:
    """What `docker info` prints for Docker's own engine with two CPUs; `more` replaces or adds fields."""
    said = {
        "ServerVersion": "28.2.2",
        "OperatingSystem": "Debian GNU/Linux 12",
        "NCPU": 2,
        "MemTotal": memory,
    }
    said |= {"SecurityOptions": ["name=seccomp,profile=builtin"], "CpuCfsQuota": True, "DockerRootDir": "/"}
    return json.dumps(said | more)


def config(folder: Path, **more: object) -> str:
    """What `docker compose config` prints where the lab's image is built from `folder`; `more` replaces its parts."""
    control = {"cpus": 1.0, "cpu_shares": 8192, "build": {"context": str(folder)}}
    services = {"redis": {"cpus": 1.5, "dns": ["127.0.0.1"]}, "control": control, "x": {}}
    return json.dumps({"name": "redis-latency-lab", "services": services} | more)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a function that runs `python3 -m lab.scene.up` in a copy of the files it needs, on a machine that the
    variables describe.
    """
    programs, tree = tmp_path / "bin", tmp_path / "tree"
    programs.mkdir()
    for room in ("scene", "server"):
        (tree / "lab" / room).mkdir(parents=True)
    scene = (f"scene/{name}" for name in ("__init__", "up", "door", "engine", "preflight"))
    needed = ("__init__", "errors", *scene, "server/__init__", "server/checks", "server/servers")
    for name in (f"{stem}.py" for stem in needed):
        shutil.copy(ROOT / "lab" / name, tree / "lab" / name)
    for name in ("compose.yaml", ".env"):
        shutil.copy(ROOT / name, tree)
    for name, text in (("docker", FAKE_DOCKER), ("podman", FAKE_PODMAN)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def up(*verb: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "FAKE_LOG": str(tmp_path / "asked"),
            "FAKE_COMPOSE": "2.40.3",
            "FAKE_USUAL": usual(int(variables.get("FAKE_MEMORY", 64 * 10**9))),
            "FAKE_CONFIG": config(tree),
            **dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True)),
            **variables,
        }
        return subprocess.run(
            [sys.executable, "-m", "lab.scene.up", *verb],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return up


def refused(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert exit code 3, no traceback, and each word among what is reported missing."""
    assert answer.returncode == 3, answer
    assert "nothing was started" in answer.stderr
    assert "Traceback" not in answer.stderr
    missing = " ".join(line for line in answer.stdout.splitlines() if line.startswith("MISS"))
    for word in words:
        assert word in missing, answer.stdout


def test_machine_that_has_everything_passes(machine: Machine) -> None:
    """On a complete machine nothing is reported missing; `up` goes on to the images, which the fake does not have."""
    answer = machine()
    assert "MISS" not in answer.stdout
    assert "not everything is healthy" in answer.stderr


def test_port_in_use_is_named_with_its_setting(machine: Machine) -> None:
    """A taken port is reported with its number and the variable of .env that changes it."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        refused(machine(GRAFANA_PORT=port), f"port {port} is taken", "unset GRAFANA_PORT in your shell")


def test_port_of_everybody_counts_as_taken(machine: Machine) -> None:
    """A server that listens on every address holds the port on 127.0.0.1 too."""
    with socket.create_server(("0.0.0.0", 0)) as held:
        port = str(held.getsockname()[1])
        refused(machine(CONTROL_PORT=port), f"port {port} is taken", "CONTROL_PORT")


def test_port_that_answers_is_taken_where_binding_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS allows a second server at a port that another one holds on all addresses: it is taken all the same."""
    with socket.create_server(("0.0.0.0", 0)) as held:
        port = int(held.getsockname()[1])
        monkeypatch.setattr(socket.socket, "bind", lambda *_: None)
        assert not preflight.is_free(port)
    assert preflight.is_free(port)


def test_comments_behind_values_are_no_part_of_them(machine: Machine, tmp_path: Path) -> None:
    """In .env a comment may stand behind a value, in quotes or not, as for Compose."""
    file = tmp_path / "tree" / ".env"
    file.write_text(
        file.read_text()
        .replace("GROW_SECONDS=240", "GROW_SECONDS=240  # slower")
        .replace("CONTROL_STORY=on", "CONTROL_STORY='off' # quiet\nCOMPOSE_PROFILES=valkey # with it")
    )
    read = preflight.read_env_file(file) or {}
    assert (read["GROW_SECONDS"], read["CONTROL_STORY"]) == ("240", "off")
    assert "MISS" not in machine().stdout


def test_port_the_lab_itself_holds_is_no_trouble(machine: Machine) -> None:
    """`make up` on a running lab does not report the lab's own ports as taken."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        answer = machine(CONTROL_PORT=port, FAKE_PS=f"127.0.0.1:{port}->8080/tcp")
    assert "MISS" not in answer.stdout


@pytest.mark.parametrize("value", ["0", "65536", "http", "-1", "8080:8080", "٣٠٠٠", "tcp://10.0.0.1:3000"])
def test_port_that_is_none_is_named(value: str, machine: Machine, tmp_path: Path) -> None:
    """A value that is no port number is refused, and its variable is named, with the place where it can be changed."""
    refused(machine(TEMPO_PORT=value), f"TEMPO_PORT={value}", "1 to 65535", "unset TEMPO_PORT in your shell")
    [result] = preflight.check_settings({"TEMPO_PORT": value}, set())
    assert result.detail.endswith("change TEMPO_PORT in .env")


OTHER = "/home/somebody/shop"


@pytest.mark.parametrize("verb", [(), ("down",)], ids=["up", "down"])
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"FAKE_CONFIG": config(Path(OTHER))}, "unset COMPOSE_FILE"),
        ({"FAKE_CONFIG": json.dumps({"name": "work", "services": {"db": {}}})}, "unset COMPOSE_FILE"),
        ({"FAKE_CONFIG": ""}, "cannot read its files: yaml: line 1"),
        ({"FAKE_FOLDER": OTHER}, f"project redis-latency-lab were started from {OTHER}: make down there"),
    ],
    ids=["a second clone's files", "another project's files", "no files", "another folder's containers"],
)
def test_a_scene_that_is_not_this_folders_is_left_alone(
    verb: tuple[str, ...], variables: dict[str, str], said: str, machine: Machine, tmp_path: Path
) -> None:
    """Where Compose would change another project, or containers of another folder, nothing starts or is removed."""
    answer = machine(*verb, **variables)
    assert answer.returncode == 3
    assert said in (answer.stderr if verb else answer.stdout)
    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    assert not [words for words in asked if words[0] == "compose" and {"up", "down"} & set(words)]


def test_down_removes_the_scene_of_this_folder(machine: Machine, tmp_path: Path) -> None:
    """Containers of this folder, also by another name of it, are removed."""
    (tmp_path / "link").symlink_to(tmp_path / "tree")
    answer = machine("down", FAKE_FOLDER=str(tmp_path / "link"))
    assert (answer.returncode, answer.stdout) == (0, "removed\n")
    assert "compose --profile * down --volumes --remove-orphans" in (tmp_path / "asked").read_text()


def test_same_port_twice_is_noticed(machine: Machine) -> None:
    """Two settings with the same port are refused: otherwise the second service would fail minutes later."""
    [port] = free_ports(1)
    refused(machine(TEMPO_PORT=str(port), GRAFANA_PORT=str(port)), "TEMPO_PORT", "GRAFANA_PORT", str(port))


def test_ports_of_a_profile_count_when_it_is_on(machine: Machine) -> None:
    """The port of a server that is off may be taken; with the server's profile on it may not."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        assert "MISS" not in machine(LOCUST_KEYDB_PORT=port).stdout
        refused(machine(LOCUST_KEYDB_PORT=port, COMPOSE_PROFILES="keydb"), f"port {port} is taken")


def test_too_little_memory_is_noticed(machine: Machine) -> None:
    """An engine with 2 GB (Docker Desktop's virtual machine, say) is refused: it cannot hold the stack."""
    refused(machine(FAKE_MEMORY="2000000000"), "2.0 GB", "3 GB needed")


@pytest.mark.parametrize("version", ["2.19.1", "v2.5.0", "1.29.2"])
def test_old_compose_is_noticed(version: str, machine: Machine) -> None:
    """A Compose older than 2.20 is refused: it lacks what compose.yaml uses."""
    refused(machine(FAKE_COMPOSE=version), f"{version} is too old", "2.20")


@pytest.mark.parametrize("version", ["2.20.0", "v2.40.3", "5.0.1", "2.100.0-desktop.1"])
def test_new_compose_is_accepted(version: str, machine: Machine) -> None:
    """Compose 2.20 and every later version is accepted, however the version is written."""
    assert "MISS" not in machine(FAKE_COMPOSE=version).stdout


def test_missing_compose_is_noticed(machine: Machine) -> None:
    """Docker without the Compose plugin is refused."""
    refused(machine(FAKE_COMPOSE=""), "docker compose: not found", "2.20")


def test_engine_that_does_not_run_is_noticed(machine: Machine) -> None:
    """An engine that does not run is refused and named as the reason."""
    refused(machine(FAKE_ENGINE_ERROR="Cannot connect to the Docker daemon"), "engine", "does not run")


def test_engine_of_somebody_else_is_noticed(machine: Machine) -> None:
    """If permission to the engine is missing, `up` names the remedy for that: usermod."""
    refused(machine(FAKE_ENGINE_ERROR="permission denied while trying to connect"), "usermod")


def test_missing_docker_is_noticed(machine: Machine, tmp_path: Path) -> None:
    """A machine without docker is refused."""
    (tmp_path / "bin" / "docker").unlink()
    refused(machine(PATH=str(tmp_path / "bin")), "docker: not found")


def test_missing_env_file_is_noticed(machine: Machine, tmp_path: Path) -> None:
    """A missing .env is reported as such: Compose would only complain about its first variable."""
    (tmp_path / "tree" / ".env").unlink()
    refused(machine(), ".env", "missing", "git checkout .env")


def test_line_missing_from_env_file_is_noticed(machine: Machine, tmp_path: Path) -> None:
    """A variable compose.yaml needs and .env lacks is named."""
    path = tmp_path / "tree" / ".env"
    path.write_text(path.read_text().replace("REDIS_IMAGE=docker.io/library/redis", "X=redis"))
    refused(machine(), "REDIS_IMAGE missing")


def test_nothing_is_started_when_something_is_missing(machine: Machine, tmp_path: Path) -> None:
    """While something is missing, nothing is created, built or pulled."""
    refused(machine(FAKE_MEMORY="1000000000"), "memory")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert not [line for line in asked if line.split()[:2] in (["compose", "up"], ["compose", "create"])]
    assert not [line for line in asked if "build" in line or "pull" in line]


def test_everything_missing_is_said_at_once(machine: Machine) -> None:
    """Several faults are reported together, not one per attempt."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        answer = machine(FAKE_COMPOSE="2.1.0", FAKE_MEMORY="1000000000", GRAFANA_PORT=port)
    refused(answer, "too old", "1.0 GB", f"port {port}")


PODMAN: dict[str, Any] = {
    "host": {
        "cpus": 4, "memTotal": 16 * 10**9, "security": {"rootless": True}, "cgroupVersion": "v2",
        "cgroupControllers": ["memory", "pids"],
    },
    "store": {"graphRoot": "/home/somebody/.local/share/containers/storage"},
    "version": {"Version": "4.3.1"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("said", "name", "told", "laid_over"),
    [
        (usual(16 * 10**9), "Docker Engine 28.2.2", "ok   CPUs for containers: 2", None),
        (
            usual(16 * 10**9, OperatingSystem="Docker Desktop", DockerRootDir="/not/here"),
            "Docker Desktop 28.2.2", "ok   disk for containers: unknown: 5 GB needed; docker system df shows", None,
        ),
        (usual(16 * 10**9, Name="colima"), "Colima 28.2.2", "CPUs for containers", None),
        (
            usual(16 * 10**9, NCPU=1),
            "Docker Engine 28.2.2", "1: limits above it are lowered", "services:\n  redis: {cpus: 1.0}\n",
        ),
        (
            usual(16 * 10**9, SecurityOptions=["name=rootless"], CpuCfsQuota=False),
            "Docker Engine 28.2.2, rootless", "CPU limits: not possible here",
            "services:\n  redis: {cpus: !reset null}\n  control: {cpus: !reset null, cpu_shares: !reset null}\n",
        ),
        (
            json.dumps(PODMAN), "Podman 4.3.1, rootless", "network without a way out: Podman",
            "services:\n  redis: {cpus: !reset null, dns: !reset null}\n"
            "  control: {cpus: !reset null, cpu_shares: !reset null}\n"
            "networks:\n  default: {driver_opts: !reset null}\n",
        ),
        (
            json.dumps(PODMAN | {"host": PODMAN["host"] | {"security": {"rootless": False}}}),
            "Podman 4.3.1", "Podman lacks the option",
            "services:\n  redis: {dns: !reset null}\nnetworks:\n  default: {driver_opts: !reset null}\n",
        ),
        ("no JSON", "28.2.2", "memory for containers: ", None),
    ],
    ids=["docker", "desktop", "colima", "one CPU", "rootless", "rootless podman", "podman", "unreadable"],
)  # fmt: skip
def test_what_an_engine_cannot_is_said_and_left_out(
    machine: Machine, tmp_path: Path, said: str, name: str, told: str, laid_over: str | None
) -> None:
    """One line names what the engine cannot do, and an overlay, which Compose reads by itself, leaves that out.

    An engine that can do everything has no overlay.
    """
    overlay = tmp_path / "tree" / "compose.override.yaml"
    for _ in range(2):  # twice: the overlay is written anew, not added to
        answer = machine(FAKE_INFO=said)
        assert "MISS" not in answer.stdout
        assert f"engine: {name}\n" in answer.stdout
        assert told in answer.stdout
        written = overlay.read_text().partition("\n")[2] if overlay.exists() else None
        assert written == laid_over
    machine()
    assert not overlay.exists(), "another engine, and nothing is left out any more"


@pytest.mark.parametrize(
    ("told", "name", "limits"),
    [
        (PODMAN, "Podman 4.3.1, rootless", False),
        (
            PODMAN | {"host": PODMAN["host"] | {"cgroupVersion": "v1", "cgroupControllers": None}},
            "Podman 4.3.1, rootless", False,
        ),
        (PODMAN | {"host": PODMAN["host"] | {"security": {"rootless": False}}}, "Podman 4.3.1", True),
        (None, "Podman 28.2.2", True),
    ],
    ids=["cgroups v2", "cgroups v1", "root", "no podman command"],
)  # fmt: skip
def test_podman_behind_dockers_command_is_asked_itself(
    machine: Machine, tmp_path: Path, told: dict[str, Any] | None, name: str, limits: bool
) -> None:
    """Podman's answer to `docker info` says that it can limit CPU time, even where it cannot: its own answer counts.

    Without the command `podman` nobody can be asked, and what `docker info` says is taken.
    """
    answer = machine(FAKE_PARTS='[{"Name": "Podman Engine"}]', FAKE_PODMAN=json.dumps(told) if told else "")
    assert f"engine: {name}\n" in answer.stdout
    assert ("CPU limits: not possible here" in answer.stdout) is not limits
    assert ("cpus: !reset" in (tmp_path / "tree" / "compose.override.yaml").read_text()) is not limits
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "podman --url unix:///run/somewhere.sock info --format json" in asked


def test_an_overlay_of_somebodys_own_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    """A person's own overlay is never changed. If the engine needs one, a line says what to add, and nothing starts."""
    own = tmp_path / "tree" / "compose.override.yaml"
    own.write_text("services: {}\n")
    assert "not everything is healthy" in machine().stderr
    answer = machine(FAKE_INFO=usual(16 * 10**9, NCPU=1))
    assert answer.returncode == 3
    assert answer.stderr.splitlines()[-1].endswith("services: redis: {cpus: 1.0}")
    assert own.read_text() == "services: {}\n"


def test_somebodys_own_overlay_is_not_read_beside_named_files(machine: Machine, tmp_path: Path) -> None:
    """COMPOSE_FILE names the files: an overlay that the lab did not write stays out, as Compose leaves it out."""
    (tmp_path / "tree" / engine.OVERLAY).write_text("services: {}\n")
    answer = machine(COMPOSE_FILE="compose.yaml")
    assert "not everything is healthy" in answer.stderr
    asked = (tmp_path / "asked").read_text()
    assert "files compose.yaml\n" in asked
    assert engine.OVERLAY not in asked


def test_too_many_networks_are_noticed(machine: Machine) -> None:
    """Too many networks are refused: an engine without a free range of addresses fails in the middle of
    `docker compose up`.
    """
    refused(machine(FAKE_NETWORKS="29"), "networks: 29", "docker network prune")


def test_too_little_disk_is_noticed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is checked where the engine keeps its images, if that folder is on this machine."""
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(0, 0, 2 * 10**9))
    [result] = engine._disk(engine.Engine("Docker Engine", "28", root=str(tmp_path)))
    assert not result.ok
    assert "2.0 GB free" in result.detail
    monkeypatch.undo()
    [result] = engine._disk(engine.Engine("Docker Desktop", "28", root="/not/here"))
    assert result.ok
    assert result.detail.startswith("unknown: 5 GB needed")


@pytest.mark.parametrize(
    ("said", "profiles", "refuses"),
    [
        (usual(16 * 10**9, Architecture="aarch64"), "keydb", True),
        (usual(16 * 10**9, Architecture="aarch64"), "*", True),
        (json.dumps(PODMAN | {"host": PODMAN["host"] | {"arch": "arm64"}}), "valkey,keydb", True),
        (json.dumps(PODMAN | {"host": PODMAN["host"] | {"arch": "amd64"}}), "keydb", False),
        (usual(16 * 10**9, Architecture="aarch64"), "valkey", False),
        (usual(16 * 10**9, Architecture="x86_64"), "keydb", False),
        (usual(16 * 10**9), "keydb", False),
    ],
    ids=["arm64", "every profile", "podman", "podman on x86-64", "not wanted", "x86-64", "not known"],
)
def test_image_for_other_processors_is_noticed(
    machine: Machine, said: str, profiles: str, refuses: bool
) -> None:
    """KeyDB's image is for x86-64 only: where it is wanted and the engine's processor is another, a line says so."""
    answer = machine(FAKE_INFO=said, COMPOSE_PROFILES=profiles)
    if refuses:
        refused(answer, "image of KeyDB: for x86_64 only", "leave keydb out of COMPOSE_PROFILES")
    else:
        assert "MISS" not in answer.stdout


def test_preflight_needs_the_standard_library_only() -> None:
    """`make up` works with the system's Python, without the lab's environment."""
    done = subprocess.run(
        [sys.executable, "-SI", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lab.scene.up"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode == 0, done.stderr
