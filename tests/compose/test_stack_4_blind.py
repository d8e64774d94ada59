"""Blind sessions on the running scene, as a participant with Docker alone plays them: from complaint to reveal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab import ROOT
from tests.compose.stack import Stack, until

CAUSES = (
    "slow-network",
    *(
        pytest.param(name, marks=pytest.mark.whole)
        for name in ("exhausted-pool", "stalling-link", "stalling-storefront", "keys-command", "nothing")
    ),
)


def ask(stack: Stack, *words: str) -> str:
    """What a second terminal prints."""
    return stack.compose("run", "--rm", "-T", "lab", "blind", *words)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_session_in_the_scene(cause: str, stack: Stack, tmp_path: Path) -> None:
    """The cause's figures show it, Prometheus scrapes the session, and the scene has its server and its load back."""
    restarted = stack.inspect("redis")["State"]["StartedAt"]
    log = tmp_path / "log"
    with log.open("wb") as sink:
        session = subprocess.Popen(
            [sys.executable, "-m", "lab", "blind", "open", cause, "--stack", "compose"],
            cwd=ROOT, env=stack.environ, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
        )  # fmt: skip
    try:
        until(lambda: "second terminal" in log.read_text(), "the session's announcement", 120)
        assert "p99 of a page" in ask(stack, "look", "users")
        assert "launcher" not in ask(stack, "look", "clients")
        until(lambda: stack.value('up{instance="lab",job="web"}') == 1, "scraped", 30)
        assert "right." in ask(stack, "answer", cause)
        assert "The figures show the cause." in ask(stack, "reveal")
        assert session.wait(60) == 0, log.read_text()
    finally:
        session.kill()
        session.wait()
    until(lambda: stack.started_since("redis", restarted), "redis restarted", 60)
    stack.wait_health("web-redis", "healthy", 60)
    rows = {row["name"]: row for row in stack.get("CONTROL_PORT", "/api/state")["servers"]}
    assert rows["redis"]["phase"] != "leased"


def test_a_cause_that_needs_the_servers_core_is_refused(stack: Stack) -> None:
    """Which core a container uses is decided outside it: one line says where the cause can be played."""
    words = ["run", "--rm", "-T", "lab", "blind", "open", "noisy-neighbour"]
    done = stack.run(["docker", "compose", *words], 60)
    assert done.returncode == 2
    assert "cannot be played in the scene" in done.stderr and "--stack native" in done.stderr
