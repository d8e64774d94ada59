"""What a process may use of a core is read from the control groups that it is in and the lab is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.errors import StackError
from lab.server.processes import CpuMeter
from lab.stacks import quota
from lab.stacks.quota import Quota, allowed


def test_a_held_process_may_use_its_share() -> None:
    """Of a process that is held to 0.4 of a core the share is 0.4; before and without a quota it is 1."""
    try:
        held = Quota(0.4, "test")
    except StackError as error:
        pytest.skip(str(error))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert allowed(process.pid) == 1.0
        held.add(process.pid)
        assert allowed(process.pid) == pytest.approx(0.4)
    finally:
        process.communicate(b"\n")
        held.close()


@pytest.mark.parametrize(
    ("groups", "files", "share"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "2500 5000\n", "a/cpu.max": "max 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 5000\n", "a/cpu.max": "20000 100000\n"}, 0.2),
        ("0::/a\n", {"a/cpu.max": "400000 100000\n"}, 1.0),
        (
            "3:cpu,cpuacct:/x\n",
            {"cpu/x/cpu.cfs_quota_us": "-1\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            1.0,
        ),
        (
            "3:cpu,cpuacct:/x\n",
            {"cpu/x/cpu.cfs_quota_us": "3000\n", "cpu/x/cpu.cfs_period_us": "5000\n"},
            0.6,
        ),
        ("2:memory:/y\n", {}, 1.0),
        ("0::/a\n", {"a/cpu.max": "what is this\n"}, 1.0),
    ],
)
def test_quotas_of_both_versions_are_read(
    groups: str, files: dict[str, str], share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest quota on the way to the root counts, of control groups of version 1 or 2, and never more than 1."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    real = Path.read_text
    monkeypatch.setattr(quota, "GROUPS", tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self, *a, **k: (
            {"/proc/1/cgroup": "0::/\n", "/proc/9/cgroup": groups}.get(str(self)) or real(self, *a, **k)
        ),
    )
    assert allowed(9) == pytest.approx(share)


@pytest.mark.alone
def test_a_held_process_is_counted_with_what_it_used() -> None:
    """A process that is held to half of a core is half of a core to the meter, though it is busy at every tick."""
    try:
        held = Quota(0.5, "meter")
    except StackError as error:
        pytest.skip(str(error))
    meter = CpuMeter()
    time.sleep(1.0)
    before = meter.shares({})[1]["others"]  # what else runs on this machine
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        held.add(process.pid)
        time.sleep(0.3)
        meter.shares({})
        time.sleep(2.0)
        others = meter.shares({})[1]["others"]
    finally:
        process.kill()
        process.wait()
        held.close()
    assert others - before < 0.66
