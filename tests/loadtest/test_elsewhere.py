"""The loads without epoll, affinity and /proc, with each other selector for sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.app.servicekit import eventually
from tests.loadtest.conftest import ROOT, Server

LOADS = {
    "iterations": ["--count", "100", "--concurrent", "3"],
    "bystanders": ["--tool", "own", "--connections", "2"],
    "crowd": ["--clients", "50", "--entries", "10", "--rate", "200"],
    "scanners": ["--match", "key:@*", "--users", "50", "--rate", "20"],
}
PATH = os.pathsep.join([str(ROOT / "tests" / "elsewhere"), str(ROOT)])


def test_the_environment_lacks_epoll_affinity_and_proc() -> None:
    """In these tests' environment there is no epoll, no affinity and no /proc."""
    program = "import os, pathlib, select; print(hasattr(select, 'epoll'), hasattr(os, 'sched_getaffinity'),"
    program += " end=' ')\ntry: pathlib.Path('/proc/self/stat').read_text()\nexcept OSError: print('no proc')"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said == "False False no proc\n"


@pytest.mark.parametrize("selector", ["PollSelector", "SelectSelector"])
@pytest.mark.parametrize("module", LOADS)
def test_a_load_runs_with_any_selector(
    server: Server, load: Callable[..., subprocess.Popen[str]], module: str, selector: str
) -> None:
    """A load delivers with any selector, and on SIGTERM it prints its figures and exits with 0."""
    client: Any = server.client()
    client.execute_command("DEBUG", "POPULATE", "1000")
    wanted = {"iterations": "scan", "bystanders": "get", "crowd": "mget", "scanners": "scan"}[module]
    process: Any = load(
        module,
        "--url",
        server.url,
        "--seconds",
        "60",
        *LOADS[module],
        PYTHONPATH=PATH,
        ELSEWHERE_SELECTOR=selector,
    )

    def delivers() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(client.info("commandstats").get(f"cmdstat_{wanted}", {"calls": 0})["calls"] > 10)

    eventually(delivers)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["figures"]
