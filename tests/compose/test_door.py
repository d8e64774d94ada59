"""What `docker compose up` looks at first and says last, and what `make up` says of a container. Needs no Docker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lab import ROOT
from lab.scene import door, up

ENOUGH = "MemTotal:        4026532 kB\n"


@pytest.mark.parametrize("mode", [0o640, 0o600])
def test_files_of_a_strict_umask_are_named(mode: int) -> None:
    """Files that only their owner, or his group, may read are named, with the command that opens them."""
    code = (
        "import os, pathlib, sys\nfrom lab.scene import door\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"print(*door.faults((pathlib.Path(sys.argv[1]),), {ENOUGH!r}))"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for name in ("prometheus.yml", "rules.yml"):
            (Path(folder) / name).write_text("groups: []\n")

        def said() -> str:
            command = [sys.executable, "-c", code, folder]
            return subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.strip()

        assert said() == ""
        (Path(folder) / "rules.yml").chmod(mode if os.geteuid() == 0 else 0)
        assert said().startswith(f"containers may not read {folder}/rules.yml: the lab was cloned under")
        assert "chmod -R go+rX prometheus tempo grafana" in said()


def test_too_little_memory_is_said_before_anything_starts() -> None:
    """An engine with 2 GB gets a line; one with 4 GB gets none."""
    [line] = door.faults((), "MemTotal:        1953125 kB\n")
    assert line.startswith("2.0 GB of memory for containers, 3 GB needed")
    assert list(door.faults((), ENOUGH)) == []


def test_the_banner_has_the_published_addresses_of_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses are those of the control page's links; a load that is off is left out."""

    def known(name: str, _port: object) -> None:
        if name == "locust-keydb":
            raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", known)
    pages = {
        "CONTROL_URL": 18080,
        "CONTROL_GRAFANA_URL": 3000,
        "CONTROL_PROMETHEUS_URL": 9090,
        "CONTROL_TEMPO_URL": 3200,
    }
    environ = {name: f"http://127.0.0.1:{port}" for name, port in pages.items()}
    said = door.banner(
        {**environ, "CONTROL_LOCUST_URLS": "redis=http://127.0.0.1:8090, keydb=http://127.0.0.1:8092"}
    )
    assert "control page         http://127.0.0.1:18080    begin here\n" in said
    assert "Locust, redis        http://127.0.0.1:8090" in said
    assert "keydb" not in said
    assert "Do this first" in said and "With -v" in said


def test_a_container_that_ends_again_and_again_is_called_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make up` tells a crash loop from a slow start, with the last line of its log; `check` has done its work."""
    rows = [
        {"Service": "check", "Name": "check-1", "State": "exited", "ExitCode": 0},
        {"Service": "redis", "Name": "redis-1", "State": "created", "ExitCode": 0},
        {"Service": "grafana", "Name": "grafana-1", "State": "running", "Health": "healthy", "ExitCode": 0},
        {
            "Service": "prometheus",
            "Name": "prometheus-1",
            "State": "restarting",
            "Health": "starting",
            "ExitCode": 2,
        },
    ]
    monkeypatch.setattr(up, "containers", lambda: rows)
    monkeypatch.setattr(up, "log_of", lambda name: f"{name}: permission denied\n")
    assert up.complaints() == [
        "prometheus: ends with code 2 again and again: prometheus-1: permission denied"
    ]
    rows[0]["ExitCode"] = 1
    assert up.complaints()[0] == "check: ends with code 1: check-1: permission denied"
