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
@pytest.mark.parametrize("number", {numbers})
def test_one(number):
    began = time.monotonic()
    time.sleep(0.15)
    name = pathlib.Path(__file__).stem
    told = [name, began, time.monotonic()]
    (pathlib.Path(__file__).parent / f"{{name}}-{{number}}.json").write_text(json.dumps(told))
"""


MIXED = "[0, pytest.param(1, marks=pytest.mark.alone), pytest.param(2, marks=pytest.mark.alone)]"
PLAIN = "range(3)"


def test_alone_is_alone_and_the_others_are_not(tmp_path: Path) -> None:
    """Of four files on two workers, two run side by side; the other two run each by itself, after them.

    Tests of a fifth, the first, that must run alone keep no worker from running the other files.
    """
    folder = tmp_path / "tests"
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_0.py").write_text(EACH.format(mark="", numbers=MIXED))
    marks = {"a": "pytestmark = pytest.mark.alone", "b": "", "c": "", "d": "pytestmark = pytest.mark.whole"}
    for name, mark in marks.items():
        (folder / f"test_{name}.py").write_text(EACH.format(mark=mark, numbers=PLAIN))
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
    assert "15 passed" in done.stdout, done.stdout + done.stderr
    ran = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    beside = {
        (one[0], other[0])
        for one, other in combinations(sorted(ran), 2)
        if one[1] < other[2] and other[1] < one[2]
    }
    assert ("test_b", "test_c") in beside
    assert {name for pair in beside for name in pair} <= {"test_0", "test_b", "test_c"}
    last = max(end for name, _, end in ran if name in ("test_b", "test_c"))
    assert sum(began > last for name, began, _ in ran if name == "test_0") == 2
    assert all(began > last for name, began, _ in ran if name in ("test_a", "test_d"))
