"""The compose stack on real processes: only `docker`, the control page and the neighbour are stand-ins."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from lab.errors import StackError
from lab.scenarios import catalogue
from lab.scenarios.model import ProbeSpec
from lab.stacks.compose import ComposeStack
from lab.stacks.containers import StoryPause, find_containers
from lab.stacks.http import Http
from tests.app.servicekit import eventually
from tests.lab.labkit import lab, tree, typed
from tests.lab.stacks.running import SCENARIO, Running


@pytest.fixture
def stack(running: Running, tmp_path: Path) -> Iterator[ComposeStack]:
    """The compose stack on the running scene, taken down at the end."""
    stack = ComposeStack(SCENARIO, find_containers("valkey"), tmp_path / "run", seed=3)
    yield stack
    stack.down()


def test_run_has_the_scene_to_itself_and_puts_everything_back(running: Running, stack: ComposeStack) -> None:
    """During a run the story is paused and the neighbour stands still; afterwards all is as it was found."""
    web, neighbour, server = running.native.web, running.neighbour, running.native.server
    web.use("keys", 77)
    web.warm(400, restart=False, seconds=30, check=running.native.check)
    running.native.locust.load(3.0, 0.0, 50)
    server.configure_slowlog(4321, 33)
    was = {path: dict(values) for path, values in neighbour.state.items()}
    pid = running.server_pid

    stack.up(lambda text: None)
    assert running.control.asked == [("/api/pause", {"seconds": 60.0})]
    assert neighbour.state["/load"]["events_per_second"] == neighbour.state["/load"]["reads_per_second"] == 0
    assert neighbour.state["/settings/warming"]["target_keys"] == 1500 * 20  # the keys there, and no more
    assert running.server_pid != pid, "the server was restarted"
    assert stack.server.keys_everywhere() == 0
    assert stack.server.slowlog_settings() == (SCENARIO.slowlog_threshold_us, 512)
    assert stack.server.identity()[0] == "valkey"
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
    server.wait(5)
    assert server.slowlog_settings() == (4321, 33)


@pytest.mark.parametrize("left", [0, 3])
def test_events_under_way_are_done_by_the_index(
    running: Running, stack: ComposeStack, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """A backlog of events is finished by the index, as SCANs would take minutes; without one nothing is switched."""
    used: list[str] = []
    use, observe = stack.web.use, stack.observe

    def switch(strategy: str, scan_count: int) -> None:
        used.append(strategy)
        use(strategy, scan_count)

    monkeypatch.setattr(stack.web, "use", switch)
    monkeypatch.setattr(stack, "observe", lambda: replace(observe(), in_flight=0.0 if used else float(left)))
    stack.up(lambda text: None)
    assert used == (["index"] if left else [])


def test_settings_of_the_server_are_put_back(running: Running, tmp_path: Path) -> None:
    """A scenario that limits memory leaves the server as it was; a setting that a server lacks is left out."""
    scenario = catalogue()["eviction-cycle"]
    names = ["maxmemory", "maxmemory-policy", "maxmemory-samples"]
    server = running.native.server
    server.configure({"maxmemory": "512000000", "maxmemory-policy": "volatile-ttl"})
    was = server.settings(names)
    stack = ComposeStack(scenario, find_containers("valkey"), tmp_path / "run", seed=3)
    try:
        stack.up(lambda text: None)
        stack.server.configure({"maxmemory": "64000000"})  # as its load does
        found = stack.server.settings(names)
        assert all(found[name] != was[name] for name in names), found
    finally:
        stack.down()
    server.wait(5)
    assert server.settings(names) == was
    assert server.settings(["maxmemory", "no-such-setting"]) == {"maxmemory": "512000000"}


def test_probes_run_in_their_container_and_end_when_let_go(running: Running, stack: ComposeStack) -> None:
    """A probe's lines come back through `docker exec`; it asks the inner address, and ends with its stdin."""
    stack.up(lambda text: None)
    probe = stack.start_probe(ProbeSpec("pool", connections=4, reconnect_seconds=0.5), 100)
    line = json.loads(next(probe.lines()))
    assert (line["name"], line["errors"]) == ("pool", 0)
    words = next(call for call in running.docker.calls if call[0] == "exec")
    assert words[1] == "-i", "without a stdin it would not end"
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
    """A planned restart is no failure, drops every key and keeps the scenario's settings; a later end is a failure."""
    stack.up(lambda text: None)
    stack.web.warm(1000, restart=False, seconds=30, check=stack.check)
    assert stack.server.keys_everywhere() > 1000
    before = stack.server.snapshot().run_id
    stack.web.fill(0)
    stack.empty()
    assert stack.server.snapshot().run_id != before
    assert stack.server.keys_everywhere() < 10
    assert stack.server.slowlog_settings()[0] == SCENARIO.slowlog_threshold_us
    time.sleep(0.3)
    stack.check()
    running.docker.tells(
        {"id": find_containers("valkey").of("server").id, "Actor": {"Attributes": {"exitCode": "137"}}}
    )
    with pytest.raises(StackError, match=r"valkey ended unexpectedly \(exit code 137\)"):
        eventually(lambda: stack.check())


def test_server_that_keeps_its_keys_is_refused(
    running: Running, stack: ComposeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that a restart does not empty is refused: no phase would have the keys it is planned with."""
    stack.up(lambda text: None)
    monkeypatch.setattr("lab.stacks.compose.LEFTOVERS", -1)
    with pytest.raises(StackError, match="valkey came back with 0 keys: its persistence must be off"):
        stack.empty()


def test_meter_and_memory_name_the_parts(running: Running, stack: ComposeStack) -> None:
    """CPU and memory are told by part; the names are those of the records."""
    stack.up(lambda text: None)
    meter = stack.meter()
    meter.sample()
    shares, machine = eventually(
        lambda: (found := meter.sample())[0]["store"] > 0 and found, seconds=20, every=0.5
    )
    assert {"store", "web", "invalidator", "locust", "warmer", "tempo", "other servers", "lab"} <= set(shares)
    assert [name for name in shares if name.startswith("probe-")] == ["probe-containers"]
    assert set(machine) == {"busy", "steal", "others"}
    assert stack.memory_mb()["store"] == pytest.approx(10.49, rel=0.01)
    assert stack.memory_mb()["lab"] > 1


def test_other_settings_of_the_storefront_are_refused(running: Running, tmp_path: Path) -> None:
    """A storefront with another number of fragments a user, and so of keys, is refused in one line."""
    found = json.loads((running.docker.folder / "containers.json").read_text())
    for container in found:
        container.setdefault("env", {})["APP_FRAGMENTS_PER_USER"] = "7"
    running.docker.has(found)
    with pytest.raises(StackError, match=r"caches 7 fragments a user, key-growth needs 20"):
        ComposeStack(SCENARIO, find_containers("valkey"), tmp_path / "other", seed=1)


def test_more_keys_than_the_container_may_hold_are_refused(running: Running, tmp_path: Path) -> None:
    """Too many keys are refused before anything is changed: one line with both figures, exit code 2, no folder."""
    found = json.loads((running.docker.folder / "containers.json").read_text())
    running.docker.has([{**c, "memory": 300_000_000 if c["service"] == "valkey" else 0} for c in found])
    place = tmp_path / "place"
    place.mkdir()
    answer = typed(
        "run", "key-growth", "--stack", "compose", "--server", "valkey", "--keys", "1000000", cwd=place
    )
    assert answer.is_one_line(2), answer
    assert "1,000,000 keys on valkey need about 0.4 GB of memory, and 0.3 GB are allowed" in answer.err
    assert tree(place) == []
    assert running.control.asked == []


def test_failed_start_puts_back_what_was_changed(running: Running, stack: ComposeStack) -> None:
    """When the server cannot be restarted, the run does not begin, and the neighbour and the story go on."""
    running.docker.fails("restart", "Error response from daemon: no")
    with pytest.raises(StackError, match="Error response from daemon: no"):
        stack.up(lambda text: None)
    stack.down()
    assert running.neighbour.state["/load"]["events_per_second"] == 12.5
    assert running.control.asked[-1][0] == "/api/resume"


def test_pause_is_a_lease(control: Any) -> None:
    """The story's pause is renewed while the run goes on and ended by the run; a refused renewal is an error."""
    pause = StoryPause(Http("control", control.url), lease_s=0.3)
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
    "--url is for the native stack": (["--url", "redis://127.0.0.1:1/0"], 2),
    "--port is for the native stack": (["--port", "6390"], 2),
    "the compose stack has no embedded server; it knows valkey, redis, dragonfly, keydb": (
        ["--server", "embedded"],
        2,
    ),
}


@pytest.mark.parametrize("said", COMPLAINTS)
def test_what_cannot_be_is_one_line_and_creates_nothing(docker: Any, tmp_path: Path, said: str) -> None:
    """A stack that is not up and options that do not fit it give one line and their exit code; no folder is made."""
    arguments, code = COMPLAINTS[said]
    place = tmp_path / "place"
    place.mkdir()
    answer = typed("run", "key-growth", "--stack", "compose", *arguments, cwd=place)
    assert answer.is_one_line(code), answer
    assert said in answer.err
    assert tree(place) == []


@pytest.mark.whole
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
    assert not [line for line in words if "--until-stdin-ends" in line and running.native.server_url in line]


def test_killed_lab_leaves_no_probe_in_the_container(running: Running, tmp_path: Path) -> None:
    """After kill -9 of the lab its probe ends by itself, because its stdin is closed."""
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom lab.scenarios import catalogue\n"
        "from lab.scenarios.model import ProbeSpec\nfrom lab.stacks.compose import ComposeStack\n"
        "from lab.stacks.containers import find_containers\n"
        "stack = ComposeStack(catalogue()['key-growth'], find_containers('valkey'), Path(sys.argv[1]), 1)\n"
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


def test_server_of_the_stand_in_is_a_real_one(running: Running) -> None:
    """The stand-in's server is real and answers, so the tests above measured something."""
    assert redis.Redis.from_url(running.native.server_url).ping()
