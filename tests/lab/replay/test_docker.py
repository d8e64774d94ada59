"""How a replay reads what docker prints, and passes on what it complains of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.errors import StackError
from lab.replay.docker import NO_COMPOSE, NO_DOCKER, Docker, rows
from tests.lab.stacks.conftest import docker as docker

LINES = '{"ID": "a", "Service": "web"}\n{"ID": "b", "Service": "redis"}\n'
UNREACHABLE = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"


def test_both_forms_of_compose_ps_are_read() -> None:
    """`compose ps` is read as one object a line, as Compose prints since 2.21, and as the array of older versions."""
    array = json.dumps([json.loads(line) for line in LINES.splitlines()])
    assert rows(LINES) == rows(array) == [{"ID": "a", "Service": "web"}, {"ID": "b", "Service": "redis"}]
    assert rows("") == rows("[]") == []
    with pytest.raises(StackError, match="something unexpected"):
        rows("NAME   IMAGE   COMMAND")


@pytest.mark.parametrize(
    ("complaint", "expected"),
    [
        ("docker: 'compose' is not a docker command.\nSee 'docker --help'", NO_COMPOSE),
        ("docker: unknown command: docker compose", NO_COMPOSE),
        ("unknown shorthand flag: 'f' in -f", NO_COMPOSE),
        (UNREACHABLE, f"docker does not answer: {UNREACHABLE}"),
        ("warning\nno configuration file provided: not found", "docker compose ps: no configuration file"),
        ("", "failed without a message"),
    ],
)
def test_complaints_of_docker_become_one_line(docker: Any, complaint: str, expected: str) -> None:
    """Whatever docker says on stderr becomes one line that tells what to do or what docker said."""
    docker.fails(complaint)
    with pytest.raises(StackError) as caught:
        Docker().ask("compose", "ps")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_docker_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a docker on PATH the lab says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError) as caught:
        Docker().ask("compose", "ps")
    assert str(caught.value) == NO_DOCKER
