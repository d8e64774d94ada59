"""Blind sessions on the compose stack, on real processes: only `docker`, the control page and the neighbour are
stand-ins."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from bench.blind_trial import Trial
from lab import ROOT
from lab.blind.causes import CAUSES
from lab.blind.compose import ComposeBlindStack
from lab.blind.scene import tell
from lab.blind.ways import LINK, SERVER, WEB, Waits, asking, pings_ms
from lab.errors import STACK_BROKE
from lab.stacks.containers import find_containers
from lab.stacks.processes import Child
from tests.app.servicekit import free_port
from tests.lab.blind.seal import leaks
from tests.lab.stacks.running import Running

pytestmark = pytest.mark.whole


def test_blind_session_on_the_compose_stack(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cause in the programs beside the storefront shows its evidence, is named nowhere, and leaves no trace."""
    monkeypatch.setattr("lab.blind.compose.LINK_PORT", free_port())
    server = running.native.server
    trial = Trial(
        CAUSES["unpipelined-deletes"],
        tmp_path / "blind",
        looks=0,
        make=lambda folder: ComposeBlindStack(folder, "valkey"),
    )
    trial.run()
    found = {cause.id for cause in CAUSES.values() if cause.evidence(trial.outcome()).found}
    assert found == {"unpipelined-deletes"}, trial.outcome()
    calls = "\n".join(" ".join(call) for call in running.docker.calls)
    assert calls.count("lab.blind.launcher") == 6, "link, storefront, four programs"
    assert f"compose --file {ROOT / 'compose.yaml'} run --rm" in calls, (
        "the files that the storefront was started with"
    )
    assert leaks({"calls of docker": calls, "printed": "\n".join(trial.said)}) == []
    web, last = (
        f"start {find_containers('valkey').of('web').id}",
        f"update --cpuset-cpus 0-{(os.cpu_count() or 1) - 1}",
    )
    assert calls.index(f"stop {web.split()[1]}") < calls.index(web) < calls.index(last)
    assert running.control.asked[-1] == ("/api/resume", {})
    assert running.native.web.ask("GET", "/settings/invalidation")["strategy"] == "scan"
    client = redis.Redis.from_url(server.url, decode_responses=True)
    assert client.config_get("maxmemory*")["maxmemory-policy"] == "noeviction"
    assert client.exists("latency-lab-prices-index", "latency-lab-prices:1", "latency-lab-changes") == 0


def test_blind_storefront_goes_through_the_link_and_its_loss_is_said(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An order to the latency proxy makes pages wait, always or now and then, and so does one to the storefront; if the
    engine is gone at the end, a line says so."""
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
        healthy, waited = min(page_s() for _ in range(5)), stack.waited_s()
        stack.order("link", {"delay_s": 0.2})
        time.sleep(0.2)
        assert min(page_s() for _ in range(3)) >= 0.2 > healthy
        assert min(pings_ms(stack.link_url())) >= 200 > min(pings_ms(stack.server.url))
        stack.order("link", {"delay_s": 0.0, "stall_s": 0.3, "every_s": 1.0})
        longest = longest_ms(stack)
        assert longest[LINK] >= 100 > max(longest[SERVER], longest[WEB])
        stack.order("link", {"delay_s": 0.0})
        stack.order("web", {"size": 0, "hold_s": 0.0, "wait_s": 0.0, "sum_s": 0.3, "every_s": 0.7})
        longest = longest_ms(stack)
        assert longest[WEB] >= 100 > max(longest[SERVER], longest[LINK])
        if sys.platform == "linux":
            assert waited is not None
            assert waited > 0
        running.docker.fails("start", "Cannot connect to the Docker daemon at unix:///x.")
    finally:
        stack.down()
    assert "docker does not answer: Cannot connect to the Docker daemon" in capsys.readouterr().err
    assert running.control.asked[-1] == ("/api/resume", {})


def longest_ms(stack: ComposeBlindStack) -> dict[str, float]:
    """Return the longest of many waits on each way of the scene, in some seconds."""
    waits = Waits(asking(stack))
    time.sleep(2.5)
    waits.close()
    return {way: taken[-1] for way, taken in waits.take().items()}


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_session_changed_is_put_back_even_when_it_is_killed(
    docker: Any, tmp_path: Path, killed: bool
) -> None:
    """The restorer runs its commands when stdin ends, even after SIGTERM, and says which of them failed."""
    docker.fails("start", "Error response from daemon: no such engine")
    restorer = Child(
        "restorer",
        [sys.executable, "-m", "lab.blind.restorer"],
        tmp_path / "log",
        cwd=ROOT,
        pipe=True,
        stdin_open=True,
    )
    commands = [["rm", "--force", "a"], ["start", "b"], ["update", "--cpuset-cpus", "0-1", "c"]]
    tell(restorer, {"commands": commands, "orphaned": [["rm", "d"]]})
    assert next(restorer.lines()) == b"ready\n"
    os.kill(restorer.pid, signal.SIGTERM)
    time.sleep(0.1)
    assert restorer.alive()
    if not killed:
        tell(restorer, {})
    restorer.finish()
    assert restorer.exit_code() == STACK_BROKE
    assert restorer.last_words() == "docker start b: Error response from daemon: no such engine"
    assert docker.calls == commands + ([["rm", "d"]] if killed else [])
