"""The faults of containers, on a made-up engine: what is done to them, and that all is put back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest

from app.state import State
from bench import fault_compose
from bench.fault_compose import FAULTS, ComposeScene, where
from lab.errors import StackError
from lab.stacks.docker import Container, Docker

ROLES = ("redis", "web-redis", "invalidator-redis", "warmer-redis", "locust-redis", "probe-redis")
SERVICES = (*ROLES, "tempo", "prometheus", "grafana")
NETWORK = "lab_default"


class Engine:
    """Stands in for the `docker` command: containers run, stand still or are stopped, and their addresses change."""

    def __init__(self, state: Path) -> None:
        self.states = dict.fromkeys(SERVICES, "running")
        self.names = {service: {NETWORK: [service, f"lab-{service}-1"]} for service in SERVICES}
        self.health = dict.fromkeys(SERVICES, "healthy")
        self.told: list[str] = []
        self._state, self._last = state, 1
        self._addresses = {service: self._next() for service in SERVICES}

    def _next(self) -> str:
        self._last += 1
        return f"172.18.0.{self._last}"

    def ask(self, *words: str, seconds: float = 0.0) -> str:
        """Carry out a command of docker."""
        if words[:2] == ("network", "disconnect"):
            self.names[words[-1]].clear()
        elif words[:2] == ("network", "connect"):
            self.names[words[-1]][words[-2]] = list(words[3:-2:2])
            self._addresses[words[-1]] = self._next()
        elif words[0] == "inspect":
            return json.dumps(self._shown(words[2], words[3]))
        else:
            for service in words[1:]:
                self._do(words[0], service)
        if words[0] != "inspect":
            self.told.append(" ".join(words))
        return ""

    def _do(self, verb: str, service: str) -> None:
        became = {
            "kill": "exited", "stop": "exited", "start": "running", "restart": "running",
            "pause": "paused", "unpause": "running",
        }[verb]  # fmt: skip
        assert self.states[service] != became or verb == "restart", f"{verb} {service}"
        self.states[service] = became
        if verb in ("start", "restart"):
            self._addresses[service] = self._next()

    def _shown(self, what: str, service: str) -> Any:
        if "Mounts" in what:
            return [{"Source": str(self._state), "Destination": "/state"}]
        if "Networks" in what:
            return {name: {"Aliases": names} for name, names in self.names[service].items()}
        return {"Paused": self.states[service] == "paused", "Running": self.states[service] != "exited"}

    def containers(self) -> list[Container]:
        """All containers."""
        return self.inspect(*SERVICES)

    def inspect(self, *services: str) -> list[Container]:
        """Containers as they are; one that does not run or has no network has no address."""
        return [
            Container(
                service, service, self.health[service], 1,
                addresses=(self._addresses[service],) if self._has_address(service) else (),
            )
            for service in services
        ]  # fmt: skip

    def _has_address(self, service: str) -> bool:
        return self.states[service] != "exited" and bool(self.names[service])


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine whose storefront has a state folder, and on which no fault takes time."""
    State(tmp_path).close()
    monkeypatch.setattr(Container, "reachable", lambda *_: True)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return Engine(tmp_path)


def scene(engine: Engine) -> ComposeScene:
    """The scene of Redis on an engine."""
    return ComposeScene("redis", cast(Docker, engine))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_taken_back(name: str, engine: Engine) -> None:
    """After a fault every container runs, in its network, under its names, and the scene knows its address."""
    names = {service: {**kept} for service, kept in engine.names.items()}
    subject = scene(engine)
    FAULTS[name].act(subject, 0.001)

    assert engine.told, "it did something"
    assert set(engine.states.values()) == {"running"} and engine.names == names
    assert subject.base == f"http://{engine.inspect('web-redis')[0].addresses[0]}:8000"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_broken_off_is_mended(
    name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a fault leaves nothing behind."""
    names = {service: {**kept} for service, kept in engine.names.items()}
    subject = scene(engine)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FAULTS[name].act(subject, 1.0)
    subject.mend()

    assert set(engine.states.values()) == {"running"} and engine.names == names
    assert subject.base == f"http://{engine.inspect('web-redis')[0].addresses[0]}:8000"


def test_what_is_ill_is_an_alarm(engine: Engine) -> None:
    """The server's own containers are named, and no other one."""
    subject = scene(engine)
    engine.health |= {"web-redis": "unhealthy", "grafana": "unhealthy"}

    assert subject.alarms() == ["web-redis unhealthy"]


@pytest.mark.parametrize("state", ["firing", "pending"])
def test_an_alert_that_fires_is_an_alarm(state: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts of other servers, and those that wait, are none."""
    labels: list[dict[str, str]] = [
        {"alertname": "A", "server": "redis"},
        {"alertname": "B", "server": "keydb"},
    ]
    said = {"data": {"alerts": [{"labels": each, "state": state} for each in labels]}}
    monkeypatch.setattr(fault_compose, "ask", lambda *_, **__: (200, {}, json.dumps(said).encode()))

    assert scene(engine).alarms() == (["alert A"] if state == "firing" else [])


def test_a_container_without_an_address_does_not_answer(engine: Engine) -> None:
    """While the storefront is down its status is 0, and its address an OSError."""
    subject = scene(engine)
    engine.states["web-redis"] = "exited"
    subject.refresh()

    assert subject.status("/readyz") == 0
    with pytest.raises(OSError, match="web-redis has no address"):
        _ = subject.base


def test_a_published_port_is_preferred() -> None:
    """Where containers cannot be reached, their port on 127.0.0.1 can."""
    published = {8000: ("127.0.0.1", 49153)}
    container = Container("1", "web-redis", "healthy", 1, addresses=("172.18.0.2",), published=published)

    assert where(container, 8000) == "127.0.0.1:49153"
    assert where(container, 9101) == "172.18.0.2:9101"


def test_an_outbox_out_of_sight_is_said(engine: Engine, tmp_path: Path) -> None:
    """Without the outbox nothing can be judged, so nothing begins."""
    (tmp_path / "state.sqlite3").unlink()
    with pytest.raises(StackError, match="run this as root, on the machine of the engine"):
        scene(engine)


def test_the_outbox_is_the_storefronts(engine: Engine, tmp_path: Path) -> None:
    """The users of accepted events are read from the volume."""
    state = State(tmp_path)
    state.add_event(77, "order", None)
    state.close()

    assert scene(engine).outbox() == {77}
