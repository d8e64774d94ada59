"""The scene of the story, used as people use it: rehearsed, probed, diagnosed, at rest, with Locust, in a session."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from lab import ROOT
from tests.browserkit import CHROMIUM, Aim, attempts
from tests.compose.stack import EVERYTHING, Stack, until


def test_a_workshop_could_begin(story: Stack, tmp_path: Path) -> None:
    """On a whole scene `bin/lab doctor --scene` finds nothing missing and writes its page."""
    done = story.run(["bin/lab", "doctor", "--scene", "--out", str(tmp_path)], 300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith("MISS")]
    assert "A workshop could begin." in done.stdout
    assert "exemplar to trace" in (tmp_path / "doctor.html").read_text()


@pytest.mark.parametrize("server", ["redis", "dragonfly"])
def test_a_bystander_is_asked_for_by_the_servers_name(server: str, story: Stack) -> None:
    """`bin/lab probe SERVER` measures from the container `lab`, next to the servers."""
    done = story.run(["bin/lab", "probe", server, "--seconds", "2"], 60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == f"{server}:6379: 200 GETs a second for 2 s"
    assert done.stdout.splitlines()[-1].split()[:2] == ["all", "400"]


def test_the_labs_commands_need_no_python_here(story: Stack) -> None:
    """`docker compose run --rm lab ...` has the lab's commands, and reaches a server of the scene by its name."""
    said = story.compose(
        "run", "--rm", "-T", "lab", "diagnose", "redis://redis:6379", "--seconds", "3", "--json"
    )
    assert json.loads(said)["product"] == "redis"


IDLE_STARTS_PER_S = 0.5
"""CPU time of the idle scene a second, in starts of one storefront: machines differ by a factor of two, their ratio
does not. The aim is 0.15 cores; with the real parts 0.17 to 0.20 was measured where a start takes 0.8 s."""


def start_of_a_storefront_s() -> float:
    """Return the CPU seconds that a process takes to import the storefront, the least of three."""
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import app.web"], cwd=ROOT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took)


def test_idle_scene_costs_little(story: Stack) -> None:
    """Once stopped, the whole scene uses a small part of a core, for a machine of this speed, and at most 1.5 GB."""
    story.post("CONTROL_PORT", "/api/stop", {})
    until(
        lambda: all(row["events_in_flight"] == 0 for row in story.servers().values()), "nothing under way", 60
    )
    time.sleep(15)
    cores = story.cores()
    said = story.compose("stats", "--no-stream", "--format", "{{.MemUsage}}")
    used = sum(
        float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
        for number, unit in re.findall(r"^([\d.]+)([KMG]iB) /", said, re.MULTILINE)
    )
    print(f"idle: {cores:.2f} cores, {used / 1e9:.2f} GB")
    assert cores <= IDLE_STARTS_PER_S * start_of_a_storefront_s()
    assert 0 < used <= 1.5e9


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)")
@pytest.mark.parametrize("rebinds", [False, True], ids=["another site", "a re-pointed name"])
@pytest.mark.parametrize(
    ("port", "read", "act", "content"),
    [
        ("CONTROL_PORT", "/api/state", "/api/stop", "servers"),
        ("LOCUST_REDIS_PORT", "/load", "/load/reset", "users_population"),
        ("LOCUST_DRAGONFLY_PORT", "/load", "/load/reset", "users_population"),
    ],
)
def test_no_page_of_another_site_reads_or_acts(
    port: str, read: str, act: str, content: str, rebinds: bool, story: Stack, tmp_path: Path
) -> None:
    """In a real browser, from another site or under a re-pointed name, the published ports show and do nothing."""
    before = story.get(port, read)
    assert content in json.dumps(before)
    found = attempts(Aim(story.url(port).rstrip("/"), read, act, {"more": 1}), rebinds, tmp_path)
    assert found["form"]["sent"], found
    assert not [name for name, seen in found.items() if content in seen.get("text", "")], found
    if rebinds:
        assert {found[name].get("status") for name in ("read", "act", "act as text")} == {421}, found
    else:
        assert "error" in found["read"] and "error" in found["act"], found
    if read == "/load":
        assert story.get(port, read)["seconds"] > before["seconds"], found


def test_a_scenario_of_locust_runs_in_the_scene(story: Stack) -> None:
    """The README's command runs beside a stopped scene, and prints p99 under SCAN and under the index."""
    before = story.inspect("redis")["State"]["StartedAt"]
    story.post("CONTROL_PORT", "/api/servers/redis/restart", {})
    until(partial(story.started_since, "redis", before), "redis restarted", 30)
    output = story.compose(
        "run", "--rm", "--no-deps", "locust-redis",
        "locust", "-f", "loadtest/before_after.py", "--host", "http://web-redis:8000", "--headless", "--only-summary",
        "--keys", "2000", "--growth-seconds", "10", "--hold-seconds", "5", "--events-per-second", "3",
    )  # fmt: skip
    print(output)
    for strategy in ("scan", "index"):
        assert f"at 2,000 keys under {strategy}: p99 of a GET " in output


def ask(story: Stack, *words: str) -> str:
    """Return what a second terminal prints."""
    verb = () if words[0] == "look" else ("blind",)
    return story.compose("run", "--rm", "-T", "lab", *verb, *words)


def test_a_session_in_the_scene(story: Stack, tmp_path: Path) -> None:
    """Users see the cause, Prometheus scrapes the session, and afterwards the scene has its server and its load."""
    log = tmp_path / "log"
    with log.open("wb") as sink:
        session = subprocess.Popen(
            [sys.executable, "-m", "lab", "blind", "open", "slow-network", "--stack", "compose"],
            cwd=ROOT, env=story.environ, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        until(lambda: "second terminal" in log.read_text(), "the session's announcement", 120)
        assert "launcher" not in ask(story, "look", "clients")
        until(lambda: story.value('up{instance="lab",job="web"}') == 1, "scraped", 30)
        assert "right." in ask(story, "answer", "slow-network", "--evidence", "link.p50 = 40 ms")
        pages = [float(ms) for ms in re.findall(r"p99 of a page +([\d.]+) ms", ask(story, "look", "users"))]
        assert max(pages) > 3 * pages[-1], "the last line is about the time when all was well"
        before = story.inspect("redis")["State"]["StartedAt"]
        assert "it was slow-network" in ask(story, "reveal")
        assert session.wait(60) == 0, log.read_text()
    finally:
        session.kill()
        session.wait()
    until(lambda: story.started_since("redis", before), "redis restarted", 60)
    story.wait_health("web-redis", "healthy", 60)
    assert story.servers()["redis"]["phase"] != "leased"


def test_a_cause_that_needs_the_servers_core_is_refused(story: Stack) -> None:
    """Which core a container uses is decided outside it: one line says where the cause can be played."""
    words = ["run", "--rm", "-T", "lab", "blind", "open", "noisy-neighbour"]
    done = story.run(["docker", "compose", *words], 60)
    assert done.returncode == 2
    assert "cannot be played in the scene" in done.stderr and "--stack native" in done.stderr


def test_down_leaves_nothing(story: Stack) -> None:
    """After `down` no container, volume or network of the project is left."""
    story.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans")
    assert story.left() == ""
