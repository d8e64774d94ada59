"""`make up` says what is missing before anything starts: a fake docker plays every machine there is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.stacks.preflight import ROOT
from tests.compose.stack import PORTS, free_ports

Machine = Callable[..., subprocess.CompletedProcess[str]]

FAKE_DOCKER = """#!/bin/sh
echo "$*" >>"$FAKE_LOG"
case "$1 $2" in
"--version ") echo "Docker version 28.2.2, build 0" ;;
"compose version") [ -n "$FAKE_COMPOSE" ] && echo "$FAKE_COMPOSE" || { echo "unknown command: compose" >&2; exit 1; } ;;
"version --format") [ -z "$FAKE_ENGINE_ERROR" ] && echo 28.2.2 || { echo "$FAKE_ENGINE_ERROR" >&2; exit 1; } ;;
"info --format") echo "$FAKE_MEMORY" ;;
"ps --filter") echo "$FAKE_PS" ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Runs `python3 -m lab.stacks.up` in a copy of the tree's top, on a machine as the variables describe it."""
    programs, tree = tmp_path / "bin", tmp_path / "tree"
    programs.mkdir()
    (tree / "lab" / "stacks").mkdir(parents=True)
    needed = ("__init__", "errors", "stacks/__init__", "stacks/preflight", "stacks/servers", "stacks/up")
    for name in (f"{stem}.py" for stem in needed):
        shutil.copy(ROOT / "lab" / name, tree / "lab" / name)
    for name in ("compose.yaml", ".env"):
        shutil.copy(ROOT / name, tree)
    docker = programs / "docker"
    docker.write_text(FAKE_DOCKER)
    docker.chmod(0o755)

    def up(**variables: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "FAKE_LOG": str(tmp_path / "asked"),
            "FAKE_COMPOSE": "2.40.3",
            "FAKE_MEMORY": "64000000000",
            **dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True)),
            **variables,
        }
        return subprocess.run(
            [sys.executable, "-m", "lab.stacks.up"],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return up


def refused(answer: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 3, the words in what was printed, and no traceback."""
    assert answer.returncode == 3, answer
    assert "nothing was started" in answer.stderr
    assert "Traceback" not in answer.stderr
    missing = " ".join(line for line in answer.stdout.splitlines() if line.startswith("MISS"))
    for word in words:
        assert word in missing, answer.stdout


def test_machine_that_has_everything_passes(machine: Machine) -> None:
    """With everything there nothing is missing, and the images are asked for (the fake has none)."""
    answer = machine()
    assert "MISS" not in answer.stdout
    assert "the images could not be had" in answer.stderr


def test_port_in_use_is_named_with_its_setting(machine: Machine) -> None:
    """A taken port: its number and the line of .env that changes it."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        refused(machine(GRAFANA_PORT=port), f"port {port} is taken", "GRAFANA_PORT", ".env")


def test_port_of_everybody_counts_as_taken(machine: Machine) -> None:
    """A server that listens on every address holds the port on 127.0.0.1 too."""
    with socket.create_server(("0.0.0.0", 0)) as held:
        port = str(held.getsockname()[1])
        refused(machine(CONTROL_PORT=port), f"port {port} is taken", "CONTROL_PORT")


def test_port_the_lab_itself_holds_is_no_trouble(machine: Machine) -> None:
    """`make up` on a running lab: its own ports are not somebody else's."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        answer = machine(CONTROL_PORT=port, FAKE_PS=f"127.0.0.1:{port}->8080/tcp")
    assert "MISS" not in answer.stdout


@pytest.mark.parametrize("value", ["0", "65536", "http", "-1", "8080:8080", "٣٠٠٠"])
def test_port_that_is_none_is_named(value: str, machine: Machine) -> None:
    """What is no port number is refused by name."""
    refused(machine(TEMPO_PORT=value), f"TEMPO_PORT={value}", "1 to 65535")


def test_same_port_twice_is_noticed(machine: Machine) -> None:
    """Two settings with one number would make the second service fail after minutes."""
    [port] = free_ports(1)
    refused(machine(TEMPO_PORT=str(port), GRAFANA_PORT=str(port)), "TEMPO_PORT", "GRAFANA_PORT", str(port))


def test_ports_of_a_profile_count_when_it_is_on(machine: Machine) -> None:
    """The port of a server that is not started may be taken; with its profile on it may not."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        assert "MISS" not in machine(LOCUST_KEYDB_PORT=port).stdout
        refused(machine(LOCUST_KEYDB_PORT=port, COMPOSE_PROFILES="keydb"), f"port {port} is taken")


def test_too_little_memory_is_noticed(machine: Machine) -> None:
    """An engine with 2 GB (Docker Desktop's virtual machine, say) cannot hold the stack."""
    refused(machine(FAKE_MEMORY="2000000000"), "2.0 GB", "3 GB needed")


@pytest.mark.parametrize("version", ["2.19.1", "v2.5.0", "1.29.2"])
def test_old_compose_is_noticed(version: str, machine: Machine) -> None:
    """A Compose older than 2.20 lacks what the file uses."""
    refused(machine(FAKE_COMPOSE=version), f"{version} is too old", "2.20")


@pytest.mark.parametrize("version", ["2.20.0", "v2.40.3", "5.0.1", "2.100.0-desktop.1"])
def test_new_compose_is_accepted(version: str, machine: Machine) -> None:
    """2.20 and everything after, however the version is written."""
    assert "MISS" not in machine(FAKE_COMPOSE=version).stdout


def test_missing_compose_is_noticed(machine: Machine) -> None:
    """Docker without the plugin."""
    refused(machine(FAKE_COMPOSE=""), "docker compose: not found", "2.20")


def test_engine_that_does_not_run_is_noticed(machine: Machine) -> None:
    """The reason, and how to start it."""
    refused(machine(FAKE_ENGINE_ERROR="Cannot connect to the Docker daemon"), "engine", "does not run")


def test_engine_of_somebody_else_is_noticed(machine: Machine) -> None:
    """No permission is another problem than no engine, with another cure."""
    refused(machine(FAKE_ENGINE_ERROR="permission denied while trying to connect"), "usermod")


def test_missing_docker_is_noticed(machine: Machine, tmp_path: Path) -> None:
    """No docker at all."""
    (tmp_path / "bin" / "docker").unlink()
    refused(machine(PATH=str(tmp_path / "bin")), "docker: not found")


def test_missing_env_file_is_noticed(machine: Machine, tmp_path: Path) -> None:
    """Without .env Compose would complain about its first variable only."""
    (tmp_path / "tree" / ".env").unlink()
    refused(machine(), ".env", "missing", "git checkout .env")


def test_line_missing_from_env_file_is_noticed(machine: Machine, tmp_path: Path) -> None:
    """A variable compose.yaml needs and .env lacks is named."""
    path = tmp_path / "tree" / ".env"
    path.write_text(path.read_text().replace("REDIS_IMAGE=docker.io/library/redis", "X=redis"))
    refused(machine(), "REDIS_IMAGE missing")


def test_nothing_is_started_when_something_is_missing(machine: Machine, tmp_path: Path) -> None:
    """Looking changes nothing: docker was only asked."""
    refused(machine(FAKE_MEMORY="1000000000"), "memory")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert not [line for line in asked if line.split()[:2] in (["compose", "up"], ["compose", "create"])]
    assert not [line for line in asked if "build" in line or "pull" in line]


def test_everything_missing_is_said_at_once(machine: Machine) -> None:
    """Several faults are named together, not one a try."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        answer = machine(FAKE_COMPOSE="2.1.0", FAKE_MEMORY="1000000000", GRAFANA_PORT=port)
    refused(answer, "too old", "1.0 GB", f"port {port}")


def test_preflight_needs_the_standard_library_only() -> None:
    """`make up` works with the system's Python, without the lab's environment."""
    done = subprocess.run(
        [sys.executable, "-SI", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lab.stacks.up"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode == 0, done.stderr
