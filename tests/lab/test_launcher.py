"""bin/lab, before there is an environment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab.stacks.preflight import ROOT


def test_an_environment_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    """One made from another lock file is not emptied through a link: one line that says what to do, exit code 3."""
    tree, other = tmp_path / "tree", tmp_path / "other"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    (tree / "requirements.lock").write_text("nothing\n")
    other.mkdir()
    (other / ".made-from").write_text("another lock file\n")
    (tree / ".venv").symlink_to(other)

    done = subprocess.run(
        [str(tree / "bin" / "lab"), "list"], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 3
    assert done.stderr.startswith(f"lab: {tree / '.venv'} is a link")
    assert done.stderr.count("\n") == 1
    assert (other / ".made-from").read_text() == "another lock file\n"


def test_tools_are_added_to_the_environment_that_is_there(tmp_path: Path) -> None:
    """What checks and tests need is installed once, beside what the lab needs, and anew when its lock file changes."""
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "bin" / "lab", tree / "bin" / "lab")
    lock, checks, pip = (
        tree / "requirements.lock",
        tree / "requirements-checks.lock",
        tree / ".venv" / "asked",
    )
    lock.write_text("the lab's\n")
    checks.write_text("the tools'\n")
    (tree / ".venv" / "bin").mkdir(parents=True)
    stamp = subprocess.run(["cksum"], stdin=lock.open(), capture_output=True, text=True, check=True).stdout
    (tree / ".venv" / ".made-from").write_text(stamp)
    python = tree / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] || echo "$@" >>{pip}\n')
    python.chmod(0o755)

    def bootstrap() -> int:
        command = [str(tree / "bin" / "lab"), "--bootstrap", "checks"]
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode

    assert [bootstrap(), bootstrap()] == [0, 0]
    (asked,) = pip.read_text().splitlines()
    assert asked.endswith(f"--require-hashes --requirement {checks}")
    checks.write_text("other tools\n")
    assert bootstrap() == 0
    assert len(pip.read_text().splitlines()) == 2
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    checks.write_text("what nobody has\n")
    assert bootstrap() == 3
