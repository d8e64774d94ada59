"""`lab replay` on a Docker Engine serves the committed case from three containers, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from lab import ROOT
from lab.replay.recording import read
from lab.replay.replay import PROJECT
from lab.replay.tempo import shifted
from tests.compose.stack import EVERYTHING, Stack

CASE = ROOT / "workshop" / "cold-case"
SERVICES = ("prometheus", "tempo", "grafana")


def images() -> dict[str, str]:
    """Variables that name the stand-ins' images; none if the real images are used."""
    if os.environ.get("LAB_IMAGES") != "standins":
        return {}
    known = yaml.safe_load((ROOT / "tests" / "compose" / "compose.standins.yaml").read_text())["services"]
    return {f"{name.upper()}_IMAGE": known[name]["image"] for name in SERVICES}


def lab(project: Stack, *words: str) -> tuple[int, str, str]:
    """Run `lab WORDS` on the tests' ports; return exit code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", *words],
        cwd=ROOT,
        env={**project.environ, **images()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def left(project: Stack) -> str:
    """The ids of the replay's containers, volumes and networks; empty if there are none."""
    label = ("--filter", f"label=com.docker.compose.project={PROJECT}", "--quiet")
    return "".join(
        project.docker(*words, *label) for words in (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
    )


@pytest.fixture(scope="module")
def served(project: Stack) -> Any:
    """Take the scene down and serve the committed case; yield what was printed."""
    project.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans")
    try:
        code, said, complaint = lab(project, "replay", str(CASE))
        assert code == 0, complaint
        yield said
    finally:
        lab(project, "replay", "--down")


def test_it_says_where_to_look(served: str, project: Stack) -> None:
    """`lab replay` prints every dashboard's address at the time of the recording, and the memory it takes."""
    links = re.findall(r"http://127\.0\.0\.1:(\d+)/d/\S+\?from=\d+&to=\d+", served)
    assert len(links) >= 6
    assert set(links) == {project.environ["GRAFANA_PORT"]}
    assert re.search(r"memory: \d\.\d\d GB", served)


def test_every_trace_is_found(served: str) -> None:
    """The replay looks up every trace that it sent, and finds all of them."""
    number = len(read(CASE).traces)
    assert f"Tempo finds {number} of {number} traces." in served
    assert "MISSING" not in served


def test_numbers_and_traces_are_there(served: str, project: Stack) -> None:
    """Prometheus knows both servers' p99, Tempo the traces, Grafana the dashboards."""
    p99 = project.query("max by (server) (max_over_time(server:probe_latency:p99_10s[15m]))")
    assert {dict(labels)["server"] for labels in p99} == {"dragonfly", "redis"}
    for trace in read(CASE).traces[:5]:
        resource = shifted(trace, 0).resource_spans[0]
        assert project.get("TEMPO_PORT", f"/api/traces/{resource.scope_spans[0].spans[0].trace_id.hex()}")
    boards = {row["uid"] for row in project.get("GRAFANA_PORT", "/api/search?type=dash-db")}
    assert "incident" in boards


def test_one_at_a_time_and_then_nothing(served: str, project: Stack) -> None:
    """A second replay is refused and disturbs nothing; after --down nothing is left."""
    code, _, complaint = lab(project, "replay", str(CASE))
    assert code == 2
    assert "--down" in complaint
    assert project.query("up")
    code, said, _ = lab(project, "replay", "--down")
    assert (code, said.strip()) == (0, "ended; nothing is left.")
    assert left(project) == ""
