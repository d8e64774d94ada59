"""Whole runs where there is no epoll, no affinity of processes and no /proc, as on macOS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.errors import HOLDS, NOT_VALID
from tests.lab.labkit import ROOT

PATH = os.pathsep.join([str(ROOT / "tests" / "elsewhere"), str(ROOT)])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("scenario", "selector"), [("key-growth", "SelectSelector"), ("eviction-cycle", "PollSelector")]
)
def test_a_run_reaches_its_verdict(scenario: str, selector: str, tmp_path: Path) -> None:
    """A run needs nothing that only Linux has: every claim is measured and holds, unless the machine was unfair."""
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lab", "run", scenario, "--pace", "quick", "--out", str(out), "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PATH, "ELSEWHERE_SELECTOR": selector},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode == NOT_VALID:
        pytest.skip("the machine was not fair to the run")
    assert done.returncode == HOLDS, done.stdout[-3000:] + done.stderr[-1000:]
    claims = json.loads((out / "result.json").read_text())["claims"]
    assert all(claim["holds"] for claim in claims), claims
    assert (out / "report.html").is_file()
