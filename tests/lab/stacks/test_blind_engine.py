"""A blind session asks of each engine only what it can do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.blind.compose import ComposeBlindStack
from lab.errors import StackError
from lab.stacks.containers import PORTS

DOCKER: dict[str, Any] = {"components": None}
ROOTLESS: dict[str, Any] = {
    "components": None, "SecurityOptions": ["name=seccomp", "name=rootless"], "CpuCfsQuota": False,
}  # fmt: skip
PODMAN: dict[str, Any] = {"components": [{"Name": "Podman Engine"}]}
PODMANS_OWN: dict[str, Any] = {  # what `docker info` says where docker is another name for podman: there is no NCPU
    "components": None, "version": {"Version": "4.3.1"}, "store": {"graphRoot": "/"},
    "host": {
        "cpus": 6, "memTotal": 8 * 10**9, "security": {"rootless": True}, "cgroupVersion": "v2",
        "cgroupControllers": ["memory", "pids"],
    },
}  # fmt: skip
CPU = {"--cpus=1", "--cpu-shares=1024"}
NAMES = {"--dns=127.0.0.1"}


@pytest.fixture
def session(
    docker: Any, make_server: Callable[..., Any], tmp_path: Path
) -> Iterator[Callable[[dict[str, Any]], ComposeBlindStack]]:
    """Return a function that makes a session's scene, which is not started, on an engine that says this of itself."""
    listener = socket.create_server(("127.0.0.1", 0))
    ports = dict.fromkeys(PORTS.values(), listener.getsockname()[1])
    docker.has(make_server("redis", ports=ports))

    def make(engine: dict[str, Any]) -> ComposeBlindStack:
        docker.is_engine(**engine)
        return ComposeBlindStack(tmp_path / "blind")

    yield make
    listener.close()


@pytest.mark.parametrize(
    ("engine", "given"),
    [(DOCKER, CPU | NAMES), (ROOTLESS, NAMES), (PODMAN, CPU), (PODMANS_OWN, set())],
    ids=["docker", "rootless", "podman", "rootless podman"],
)
def test_containers_get_only_the_options_that_the_engine_knows(
    session: Callable[..., ComposeBlindStack], engine: dict[str, Any], given: set[str]
) -> None:
    """Without CPU limits no option limits CPU time; Podman is given no name server. All other options are the same."""
    words = session(engine)._docker_run("program-1")
    assert {word for word in words if word.startswith(("--cpu", "--dns"))} == given
    assert {"--read-only", "--cap-drop=ALL", "--memory=192m", "--interactive", "--rm"} <= set(words)


@pytest.mark.parametrize(
    ("engine", "core"),
    [
        (DOCKER | {"NCPU": 6}, 5),
        (PODMANS_OWN, None),
        (ROOTLESS | {"CpuCfsQuota": True, "CPUSet": False}, None),
    ],
    ids=["docker", "podman", "rootless with CPU limits alone"],
)
def test_the_server_is_kept_on_a_core_where_the_engine_can_do_that(
    docker: Any, session: Callable[..., ComposeBlindStack], engine: dict[str, Any], core: int | None
) -> None:
    """The server is kept on the engine's last core and gets all cores back; without CPU limits it is left alone."""
    stack = session(engine)
    back = stack._unpin("server")
    stack._pin_server()
    assert stack.core == core
    updates = [call for call in docker.calls if call[0] == "update"]
    if core is None:
        assert (back, updates) == ([], [])
    else:
        assert back == [["update", "--cpuset-cpus", "0-5", "--cpu-shares", "1024", "server"]]
        assert [call[:3] for call in updates] == [["update", "--cpuset-cpus", "5"]]


@pytest.mark.parametrize(
    "said", [{"NCPU": 0}, {"ServerVersion": None, "host": {}}], ids=["no cores", "no engine"]
)
def test_an_engine_that_cannot_be_read_is_one_line(
    session: Callable[..., ComposeBlindStack], said: dict[str, Any]
) -> None:
    """A session on an engine that does not tell its cores is refused before anything is changed."""
    with pytest.raises(StackError, match="does not say what its engine can do") as caught:
        session(DOCKER | said)
    assert "\n" not in str(caught.value)
