"""How the lab reads docker's answers and passes on docker's errors."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.errors import StackError
from lab.stacks.compose import ComposeStack
from lab.stacks.containers import ServerContainers, Watch, find_containers
from lab.stacks.docker import NO_COMPOSE, NO_DOCKER, NOT_UP, Container, Docker, rows
from tests.app.servicekit import eventually, free_port
from tests.lab.stacks.running import SCENARIO

LINES = '{"ID": "a", "Service": "web"}\n{"ID": "b", "Service": "redis"}\n'


def test_both_forms_of_compose_ps_are_read() -> None:
    """`compose ps` is read as one object a line, as Compose prints since 2.21, and as the array of older versions."""
    array = json.dumps([json.loads(line) for line in LINES.splitlines()])
    assert rows(LINES) == rows(array) == [{"ID": "a", "Service": "web"}, {"ID": "b", "Service": "redis"}]
    assert rows("") == rows("[]") == []
    with pytest.raises(StackError, match="something unexpected"):
        rows("NAME   IMAGE   COMMAND")


@pytest.mark.parametrize("array", [False, True])
def test_containers_are_found_with_all_they_tell(docker: Any, make: Callable[..., Any], array: bool) -> None:
    """Service, health, environment, process and published ports come from `compose ps` and one `inspect`."""
    docker.has(
        [
            make("redis", {6379: 7001}, pid=42, health="starting", env={"A": "b=c"}),
            make("tempo", health="healthy", address="10.0.0.9"),
        ]
    )
    if array:
        (docker.folder / "array").touch()
    found = {container.service: container for container in Docker().containers()}
    assert set(found) == {"redis", "tempo"}
    redis, tempo = found["redis"], found["tempo"]
    assert (redis.pid, redis.health, redis.env) == (42, "starting", {"A": "b=c"})
    assert redis.published == {6379: ("127.0.0.1", 7001)}
    assert (tempo.addresses, tempo.published) == (("10.0.0.9",), {})
    assert [words[0] for words in docker.calls] == ["compose", "inspect"]


@pytest.mark.parametrize(
    ("words", "said", "expected"),
    [
        ("compose ps", "docker: 'compose' is not a docker command.\nSee 'docker --help'", NO_COMPOSE),
        ("compose ps", "docker: unknown command: docker compose", NO_COMPOSE),
        ("compose ps", "unknown shorthand flag: 'f' in -f", NO_COMPOSE),
        (
            "compose ps",
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
            "docker does not answer: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
        ),
        (
            "compose ps",
            "warning\nno configuration file provided: not found",
            "docker compose ps: no configuration file",
        ),
        ("inspect", "", "failed without a message"),
    ],
)
def test_complaints_of_docker_become_one_line(
    docker: Any, make: Callable[..., Any], words: str, said: str, expected: str
) -> None:
    """Whatever docker says on stderr becomes one line that tells what to do or what docker said."""
    docker.has([make("redis")])
    docker.fails(words, said)
    with pytest.raises(StackError) as caught:
        Docker().containers()
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_docker_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a docker on PATH the lab says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError) as caught:
        Docker().containers()
    assert str(caught.value) == NO_DOCKER


def test_nothing_running_means_not_up(docker: Any) -> None:
    """If no container runs, the error names the command that starts the stack."""
    with pytest.raises(StackError) as caught:
        find_containers("redis")
    assert str(caught.value) == NOT_UP == "docker compose is not up: make up"


def test_docker_that_hangs_is_given_up(docker: Any) -> None:
    """A docker that does not answer in time is an error, not an endless wait."""
    with pytest.raises(StackError, match=r"docker events does not answer within 0\.3 s"):
        Docker().ask("events", seconds=0.3)


@pytest.mark.parametrize(
    ("server", "missing", "hint"),
    [
        ("valkey", [], "valkey is not part of the running stack: docker compose --profile valkey up -d"),
        ("dragonfly", [], "dragonfly is not part of the running stack: docker compose up -d"),
        (
            "redis",
            ["invalidator-redis"],
            "invalidator-redis does not run: docker compose up -d invalidator-redis",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_command(
    docker: Any, make_server: Callable[..., Any], server: str, missing: list[str], hint: str
) -> None:
    """A server or a service that does not run is named, with the command that starts it."""
    docker.has([c for c in make_server("redis") if c["service"] not in missing])
    with pytest.raises(StackError) as caught:
        find_containers(server)
    assert str(caught.value) == hint


def test_ill_service_is_named(docker: Any, make_server: Callable[..., Any]) -> None:
    """An unhealthy service stops the run before it starts, and the line says where to look."""
    found = make_server("redis")
    found[1]["health"] = "unhealthy"
    docker.has(found)
    with pytest.raises(StackError, match="web-redis is unhealthy: docker compose logs --tail 20 web-redis"):
        find_containers("redis")


def test_a_scene_that_cannot_be_reached_gets_ports_on_loopback(
    docker: Any, make_server: Callable[..., Any], tmp_path: Path
) -> None:
    """Server and storefronts out of reach are started again, once, from their own files, with ports on 127.0.0.1."""
    file = tmp_path / "compose.yaml"
    file.write_text("services: {}")
    listeners = {port: socket.create_server(("127.0.0.1", 0)) for port in (6379, 8000, 9102)}
    listens = {str(port): listener.getsockname()[1] for port, listener in listeners.items()}
    files = [str(file), str(tmp_path / "an overlay that is gone")]
    docker.has(
        [*make_server("redis", listens=listens, files=files), *make_server("dragonfly", listens=listens)]
    )

    scene = find_containers("redis")

    assert scene.server_url(scene.of("server")) == f"redis://127.0.0.1:{listens['6379']}/0"
    assert scene.address("web") == scene.address("web", "dragonfly") == f"http://127.0.0.1:{listens['8000']}"
    assert scene.address("invalidator") == f"http://127.0.0.1:{listens['9102']}"
    (up,) = [call for call in docker.calls if "up" in call]
    assert up[:3] == ["compose", "--file", str(file)]
    assert up.count("--file") == 2
    assert up[-4:] == ["redis", "web-redis", "invalidator-redis", "web-dragonfly"]
    assert {"--no-deps", "--wait", "--no-build"} < set(up)
    assert scene.replaced == tuple(up[-4:])
    assert find_containers("redis").replaced == ()
    assert len([call for call in docker.calls if "up" in call]) == 1
    for listener in listeners.values():
        listener.close()


def test_containers_that_were_started_again_are_named(
    docker: Any, make: Callable[..., Any], make_server: Callable[..., Any], tmp_path: Path
) -> None:
    """The first line of a run names the services that were started again, because the scene is not as it was."""

    def say(text: str) -> None:
        raise StackError(text)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        there = make_server("redis", listens=dict.fromkeys(("6379", "8000", "9102"), port))
        docker.has(
            [
                *(each for each in there if each["service"] != "locust-redis"),
                make("locust-redis", {8089: port}),
            ]
        )
        stack = ComposeStack(SCENARIO, find_containers("redis"), tmp_path, seed=1)
        with pytest.raises(StackError, match=r"127\.0\.0\.1.*: redis, web-redis, invalidator-redis$"):
            stack.up(say)


def test_a_scene_that_stays_out_of_reach_is_one_line(docker: Any, make_server: Callable[..., Any]) -> None:
    """A scene out of reach even then, as on an engine of another machine, is refused in one line."""
    listens = dict.fromkeys(("6379", "8000", "9102"), free_port())
    docker.has(make_server("redis", listens=listens))
    with pytest.raises(
        StackError, match=r"redis cannot be reached .* run the lab on the machine of the engine"
    ):
        find_containers("redis")


def scene_of(names: list[str]) -> ServerContainers:
    """Return a scene of containers that do not exist."""
    found = [Container(f"{n}-{name}", name, health="healthy", pid=0) for n, name in enumerate(names)]
    return ServerContainers(Docker(), "redis", tuple(found))


def test_parts_of_a_scene_hold_every_container_once() -> None:
    """Each container is in one part: own roles under the records' names, other servers as one, watchers by name."""
    roles = ("web", "invalidator", "warmer", "locust", "probe")
    names = [
        name
        for s in ("redis", "dragonfly", "dragonfly-current")
        for name in (s, *(f"{r}-{s}" for r in roles))
    ]
    names += ["tempo", "redis-exporter", *["control"] * 3]
    parts = {part: [c.service for c in found] for part, found in scene_of(names).by_part().items()}
    assert sorted(name for found in parts.values() for name in found) == sorted(names)
    assert parts["store"] == ["redis"]
    assert parts["web"] == ["web-redis"]
    assert parts["probe-containers"] == ["probe-redis"]
    assert sorted(parts["other servers"]) == sorted(name for name in names if "dragonfly" in name)
    assert parts["redis-exporter"] == ["redis-exporter"]
    assert parts["control"] == ["control"] * 3, "scaled services count as often as they run"
    assert {"tempo", "control", "locust", "invalidator", "warmer"} <= set(parts)


def test_port_is_reached_by_whatever_way_there_is() -> None:
    """A port is reached by the container's own address, else by the published port, else one line says what to add."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        published = {6379: ("127.0.0.1", port)}
        redis = Container("id", "redis", "healthy", 0, addresses=("127.0.0.1",), gateways=("127.0.0.1",))
        assert replace(redis, published=published).reach(6379) == ("127.0.0.1", port), (
            "nothing listens on 6379"
        )
        if sys.platform == "linux":
            assert redis.reach(port) == ("127.0.0.1", port)
        assert not replace(redis, gateways=("10.0.0.1",)).reachable(port), (
            "this machine is not in the container's network, so a stranger listens there"
        )
    nothing = Container("id", "redis", "healthy", 0, published={6379: ("127.0.0.1", free_port())})
    with pytest.raises(StackError, match="port 6379 of redis cannot be reached") as caught:
        nothing.reach(6379)
    assert "\n" not in str(caught.value)


def broken(watch: Watch) -> str:
    """Return the watch's complaint, or an empty text."""
    try:
        watch.check()
    except StackError as error:
        return str(error)
    return ""


def test_watch_hears_an_end_that_was_not_meant(docker: Any, make: Callable[..., Any], tmp_path: Path) -> None:
    """The watch reports a container that ends, with its exit code, unless its end was expected."""
    docker.has([make("redis"), make("web-redis")])
    found = {container.service: container for container in Docker().containers()}
    watch = Watch(Docker(), list(found.values()), tmp_path)
    try:
        watch.expect(found["redis"])
        docker.tells("no json at all")
        docker.tells({"id": found["redis"].id, "status": "die"})
        docker.tells({"id": "somebody-else", "status": "die"})
        docker.tells(
            {"Actor": {"ID": found["web-redis"].id, "Attributes": {"exitCode": "137"}}, "Action": "die"}
        )
        said = eventually(lambda: broken(watch))
        assert said == (
            "web-redis ended unexpectedly (exit code 137): docker compose logs --tail 20 web-redis"
        )
    finally:
        watch.close()


def test_watch_of_an_engine_that_ends(docker: Any, make: Callable[..., Any], tmp_path: Path) -> None:
    """If `docker events` itself ends, the watch reports its last message."""
    docker.has([make("redis")])
    found = Docker().containers()
    docker.fails("events", "error during connect: EOF")
    watch = Watch(Docker(), found, tmp_path)
    try:
        said = eventually(lambda: broken(watch))
        assert "docker events ended unexpectedly (exit code 1): error during connect: EOF" in said
    finally:
        watch.close()
