"""Tests run side by side, except those that must run alone: the times at which each test ran show it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EACH = """
import json, pathlib, time, pytest
{mark}
@pytest.mark.parametrize("number", range(3))
def test_one(number):
    began = time.monotonic()
    time.sleep(0.15)
    name = pathlib.Path(__file__).stem
    told = [name, began, time.monotonic()]
    (pathlib.Path(__file__).parent / f"{{name}}-{{number}}.json").write_text(json.dumps(told))
"""


def test_alone_is_alone_and_the_others_are_not(tmp_path: Path) -> None:
    """Of four files on two workers, two run side by side; the other two run each by itself, after them."""
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    marks = {"a": "pytestmark = pytest.mark.alone", "b": "", "c": "", "d": "pytestmark = pytest.mark.whole"}
    for name, mark in marks.items():
        (folder / f"test_{name}.py").write_text(EACH.format(mark=mark))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n    whole\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "--dist",
            "loadfile",
            "--no-loadscope-reorder",
            folder,
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "12 passed" in done.stdout, done.stdout + done.stderr
    ran = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    beside = {
        (one[0], other[0])
        for one, other in combinations(sorted(ran), 2)
        if one[1] < other[2] and other[1] < one[2]
    }
    assert beside == {("test_b", "test_c")}
    last = max(end for name, _, end in ran if name in ("test_b", "test_c"))
    assert all(began > last for name, began, _ in ran if name in ("test_a", "test_d"))
