"""The loads without epoll, affinity and /proc, with each other selector for sockets."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.app.servicekit import eventually
from tests.loadtest.conftest import ROOT, Server, calls, figures

LOADS = {
    "iterations": ["--count", "100", "--concurrent", "3"],
    "bystanders": ["--connections", "2"],
    "crowd": ["--clients", "50", "--entries", "10", "--rate", "200"],
    "scanners": ["--match", "key:@*", "--users", "50", "--rate", "20"],
}
PATH = os.pathsep.join([str(ROOT / "tests" / "elsewhere"), str(ROOT)])


@pytest.mark.parametrize("selector", ["PollSelector", "SelectSelector"])
@pytest.mark.parametrize("module", LOADS)
def test_a_load_runs_with_any_selector(
    server: Server, load: Callable[..., subprocess.Popen[str]], module: str, selector: str
) -> None:
    """A load delivers with any selector, and on SIGTERM it prints its figures and exits with 0."""
    client: Any = server.client()
    client.execute_command("DEBUG", "POPULATE", "1000")
    wanted = {"iterations": "scan", "bystanders": "get", "crowd": "mget", "scanners": "scan"}[module]
    words = ("--url", server.url, "--seconds", "60", *LOADS[module])
    process = load(module, *words, PYTHONPATH=PATH, ELSEWHERE_SELECTOR=selector)

    def delivers() -> bool:
        assert process.poll() is None, process.communicate()
        return calls(server, wanted) > 10

    eventually(delivers)
    process.send_signal(signal.SIGTERM)
    assert figures(process)
