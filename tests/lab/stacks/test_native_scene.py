"""`bin/lab scene` on real processes: it comes up, restarts what dies, and leaves nothing however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import redis

from lab.errors import UsageError
from lab.scene import native_prometheus, native_scene
from lab.server.processes import port_taken
from tests.app.servicekit import Reply, eventually, free_port, http
from tests.lab.labkit import Running, lab, typed

PROMETHEUS = shutil.which("prometheus")
QUICK = {
    "CONTROL_KEYS": "20000",
    "CONTROL_GROW_SECONDS": "30",
    "CONTROL_HEALTHY_SECONDS": "5",
}
READY = "Ctrl-C here ends everything."
pytestmark = pytest.mark.whole
UP_S = 90


class SceneProcess(Running):
    """A `lab scene` in the background, with its own folder for temporary files."""

    def __init__(self, place: Path, *options: str, path: str | None = None, **environment: str) -> None:
        self.port = free_port()
        self.temporary = place / "tmp"
        self.temporary.mkdir(parents=True)
        self.environment: dict[str, Any] = {
            **QUICK,
            **environment,
            "TMPDIR": str(self.temporary),
            "LAB_BLIND_HOME": str(place / "looks"),
        }
        if path is not None:
            self.environment["PATH"] = path
        super().__init__("--port", str(self.port), *options, cwd=place, verb="scene", **self.environment)

    def output(self) -> str:
        """Return everything that it has printed so far."""
        return self._out.read_text()

    def up(self) -> SceneProcess:
        """Wait until the scene says that it is ready."""
        self.until(lambda: READY in self.output(), UP_S)
        return self

    def shown(self, name: str) -> str:
        """Return an address that the scene prints."""
        (line,) = [line for line in self.output().splitlines() if line.startswith(f"  {name} ")]
        return line.split()[1]

    def state(self) -> dict[str, Any]:
        """Return the server's state as the control page gives it."""
        servers = http("GET", f"http://127.0.0.1:{self.port}/api/state").json["servers"]
        return dict(servers[0]) if servers else {}

    def wait_for(self, check: Callable[[dict[str, Any]], Any], seconds: float = 60) -> dict[str, Any]:
        """Return the state once `check` is true of it."""
        end = time.monotonic() + seconds
        while True:
            state = self.state()
            if state and check(state):
                return state
            assert time.monotonic() < end, f"still {state}"
            time.sleep(0.2)

    def act(self, action: str, **body: Any) -> Reply:
        """Pull a lever of the control page."""
        return http("POST", f"http://127.0.0.1:{self.port}/api/servers/valkey/{action}", body)

    def part(self, words: str) -> psutil.Process:
        """The process that the lab started with these words in its command line."""
        self.family()
        (found,) = [
            process
            for process in psutil.Process(self.process.pid).children()
            if words in " ".join(process.cmdline())
        ]
        return found

    def leaves_nothing(self, ports: set[int]) -> None:
        """Assert that no process, port or folder is left."""
        assert self.left() == []
        assert [port for port in ports if port_taken(port)] == []
        assert list(self.temporary.iterdir()) == []
        assert not Path(self.environment["LAB_BLIND_HOME"]).exists()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SceneProcess]:
    """One scene for all tests that leave it running, in their order."""
    with SceneProcess(tmp_path_factory.mktemp("scene")) as made:
        yield made.up()


@pytest.mark.whole
def test_it_tells_the_story(scene: SceneProcess) -> None:
    """The control page answers, the event rate is calibrated, and keys grow under the scan strategy."""
    page = http("GET", f"http://127.0.0.1:{scene.port}/")
    assert page.status == 200
    low = scene.wait_for(lambda state: state["growth"] and state["events_per_second"] > 0 and state["keys"])
    assert (low["name"], low["strategy"]) == ("valkey", "scan")
    scene.wait_for(lambda state: state["keys"] > low["keys"] + 500 and state["p99_ms"])


def test_everything_listens_on_the_loopback_only(scene: SceneProcess) -> None:
    """No process of the scene can be reached from outside."""
    open_to = {
        connection.laddr.ip
        for process in scene.family().values()
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert open_to == {"127.0.0.1"}


def test_what_it_shows_is_there(scene: SceneProcess) -> None:
    """The addresses lead to server, storefront and Locust, whose web UI answers, and a second terminal's `probe` and
    `redis` find the server by themselves.
    """
    assert redis.Redis.from_url(scene.shown("server"), protocol=2, driver_info=None).ping()
    assert http("GET", scene.shown("storefront") + "/readyz").status == 200
    assert b"Locust" in http("GET", scene.shown("Locust") + "/").body
    probed = lab("probe", "--seconds", "1", cwd=scene.temporary.parent, **scene.environment)
    assert (probed.code, probed.err) == (0, ""), probed
    asked = lab("redis", "INFO", "server", cwd=scene.temporary.parent, **scene.environment)
    assert f"tcp_port:{scene.shown('server').rpartition(':')[2]}" in asked.out


@pytest.mark.whole
def test_looks_are_taken_at_it(scene: SceneProcess) -> None:
    """`bin/lab look` reads a scene; commands about a hidden cause are refused."""
    place = scene.temporary.parent
    looks = {
        what: lab("look", what, cwd=place, **scene.environment)
        for what in ("commands", "processes", "clients", "users")
    }
    assert [answer.code for answer in looks.values()] == [0] * 4, looks
    assert "scan" in looks["commands"].out
    assert {"store", "web", "invalidator", "probe", "control"} <= set(looks["processes"].out.split())
    assert "CLIENT LIST" in looks["clients"].out
    assert "p99 of a bystander's GET" in looks["users"].out
    refused = lab("blind", "reveal", cwd=place, **scene.environment)
    assert refused.is_one_line(2)
    assert "hides no cause" in refused.err


def test_a_second_one_is_refused(scene: SceneProcess) -> None:
    """A second scene is refused in one line, on the same port or another: the two would disturb each other."""
    place = scene.temporary.parent
    taken = lab("scene", "--port", str(scene.port), cwd=place, **scene.environment)
    assert taken.is_one_line(2), taken
    assert f"port {scene.port} is taken" in taken.err
    second = lab("scene", "--port", str(free_port()), cwd=place, **scene.environment)
    assert second.is_one_line(2), second
    assert "a scene runs already" in second.err
    assert len(list(scene.temporary.iterdir())) == 1  # the first one's folder


@pytest.mark.skipif(
    PROMETHEUS is None, reason="no prometheus on this machine (Debian: apt install prometheus)"
)
def test_prometheus_watches_it(scene: SceneProcess) -> None:
    """Prometheus has the jobs, labels and rules of the scene on Docker, and the control page links to it."""
    (line,) = [line for line in scene.output().splitlines() if line.strip().startswith("Prometheus")]
    base = line.split()[1]
    assert base.encode() in http("GET", f"http://127.0.0.1:{scene.port}/").body

    def ask(path: str) -> Any:
        return http("GET", f"{base}/api/v1/{path}").json["data"]

    def up() -> set[str]:
        return {
            target["labels"]["job"] for target in ask("targets")["activeTargets"] if target["health"] == "up"
        }

    wanted = {"web", "invalidator", "warmer", "probe", "locust", "control", "prometheus"}
    eventually(lambda: wanted <= up(), 30, 0.5)
    recorded = eventually(lambda: ask("query?query=server:probe_latency:p99_10s")["result"], 30, 0.5)
    assert recorded[0]["metric"]["server"] == "valkey"
    groups = ask("rules")["groups"]
    assert {"alerts.yml", "recording.yml"} == {Path(group["file"]).name for group in groups}
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
    if native_prometheus.find_exporter():
        eventually(lambda: ask("query?query=server:store_keys:sum{server='valkey'}")["result"], 30, 0.5)
    else:
        assert "no redis_exporter" in scene.output()


def test_the_server_comes_back(scene: SceneProcess) -> None:
    """After the lever *Restart server* shuts the server down, the scene starts it again, empty, with one line."""
    scene.wait_for(lambda state: state["free"] and state["up"])
    client = redis.Redis.from_url(scene.shown("server"), protocol=2, driver_info=None)
    first = client.info("server")["run_id"]
    assert scene.act("restart").status == 200

    def another() -> bool:
        try:
            return bool(client.info("server")["run_id"] != first)
        except redis.RedisError:
            return False

    eventually(another, 30, 0.2)
    scene.wait_for(lambda state: state["up"] and not state["restarting"])
    assert [line.partition("  ")[2] for line in scene.output().splitlines() if "valkey was" in line] == [
        "valkey was shut down. It was started again."
    ]


@pytest.mark.parametrize("words", ["app.invalidator", "app.web:application"])
def test_a_process_that_dies_is_started_again(words: str, scene: SceneProcess) -> None:
    """A process that dies is started again with one line that names it; the children it left behind are ended."""
    dying = scene.part(words)
    kin = [dying, *dying.children(recursive=True)]
    name = words.split(":")[0].removeprefix("app.")
    dying.kill()
    eventually(lambda: f"{name} ended unexpectedly (exit code -9)" in scene.output(), 20, 0.1)
    assert "It was started again." in scene.output().splitlines()[-1]
    assert psutil.wait_procs(kin, 5)[1] == []
    scene.wait_for(lambda state: state["phase"] == "running" and "rouble" not in state["status"])
    assert scene.part(words).pid != dying.pid


def test_ctrl_c_leaves_nothing(scene: SceneProcess) -> None:
    """Ctrl-C gives one line and exit code 130; every process has ended, every port is free, every folder is gone."""
    ports = scene.ports()
    assert len(ports) >= 7
    scene.signal(signal.SIGINT)
    answer = scene.answer()
    assert answer.is_one_line(130), answer
    scene.leaves_nothing(ports)


def test_a_killed_lab_takes_its_processes_along(tmp_path: Path) -> None:
    """After SIGKILL of the lab, which it cannot handle, no process of the scene runs or listens."""
    with SceneProcess(tmp_path, CONTROL_STORY="off") as scene:
        ports = scene.up().ports()
        scene.signal(signal.SIGKILL)
        assert scene.answer().code == -signal.SIGKILL
        assert scene.left(seconds=15) == []
        assert [port for port in ports if port_taken(port)] == []


def without_prometheus(place: Path) -> str:
    """Return a PATH with only the programs that a scene needs."""
    programs = place / "programs"
    programs.mkdir()
    for name in ("sh", "dirname", "cksum", "cat", "readlink", "python3"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    return str(programs)


@pytest.mark.whole
def test_a_healthy_scene_without_prometheus(tmp_path: Path) -> None:
    """--healthy begins with all keys and the index strategy; one line says Prometheus is missing; SIGTERM ends it."""
    with SceneProcess(tmp_path, "--healthy", path=without_prometheus(tmp_path)) as scene:
        scene.up()
        assert scene.output().count("no prometheus on the PATH") == 1
        state = scene.wait_for(lambda state: state["events_finished_per_second"])
        assert (state["strategy"], state["growth"], state["events_per_second"]) == ("index", True, 4)
        assert state["keys"] > 18_000
        assert state["calibrated_events_per_second"] is None  # without the story nothing is planned
        clients = lab("look", "clients", cwd=tmp_path, **{**scene.environment, "PATH": os.environ["PATH"]})
        assert "probe:main" in clients.out  # the guide finds the probe by this name
        ports = scene.ports()
        scene.signal(signal.SIGTERM)
        assert scene.answer().code == 130
        scene.leaves_nothing(ports)


def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while the scene starts leaves nothing either."""
    with SceneProcess(tmp_path) as scene:
        scene.until(lambda: any("app.warmer" in line for line in scene.family()))
        ports = scene.ports()
        scene.signal(signal.SIGINT)
        assert scene.answer().is_one_line(130)
        scene.leaves_nothing(ports)


def test_a_server_that_does_not_start_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """A server that does not start gives one line with its last message and exit code 3; nothing is left."""
    path = without_prometheus(tmp_path)
    program = Path(path) / "redis-server"
    program.write_text("#!/bin/sh\necho no memory left >&2\nexit 1\n")
    program.chmod(0o755)
    with SceneProcess(tmp_path, "--server", "redis", path=path) as scene:
        answer = scene.answer()
        assert answer.is_one_line(3), answer
        assert "redis ended unexpectedly (exit code 1): no memory left" in answer.err
        scene.leaves_nothing(set())


@pytest.mark.whole
def test_a_prometheus_that_does_not_start_is_left_out(tmp_path: Path) -> None:
    """If Prometheus does not start, the scene says so in one line and goes on without it."""
    path = without_prometheus(tmp_path)
    program = Path(path) / "prometheus"
    program.write_text("#!/bin/sh\necho no disk left >&2\nexit 1\n")
    program.chmod(0o755)
    with SceneProcess(tmp_path, path=path, CONTROL_STORY="off") as scene:
        scene.up().until(lambda: "the scene goes on without it" in scene.output())
        assert "Prometheus ended unexpectedly (exit code 1): no disk left" in scene.output()
        scene.wait_for(lambda state: state["free"] and state["up"])
        scene.signal(signal.SIGINT)
        assert scene.answer().code == 130


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["--server", "memcached"], "there is no server 'memcached'"),
        (["--port", "0"], "--port"),
        (["--keys", "10"], "--keys"),
        (["--keys", "many"], "--keys"),
        (
            ["--port", "FREE", "--prometheus-port", "TAKEN"],
            "is taken. Choose another with --prometheus-port.",
        ),
        (["--port", "TAKEN"], "is taken. Choose another with --port."),
        (["nothing"], "nothing"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(options: list[str], output: str, tmp_path: Path) -> None:
    """Bad usage of `lab scene` is one line and exit code 2, and nothing is created."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        ports = {"TAKEN": str(held.getsockname()[1]), "FREE": str(free_port())}
        words = [ports.get(word, word) for word in options]
        answer = typed(
            "scene", *words, cwd=tmp_path, TMPDIR=str(tmp_path), LAB_BLIND_HOME=str(tmp_path / "looks")
        )
    assert answer.is_one_line(2), answer
    assert output in answer.err
    assert list(tmp_path.iterdir()) == []


def test_missing_server_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """A server that is not installed is refused with how to get it and exit code 3; nothing is created."""
    path, temporary = without_prometheus(tmp_path), tmp_path / "tmp"
    temporary.mkdir()
    answer = typed(
        "scene", "--server", "redis", "--port", str(free_port()), cwd=temporary, TMPDIR=str(temporary), PATH=path,
        LAB_BLIND_HOME=str(temporary / "looks"),
    )  # fmt: skip
    assert answer.is_one_line(3), answer
    assert "apt install redis-server" in answer.err
    assert list(temporary.iterdir()) == []


def test_too_many_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many keys are refused before anything starts, with the memory they need and the memory that is free."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2e9))
    assert native_scene.check_arguments("embedded", free_port(), 1_000_000, None).name == "embedded"
    with pytest.raises(UsageError, match=r"need about 4\.1 GB of memory, and 2\.0 GB are free. Choose fewer"):
        native_scene.check_arguments("embedded", free_port(), 10_000_000, None)
