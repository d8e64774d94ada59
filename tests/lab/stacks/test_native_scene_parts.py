"""Parts of `bin/lab scene` without a scene: restarts and when they stop, ports, Prometheus's configuration."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from lab.errors import StackError
from lab.scene import native_prometheus, native_scene
from lab.scene.native_scene import MOST_ENDS, NativeScene
from lab.server.processes import port_taken, ports_after
from lab.server.servers import SERVERS
from tests.app.servicekit import free_port


class Dying:
    """A child that has ended, and ends again whenever it is started."""

    def __init__(self, name: str) -> None:
        self.name, self.started = name, 1

    def alive(self) -> bool:
        return False

    def stop(self) -> None:
        """Do nothing: it has ended."""

    def end_message(self) -> str:
        return f"{self.name} ended unexpectedly (exit code 7): no."

    def start_again(self) -> Dying:
        self.started += 1
        return self


@pytest.fixture
def still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NativeScene:
    """A scene in which nothing was started."""
    monkeypatch.setattr(native_scene, "PAUSE_S", 0)
    return NativeScene(SERVERS["embedded"], tmp_path, free_port())


def test_what_ends_again_and_again_ends_the_scene(still: NativeScene) -> None:
    """A needed part that ends too often ends the scene, as a `StackError` with that part's last message."""
    child = Dying("web")
    said: list[str] = []
    still._children.append(child)  # type: ignore[arg-type] # a stand-in
    for _ in range(MOST_ENDS - 1):
        still.restart_ended(said.append)
    assert child.started == MOST_ENDS
    with pytest.raises(StackError, match=r"web ended unexpectedly \(exit code 7\): no\. That was 3 times"):
        still.restart_ended(said.append)
    assert len(said) == MOST_ENDS - 1


def test_an_observer_that_ends_again_and_again_is_left_out(still: NativeScene) -> None:
    """If Prometheus ends too often, one line says so and the scene goes on without it."""
    child = Dying(native_scene.PROMETHEUS)
    said: list[str] = []
    still._children.append(child)  # type: ignore[arg-type] # a stand-in
    for _ in range(MOST_ENDS + 2):
        still.restart_ended(said.append)
    assert child.started == MOST_ENDS
    assert said[-1].endswith("the scene goes on without it.")
    assert still._children == []


def test_ports_follow_one_another() -> None:
    """`ports_after` gives the next free port each time and skips taken ones; after the last port, any free one."""
    ports = ports_after(20_000)
    first, second = next(ports), next(ports)
    assert 20_000 < first < second
    with socket.create_server(("127.0.0.1", 0)) as held:
        assert next(ports_after(held.getsockname()[1] - 1)) != held.getsockname()[1]
    assert not port_taken(next(ports_after(65535)))


ALL = dict.fromkeys(
    ("web", "invalidator", "warmer", "probe", "locust", "control", "prometheus"), "127.0.0.1:1"
)


@pytest.mark.parametrize(("server", "job"), [("valkey", "redis"), ("dragonfly", "dragonfly")])
def test_prometheus_is_configured_as_on_docker(server: str, job: str) -> None:
    """The configuration has the jobs with a target, with the labels, times and rules of the scene on Docker."""
    text = native_prometheus.configuration(server, {**ALL, job: "127.0.0.1:2"}, "redis://127.0.0.1:3")
    made = yaml.safe_load(text)
    original = yaml.safe_load((native_prometheus.FOLDER / "prometheus.yml").read_text())
    assert made["global"] == original["global"]
    assert [Path(path).is_file() for path in made["rule_files"]] == [True] * len(original["rule_files"])
    jobs = {found["job_name"]: found for found in made["scrape_configs"]}
    assert set(jobs) == {*ALL, job}
    labelled = {name for name, found in jobs.items() if found["static_configs"][0].get("labels")}
    assert labelled == set(jobs) - {"control", "prometheus"}
    assert {jobs[name]["static_configs"][0]["labels"]["server"] for name in labelled} == {server}
    assert jobs["web"]["honor_labels"]
    if job == "redis":
        assert (jobs[job]["metrics_path"], jobs[job]["params"]) == (
            "/scrape",
            {"target": ["redis://127.0.0.1:3"]},
        )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: apt install prometheus)")
def test_configuration_is_well_formed(tmp_path: Path) -> None:
    """Prometheus's own checker accepts the configuration."""
    path = tmp_path / "prometheus.yml"
    path.write_text(
        native_prometheus.configuration("valkey", {**ALL, "redis": "127.0.0.1:2"}, "redis://127.0.0.1:3")
    )
    done = subprocess.run(
        ["promtool", "check", "config", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
