"""Fixtures: a stand-in for `docker` on PATH that knows `compose ps` and records its calls."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROLES = ("web", "invalidator", "warmer", "locust", "probe")
PROGRAM = """
import json, sys
from pathlib import Path

folder, words = Path({folder!r}), sys.argv[1:]
with (folder / "calls.log").open("a") as log:
    log.write(json.dumps(words) + "\\n")
if (folder / "fail.json").exists():
    fail = json.loads((folder / "fail.json").read_text())
    print(fail["complaint"], file=sys.stderr)
    sys.exit(1)
if words[:2] == ["compose", "ps"]:
    print((folder / "containers.json").read_text())
"""


class FakeDocker:
    """Sets what the stand-in for `docker` answers, and reads the calls it got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.has([])

    def has(self, services: list[str], health: str = "healthy") -> None:
        """Set the services that run."""
        rows = [
            {"ID": name, "Name": f"lab-{name}-1", "Service": name, "State": "running", "Health": health}
            for name in services
        ]
        (self.folder / "containers.json").write_text(json.dumps(rows))

    def fails(self, complaint: str) -> None:
        """Let every command fail with this text on stderr."""
        (self.folder / "fail.json").write_text(json.dumps({"complaint": complaint}))

    @property
    def calls(self) -> list[list[str]]:
        """The words of each call so far."""
        return [json.loads(line) for line in (self.folder / "calls.log").read_text().splitlines()]


def services_of(server: str) -> list[str]:
    """The services of one server of the scene."""
    return [server, *(f"{role}-{server}" for role in ROLES)]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in is the first `docker` on PATH, for this process and its children."""
    folder = tmp_path / "docker"
    folder.mkdir()
    script = folder / "docker"
    script.write_text(f"#!{sys.executable}\n{PROGRAM.format(folder=str(folder))}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return FakeDocker(folder)
