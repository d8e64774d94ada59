"""A room without a network: the bundle, installed and started where there is nothing but loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.scene.bundle import bundle, this_system
from tests.compose.engine import Engine
from tests.compose.stack import Stack

pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("dockerd"),
        reason="only root may take the network away from an engine of its own",
    ),
]
PYTHON = "{}.{}".format(*sys.version_info)
NO_WAY_OUT = "! {python} -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 3)' 2>/dev/null"


class Room:
    """A network namespace with loopback only, and an empty container engine in it.

    The engine's mounts are private to it, so a killed one leaves nothing mounted.
    """

    def __init__(self, cache: Path) -> None:
        for left in cache.glob("room*"):  # of tests that were killed
            shutil.rmtree(left, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        self.place = place = Path(tempfile.mkdtemp(prefix="room-", dir=cache))
        self.environ = {
            **os.environ,
            "DOCKER_HOST": f"unix://{place / 'docker.sock'}",
            "PIP_CONFIG_FILE": os.devnull,  # no mirror of this machine's own
            "PIP_INDEX_URL": "",
        }
        self._log = (place / "dockerd.log").open("wb")
        self.daemon = subprocess.Popen(
            [
                *(
                    "unshare",
                    "--net",
                    "--mount",
                    "sh",
                    "-c",
                    'ip link set lo up && exec "$@"',
                    "sh",
                    "dockerd",
                ),
                f"--host={self.environ['DOCKER_HOST']}",
                f"--data-root={place / 'data'}",
                f"--exec-root={place / 'exec'}",
                f"--pidfile={place / 'dockerd.pid'}",
            ],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def type(self, line: str, cwd: Path, seconds: int = 600) -> subprocess.CompletedProcess[str]:
        """Run a line of shell in the namespace of the engine."""
        return subprocess.run(
            ["nsenter", f"--net=/proc/{self.daemon.pid}/ns/net", "sh", "-c", line],
            cwd=cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def wait(self) -> None:
        """Wait until the engine answers."""
        for _ in range(60):
            if self.type("docker version", self.place).returncode == 0:
                return
            assert self.daemon.poll() is None, (self.place / "dockerd.log").read_text()
            time.sleep(1)
        raise AssertionError((self.place / "dockerd.log").read_text()[-2000:])

    def close(self) -> None:
        """End the engine; its data go with it."""
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.daemon.pid, signal.SIGKILL)
            self.daemon.wait()
        self._log.close()
        shutil.rmtree(self.place, ignore_errors=True)


@pytest.fixture
def room() -> Iterator[Room]:
    """A room in the engine's cache: pytest's folder may lie on a file system that cannot hold images."""
    found = Room(Engine().cache)
    try:
        found.wait()
        yield found
    finally:
        found.close()


def test_the_lab_installs_and_runs_from_its_bundle_without_a_network(
    project: Stack, room: Room, tmp_path: Path
) -> None:
    """From a bundle made with a network, the lab installs, brings its scene up and makes a run without one."""
    project.compose("down", "--volumes", "--remove-orphans")
    archive = bundle(this_system(), [PYTHON], tmp_path, with_images=True)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    assert room.type(NO_WAY_OUT.format(python=sys.executable), tmp_path).returncode == 0
    assert room.type("docker images --quiet", tmp_path).stdout == ""

    installed = room.type(f"sh {archive.stem}/install.sh lab", tmp_path)
    assert installed.stdout.endswith("installed: cd lab, and then make demo\n"), installed.stderr
    lab = tmp_path / "lab"

    up = room.type("make up", lab)
    try:
        assert up.returncode == 0, up.stdout[-2000:] + up.stderr[-2000:]
        asked = room.type("curl --silent http://127.0.0.1:8080/api/state | grep -c redis", lab)
        assert asked.stdout.strip() != "0", asked
    finally:
        down = room.type("make down", lab)
    assert down.returncode == 0, down.stderr

    run = room.type(f"bin/lab run key-growth --pace quick --out {tmp_path / 'run'}", lab)
    assert run.returncode in (0, 4), run.stdout + run.stderr  # 4: this machine was too busy for a verdict
    assert (tmp_path / "run" / "report.html").is_file()
