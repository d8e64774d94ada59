"""The compose stack on real processes: only `docker`, the control page and the neighbour are stand-ins."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import redis

from bench.blind_seal import leaks
from bench.blind_trial import Trial
from lab.blind.causes import CAUSES
from lab.blind.compose import ComposeBlindStack
from lab.blind.observer import pings_ms
from lab.blind.scene import tell
from lab.errors import STACK_BROKE, StackError
from lab.processes import INTERRUPTIONS, Child
from lab.scenario import ProbeSpec
from lab.scenarios import catalogue
from lab.servers import SERVERS
from lab.service import Http
from lab.stacks.compose import ComposeStack
from lab.stacks.native import KEY_PREFIX, ROOT, NativeStack
from lab.stacks.scene import DirectorPause, find_scene
from tests.app.servicekit import eventually, free_port
from tests.lab.labkit import lab, tree

SCENARIO = catalogue()["key-growth"]
ROLES = ("web", "invalidator", "warmer", "locust", "probe")
GUNICORN = ["gunicorn", "-c", "app/gunicorn_conf.py", "app.web:application"]


class Neighbour:
    """Another server's storefront and load generator, as far as the lab speaks to them. Remembers every PUT."""

    def __init__(self) -> None:
        self.state: dict[str, dict[str, Any]] = {
            "/settings/warming": {
                "target_keys": 200_000,
                "keys_per_second": 800,
                "users": 1500,
                "keys": 30_000,
            },
            "/load": {"reads_per_second": 5.0, "events_per_second": 12.5, "users_population": 10_000},
        }
        self.puts: list[tuple[str, dict[str, Any]]] = []
        neighbour = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(neighbour.state[self.path])

            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                neighbour.puts.append((self.path, body))
                neighbour.state[self.path].update(body)
                self._answer(neighbour.state[self.path])

            def _answer(self, content: object) -> None:
                text = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()


@dataclass
class Running:
    """A scene of real processes that docker seems to run."""

    docker: Any
    control: Any
    neighbour: Neighbour
    native: NativeStack

    @property
    def store_pid(self) -> int:
        """The server's process, whoever started it last."""
        found = json.loads((self.docker.folder / "containers.json").read_text())
        return int(next(c["pid"] for c in found if c["service"] == "valkey"))


@pytest.fixture
def running(docker: Any, control: Any, make: Callable[..., Any], tmp_path: Path) -> Iterator[Running]:
    """Valkey with its whole storefront, a neighbour called redis, and the control page."""
    native = NativeStack(SCENARIO, SERVERS["embedded"], tmp_path / "scene", seed=1)
    (tmp_path / "scene" / "store").mkdir()
    neighbour = Neighbour()
    try:
        native.up(lambda text: None)
        env = {
            "APP_STORE_URL": native.store_url,
            "APP_KEY_PREFIX": KEY_PREFIX,
            "APP_FRAGMENTS_PER_USER": "20",
        }
        again = free_port()  # of a storefront that takes the place of the one that runs
        run = {
            "env": {"PORT": str(again), "APP_STATE_DIR": str(tmp_path / "scene" / "state"), **env},
            "ports": {8000: again},
        }
        port = {
            "web": {8000: urlsplit(native.web.base_url).port},
            "invalidator": {9102: urlsplit(native.invalidator.base_url).port},
            "locust": {8089: urlsplit(native.locust.base_url).port},
        }
        docker.has(
            [
                make(
                    "valkey",
                    {6379: native.store_port},
                    pid=native.pids()["store"],
                    restart=SERVERS["embedded"].command(native.store_port, str(tmp_path / "scene" / "store")),
                ),
                *(
                    make(f"{role}-valkey", port.get(role, {}), env=env, command=GUNICORN, run=run)
                    for role in ROLES
                ),
                make("redis"),
                make("web-redis", {8000: neighbour.port}),
                make("locust-redis", {8089: neighbour.port}),
                make("control", {8080: control.port}),
                make("tempo"),
            ]
        )
        scene = Running(docker, control, neighbour, native)
        try:
            yield scene
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(scene.store_pid, signal.SIGKILL)
    finally:
        native.down()
        neighbour.close()


@pytest.fixture
def stack(running: Running, tmp_path: Path) -> Iterator[ComposeStack]:
    """The compose stack on that scene; taken down in the end."""
    stack = ComposeStack(SCENARIO, find_scene("valkey"), tmp_path / "run", seed=3)
    yield stack
    stack.down()


def test_run_has_the_scene_to_itself_and_puts_everything_back(running: Running, stack: ComposeStack) -> None:
    """During a run the director is paused and the neighbour stands still; afterwards all is as it was found."""
    web, neighbour, store = running.native.web, running.neighbour, running.native.store
    web.use("keys", 77)
    web.warm(400, restart=False, seconds=30, check=running.native.check)
    running.native.locust.load(3.0, 0.0, 50)
    store.configure_slowlog(4321, 33)
    was = {path: dict(values) for path, values in neighbour.state.items()}
    pid = running.store_pid

    stack.up(lambda text: None)
    assert running.control.asked == [("/api/pause", {"seconds": 60.0})]
    assert neighbour.state["/load"]["events_per_second"] == neighbour.state["/load"]["reads_per_second"] == 0
    assert neighbour.state["/settings/warming"]["target_keys"] == 1500 * 20  # what is there, and no more
    assert running.store_pid != pid, "the server was restarted"
    assert stack.store.keys_everywhere() == 0
    assert stack.store.slowlog_settings() == (SCENARIO.slowlog_threshold_us, 512)
    assert stack.store.identity()[0] == "valkey"
    load = stack.locust.tallies()
    assert load["reads_per_second"] == load["events_per_second"] == 0
    stack.web.use("index", 5)

    stack.down()
    assert running.control.asked[-1] == ("/api/resume", {})
    assert {path: dict(values) for path, values in neighbour.state.items()} == {
        path: {**values, **({"restart": False} if path == "/settings/warming" else {})}
        for path, values in was.items()
    }
    found = web.ask("GET", "/settings/invalidation")
    assert (found["strategy"], found["scan_count"]) == ("keys", 77)
    assert web.ask("GET", "/settings/warming")["target_keys"] == 400
    assert running.native.locust.tallies()["reads_per_second"] == 3.0
    store.wait(5)
    assert store.slowlog_settings() == (4321, 33)


def test_probes_run_in_their_container_and_end_when_let_go(running: Running, stack: ComposeStack) -> None:
    """A probe's lines come back through `docker exec`; it asks the inner address, and ends by its leash."""
    stack.up(lambda text: None)
    probe = stack.start_probe(ProbeSpec("pool", connections=4, reconnect_seconds=0.5), 100)
    line = json.loads(next(probe.lines()))
    assert (line["name"], line["errors"]) == ("pool", 0)
    words = next(call for call in running.docker.calls if call[0] == "exec")
    assert words[1] == "-i", "without a stdin there is no leash"
    assert words[words.index("-e") + 1] == "PROBE_URL", "handed on by its name"
    assert not [word for word in words if "redis://" in word], (
        "where every process list would show a password"
    )
    assert words[words.index("--reconnect-seconds") + 1] == "0.5"
    stack.check()
    stack.forget(probe)
    assert probe.process.returncode == 0, "it ended by itself, not by a signal"
    stack.check()


def test_emptied_server_has_no_keys_and_is_watched_on(running: Running, stack: ComposeStack) -> None:
    """A restart on purpose is no breakdown, takes every key, and keeps the scenario's settings; the next end is one."""
    stack.up(lambda text: None)
    stack.web.warm(1000, restart=False, seconds=30, check=stack.check)
    assert stack.store.keys_everywhere() > 1000
    before = stack.store.snapshot().run_id
    stack.web.fill(0)
    stack.empty()
    assert stack.store.snapshot().run_id != before
    assert stack.store.keys_everywhere() < 10
    assert stack.store.slowlog_settings()[0] == SCENARIO.slowlog_threshold_us
    time.sleep(0.3)
    stack.check()
    running.docker.tells(
        {"id": find_scene("valkey").of("store").id, "Actor": {"Attributes": {"exitCode": "137"}}}
    )
    with pytest.raises(StackError, match=r"valkey ended unexpectedly \(exit code 137\)"):
        eventually(lambda: stack.check())


def test_server_that_keeps_its_keys_is_refused(
    running: Running, stack: ComposeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a restart does not empty the server, no phase would be what it says: that is an error."""
    stack.up(lambda text: None)
    monkeypatch.setattr("lab.stacks.compose.LEFTOVERS", -1)
    with pytest.raises(StackError, match="valkey came back with 0 keys: its persistence must be off"):
        stack.empty()


def test_meter_and_memory_name_the_parts(running: Running, stack: ComposeStack) -> None:
    """CPU and memory are told by part; the names are those of the records."""
    stack.up(lambda text: None)
    meter = stack.meter()
    meter.look()
    shares, machine = eventually(
        lambda: (found := meter.look())[0]["store"] > 0 and found, seconds=20, every=0.5
    )
    assert {"store", "web", "invalidator", "locust", "warmer", "tempo", "other servers", "lab"} <= set(shares)
    assert [name for name in shares if name.startswith("probe-")] == ["probe-containers"]
    assert set(machine) == {"busy", "steal", "others"}
    assert stack.memory_mb()["store"] == pytest.approx(10.49, rel=0.01)
    assert stack.memory_mb()["lab"] > 1


def test_other_settings_of_the_storefront_are_refused(running: Running, tmp_path: Path) -> None:
    """A storefront with another number of fragments a user would get another number of keys: one line says so."""
    found = json.loads((running.docker.folder / "containers.json").read_text())
    for container in found:
        container.setdefault("env", {})["APP_FRAGMENTS_PER_USER"] = "7"
    running.docker.has(found)
    with pytest.raises(StackError, match=r"caches 7 fragments a user, key-growth needs 20"):
        ComposeStack(SCENARIO, find_scene("valkey"), tmp_path / "other", seed=1)


def test_failed_start_puts_back_what_was_changed(running: Running, stack: ComposeStack) -> None:
    """When the server cannot be restarted, the run does not begin, and the neighbour and the director go on."""
    running.docker.fails("restart", "Error response from daemon: no")
    with pytest.raises(StackError, match="Error response from daemon: no"):
        stack.up(lambda text: None)
    stack.down()
    assert running.neighbour.state["/load"]["events_per_second"] == 12.5
    assert running.control.asked[-1][0] == "/api/resume"


def test_pause_is_a_lease(control: Any) -> None:
    """The director's pause is prolonged while the run goes on, ended by it, and its refusal is noticed."""
    pause = DirectorPause(Http("control", control.url), lease_s=0.3)
    eventually(lambda: len(control.asked) >= 3)
    pause.check()
    assert {path for path, _ in control.asked} == {"/api/pause"}
    control.status = 404

    def refused() -> bool:
        try:
            pause.check()
        except StackError as error:
            return "control refuses POST /api/pause" in str(error)
        return False

    eventually(refused)
    control.status = 200
    pause.end()
    assert control.asked[-1] == ("/api/resume", {})
    time.sleep(0.4)
    assert control.asked[-1] == ("/api/resume", {})


COMPLAINTS = {
    "docker compose is not up: make up": ([], 3),
    "--url and --port are for the native stack": (["--url", "redis://127.0.0.1:1/0"], 2),
    "the compose stack has no embedded server; it knows valkey, redis, dragonfly, keydb": (
        ["--server", "embedded"],
        2,
    ),
}


@pytest.mark.parametrize("said", COMPLAINTS)
def test_what_cannot_be_is_one_line_and_creates_nothing(docker: Any, tmp_path: Path, said: str) -> None:
    """A stack that is not up, and options that do not fit it: one line, the exit code, no folder."""
    arguments, code = COMPLAINTS[said]
    place = tmp_path / "place"
    place.mkdir()
    answer = lab("run", "key-growth", "--stack", "compose", *arguments, cwd=place)
    assert answer.is_one_line(code), answer
    assert said in answer.err
    assert tree(place) == []


def test_whole_run_on_the_compose_stack(running: Running, tmp_path: Path) -> None:
    """`lab run key-growth --stack compose` walks all phases and judges every claim; probes and pause end with it."""
    out = tmp_path / "whole"
    answer = lab(
        "run", "key-growth", "--stack", "compose", "--server", "valkey", "--pace", "quick", "--keys", "40000",
        "--out", str(out), "--json", cwd=tmp_path, seconds=400,
    )  # fmt: skip
    assert answer.code in (0, 1, 4), (
        answer
    )  # how the claims come out on this machine is another test's matter
    result = json.loads(answer.out)
    facts = json.loads((out / "run.json").read_text())
    assert (facts["stack"], facts["server"], facts["interrupted"]) == ("compose", "valkey", False)
    assert facts["command"].startswith("bin/lab run key-growth --pace quick --stack compose --server valkey")
    assert [phase["id"] for phase in result["phases"]] == [phase.id for phase in SCENARIO.phases]
    assert not [claim for claim in result["claims"] if claim["measured"].startswith("not measured")]
    for phase in result["phases"]:
        assert phase["client_p99_ms"]["app"] > 0
        assert {"store", "web", "tempo", "lab"} <= set(phase["processes"])
    assert (out / "report.html").stat().st_size > 10_000
    assert running.control.asked[0][0] == "/api/pause"
    assert running.control.asked[-1] == ("/api/resume", {})
    assert running.neighbour.state["/load"]["events_per_second"] == 12.5
    time.sleep(1)
    words = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in words if "--until-stdin-ends" in line and running.native.store_url in line]


def test_blind_session_on_the_compose_stack(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cause in the programs beside the storefront shows as natively, is named nowhere, and leaves no trace."""
    monkeypatch.setattr("lab.blind.compose.LINK_PORT", free_port())
    store = running.native.store
    before = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    trial = Trial(
        CAUSES["unpipelined-deletes"],
        tmp_path / "blind",
        looks=0,
        make=lambda folder: ComposeBlindStack(folder, "valkey"),
    )
    try:
        trial.run()
    finally:
        for number, handler in before.items():  # a session that takes its scene down listens no more
            signal.signal(number, handler)
    found = {cause.id for cause in CAUSES.values() if cause.evidence(trial.outcome()).found}
    assert found == {"unpipelined-deletes"}, trial.outcome()
    calls = "\n".join(" ".join(call) for call in running.docker.calls)
    assert calls.count("lab.blind.worker") == 6, "link, storefront, four programs"
    assert leaks({"calls of docker": calls, "printed": "\n".join(trial.said)}) == []
    web, last = (
        f"start {find_scene('valkey').of('web').id}",
        f"update --cpuset-cpus 0-{(os.cpu_count() or 1) - 1}",
    )
    assert calls.index(f"stop {web.split()[1]}") < calls.index(web) < calls.index(last)
    assert running.control.asked[-1] == ("/api/resume", {})
    assert running.native.web.ask("GET", "/settings/invalidation")["strategy"] == "scan"
    client = redis.Redis.from_url(store.url, decode_responses=True)
    assert client.config_get("maxmemory*")["maxmemory-policy"] == "noeviction"
    assert client.exists("latency-lab-prices-index", "latency-lab-prices:1", "latency-lab-changes") == 0


def test_blind_storefront_goes_through_the_link_and_its_loss_is_said(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An order to the link makes pages wait; where the engine is gone in the end, a line says what was not put back."""
    monkeypatch.setattr("lab.blind.compose.LINK_PORT", free_port())
    stack = ComposeBlindStack(tmp_path / "blind", "valkey")
    original = stack.web.base_url

    def page_s() -> float:
        began = time.monotonic()
        assert httpx.get(f"{stack.web.base_url}/users/1/fragments/page-1", trust_env=False).status_code == 200
        return time.monotonic() - began

    try:
        stack.up(lambda text: None)
        assert stack.web.base_url != original
        page_s()
        healthy, stored = min(page_s() for _ in range(5)), stack.waited_s()
        stack.order("link", {"delay_s": 0.2})
        time.sleep(0.2)
        assert min(page_s() for _ in range(3)) >= 0.2 > healthy
        assert min(pings_ms(stack.link_url())) >= 200 > min(pings_ms(stack.store.url))
        if sys.platform == "linux":
            assert stored is not None
            assert stored > 0
        running.docker.fails("start", "Cannot connect to the Docker daemon at unix:///x.")
    finally:
        stack.down()
    assert "docker does not answer: Cannot connect to the Docker daemon" in capsys.readouterr().err
    assert running.control.asked[-1] == ("/api/resume", {})


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_session_changed_is_put_back_even_when_it_is_killed(
    docker: Any, tmp_path: Path, killed: bool
) -> None:
    """The keeper does as told when stdin ends, whatever signals it gets before, and says what could not be done."""
    docker.fails("start", "Error response from daemon: no such engine")
    keeper = Child(
        "keeper",
        [sys.executable, "-m", "lab.blind.keeper"],
        tmp_path / "log",
        cwd=ROOT,
        pipe=True,
        leash=True,
    )
    commands = [["rm", "--force", "a"], ["start", "b"], ["update", "--cpuset-cpus", "0-1", "c"]]
    tell(keeper, {"commands": commands, "orphaned": [["rm", "d"]]})
    assert next(keeper.lines()) == b"ready\n"
    os.kill(keeper.pid, signal.SIGTERM)
    time.sleep(0.1)
    assert keeper.alive()
    if not killed:
        tell(keeper, {})
    keeper.hush()
    assert keeper.exit_code() == STACK_BROKE
    assert keeper.last_words() == "docker start b: Error response from daemon: no such engine"
    assert docker.calls == commands + ([["rm", "d"]] if killed else [])


def test_killed_lab_leaves_no_probe_in_the_container(running: Running, tmp_path: Path) -> None:
    """After kill -9 of the lab its probe ends by itself: nobody holds the other end of its stdin any more."""
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom lab.scenarios import catalogue\n"
        "from lab.scenario import ProbeSpec\nfrom lab.stacks.compose import ComposeStack\n"
        "from lab.stacks.scene import find_scene\n"
        "stack = ComposeStack(catalogue()['key-growth'], find_scene('valkey'), Path(sys.argv[1]), 1)\n"
        "probe = stack.start_probe(ProbeSpec('main'), 50)\n"
        "next(probe.lines())\nprint(probe.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_store_of_the_stand_in_is_a_real_one(running: Running) -> None:
    """The stand-in's server answers: the tests above looked at something."""
    assert redis.Redis.from_url(running.native.store_url).ping()
