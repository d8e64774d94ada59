"""bin/lab, before there is an environment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab.preflight import ROOT


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
