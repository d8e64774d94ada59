"""Blind sessions beside the running scene: evidence, seal, and a scene that is as before, however a session ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from bench.blind_trial import Trial
from lab import ROOT
from lab.blind.causes import CAUSES
from lab.blind.compose import USUAL_SHARES, ComposeBlindStack
from lab.blind.readings import Readings
from lab.errors import INTERRUPTED
from lab.stacks.docker import Docker
from tests.compose import docker_seal
from tests.compose.stack import Stack, until
from tests.lab.blind import seal

CAUSES_NEAR_THE_SERVER = (
    "exhausted-pool",
    "slow-network",
    "stalling-link",
    "stalling-storefront",
    "noisy-neighbour",
)
"""Causes on the way to the server: the storefront and its pool, its link, the server's core. The others are only
programs, the same here as natively."""
TWO = "slow-network+unpipelined-deletes"
PLAYED = (*CAUSES_NEAR_THE_SERVER, TWO)
"""What is played here: these causes alone, and two at once."""


@dataclass(frozen=True)
class Played:
    """The result of a session: its readings, all texts that a participant could read, and its containers' outline."""

    readings: Readings
    sources: seal.Sources
    outline: list[str]


def containers(stack: Stack) -> dict[str, tuple[str, bool, str, int]]:
    """The project's containers by name: id, running or not, the cores it may run on, its CPU shares."""
    label = f"label=com.docker.compose.project={stack.environ['COMPOSE_PROJECT_NAME']}"
    there = stack.docker("ps", "--all", "--quiet", "--filter", label).split()
    found = json.loads(stack.docker("inspect", *there, check=False))  # some may go away meanwhile
    every = f"0-{int(stack.docker('info', '--format', '{{.NCPU}}')) - 1}"
    return {
        raw["Name"]: (
            raw["Id"],
            raw["State"]["Running"],
            raw["HostConfig"]["CpusetCpus"] or every,
            raw["HostConfig"]["CpuShares"] or USUAL_SHARES,
        )
        for raw in found
    }


@pytest.fixture(scope="module")
def play(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Played]]:
    """Return a function that gives the session with a cause, played when it is first asked for."""
    kept: dict[str, Played] = {}

    def played(cause: str) -> Played:
        if cause not in kept:
            kept[cause] = _play(stack, cause, tmp_path_factory.mktemp("blind") / "session")
        return kept[cause]

    with pytest.MonkeyPatch.context() as patch:
        for name, value in stack.environ.items():
            patch.setenv(name, value)
        yield played


def _play(stack: Stack, cause: str, folder: Path) -> Played:
    docker, project = Docker(), stack.environ["COMPOSE_PROJECT_NAME"]
    seen: list[tuple[seal.Sources, list[str]]] = []

    def inspect(trial: Trial) -> None:
        sources = seal.gather(trial, trial.said) | docker_seal.gather(docker, project)
        seen.append((sources, docker_seal.outline(docker, project)))

    causes = tuple(CAUSES[name] for name in cause.split("+"))
    trial = Trial(causes, folder, inspect=inspect, make=ComposeBlindStack)
    was = containers(stack)
    trial.run()
    assert containers(stack) == was
    return Played(trial.outcome(), *seen[0])


@pytest.mark.parametrize("cause", PLAYED)
def test_evidence_is_there_and_differs_from_look_alikes(cause: str, play: Callable[[str], Played]) -> None:
    """On the running scene the evidence of what is at work is found, no other cause's is, and all is put back."""
    readings = play(cause).readings
    found = {other.id: other.evidence(readings) for other in CAUSES.values()}
    for name in cause.split("+"):
        assert found[name].found, found[name].text
    assert sorted(other for other, finding in found.items() if finding.found) == cause.split("+"), readings


@pytest.mark.parametrize("cause", PLAYED)
def test_nothing_that_docker_shows_names_a_cause(cause: str, play: Callable[[str], Played]) -> None:
    """Neither inspect, top or logs of any container nor anything printed, served or written names a cause."""
    sources = play(cause).sources
    assert any(where.startswith("top of") and "lab.blind.launcher" in text for where, text in sources.items())
    assert seal.leaks(sources) == []


def test_docker_shows_the_same_whatever_the_cause(play: Callable[[str], Played]) -> None:
    """Containers, their settings and limits, and their processes are the same for every cause."""
    for one, other in pairwise(PLAYED):
        differ = sorted(set(play(one).outline) ^ set(play(other).outline))
        ends = [f"{line[:60]} … {line[-300:]}" for line in differ]  # a container's name, and its processes
        assert not differ, f"{one} and {other} differ: {ends}"


def test_a_cause_that_docker_shows_is_found(stack: Stack) -> None:
    """If one variable of one container names a cause, both the search and the outline show it."""
    docker, project = Docker(), stack.environ["COMPOSE_PROJECT_NAME"]
    image = stack.inspect("control")["Config"]["Image"]
    clean = docker_seal.outline(docker, project)
    label = f"--label=com.docker.compose.project={project}"
    made = stack.docker("create", label, "--env", "MODE=slow-network", image, "true").strip()
    try:
        assert seal.leaks(docker_seal.gather(docker, project))
        assert docker_seal.outline(docker, project) != clean
    finally:
        stack.docker("rm", made)


ENDS = {
    "killed while it measures": (signal.SIGKILL, "measuring", -signal.SIGKILL),
    "Ctrl-C while it replaces the storefront": (signal.SIGINT, "putting the storefront", INTERRUPTED),
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_a_session_the_scene_is_as_it_was(end: str, stack: Stack, tmp_path: Path) -> None:
    """However a session ends, its containers end and the storefront is back; after SIGKILL without help."""
    number, stage, code = ENDS[end]
    was = containers(stack)
    command = [sys.executable, "-m", "lab", "blind", "open", "nothing", "--stack", "compose"]
    home = {**os.environ, **stack.environ, "LAB_BLIND_HOME": str(tmp_path / "home")}
    with (tmp_path / "log").open("wb") as log:
        session = subprocess.Popen(
            command, cwd=ROOT, env=home, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: stage in (tmp_path / "log").read_text(), stage, 60, every=0.05)
        session.send_signal(number)
        assert session.wait(60) == code, (tmp_path / "log").read_text()
    finally:
        session.kill()
        session.wait()
    until(lambda: containers(stack) == was, "all as before", 30)
    stack.wait_health("web-redis", "healthy", 60)
    policy = ["redis-cli", "config", "get", "maxmemory-policy"]
    until(lambda: "noeviction" in stack.compose("exec", "-T", "redis", *policy, check=False), "settings", 30)
