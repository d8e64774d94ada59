"""`bin/lab diagnose --watch`: a line for each diagnosis, and what is kept of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from lab.diagnose import command
from lab.diagnose.command import keep_diagnosis
from lab.diagnose.diagnosis import Diagnosis
from lab.diagnose.findings import judge
from lab.diagnose.watch import LOOKS_S
from tests.lab.diagnose.conftest import Make
from tests.lab.diagnose.diagnosekit import Run
from tests.loadtest.conftest import Server


def test_the_archive_is_bounded_and_touches_nothing_else(make: Make, tmp_path: Path) -> None:
    """Of each server only the oldest diagnoses go; a folder of another content stays."""
    (tmp_path / "seen-it-all").mkdir()
    (tmp_path / "seen-0").write_text("a note")
    for begins in (3, 1, 2):
        window = make()
        first = replace(window.first, at=begins)
        window = replace(window, snapshots=[first, *window.snapshots[1:]])
        for port in (1, 2):
            each = replace(window, shown=f"redis://cache:{port}/0")
            keep_diagnosis(Diagnosis.from_window(each, judge(each), {}), tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "seen-0",
        *(f"seen-cache-{port}-0-1970-01-01T00000{second}Z" for port in (1, 2) for second in (2, 3)),
        "seen-it-all",
    ]


def test_a_watch_goes_on_when_nothing_can_be_kept(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, or a full disk, is told instead of a path."""
    it = Diagnosis.from_window(make(), judge(make()), {})
    assert "cannot be written: Not a directory" in keep_diagnosis(it, Path("/dev/null/kept"), 2)
    target = Path(keep_diagnosis(it, tmp_path, 2))
    shutil.rmtree(target)
    target.write_text("in the way")
    assert keep_diagnosis(it, tmp_path, 2).startswith("nothing, because the diagnosis cannot be written to ")
    monkeypatch.setattr(command, "LEAST_FREE_BYTES", 1 << 62)
    assert "is nearly full" in keep_diagnosis(it, tmp_path / "new", 2)
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.whole
def test_the_watch_keeps_bad_diagnoses_until_ctrl_c(
    server: Server, background_load: Any, tmp_path: Path
) -> None:
    """--watch prints a line per diagnosis and keeps the newest above the bound; SIGTERM ends it with exit code 130."""
    background_load(lambda client: client.execute_command("DEBUG", "SLEEP", "0.05"), 0.1)
    script = (
        "import sys\nfrom lab.diagnose import command\ncommand.WATCHED_S = 1.2\n"
        "from lab.cli import main\nsys.exit(main())"
    )
    words = [server.url, "--watch", "--above", "5", "--keep", "2", "--out", str(tmp_path / "kept")]
    process = subprocess.Popen(
        [sys.executable, "-c", script, "diagnose", *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(5)]
    process.terminate()
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == 130, complaints
    assert "the watch was ended" in complaints
    assert sum("kept: " in line for line in lines) >= 3
    assert 1 <= len(list((tmp_path / "kept").glob("seen-*/diagnosis.json"))) <= 2


def test_a_watch_ends_after_its_seconds_and_shows_arguments(
    server: Server, diagnose: Run, background_load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --seconds a watch ends by itself, with exit code 0; --show-arguments shows slow commands below each line."""
    monkeypatch.setattr(command, "WATCHED_S", 1.5)
    background_load(lambda client: client.execute_command("DEBUG", "SLEEP", "0.05"), 0.1)
    began = time.monotonic()
    code, said, _ = diagnose(server.url, "--watch", "--seconds", "5", "--show-arguments")

    assert code == 0
    assert 3 < time.monotonic() - began < 5 + LOOKS_S
    first, *lines = said.splitlines()
    assert first == "every 1.5 s, for 5 s"
    diagnoses = [line for line in lines if "  p99 " in line]
    assert len(diagnoses) >= 2
    assert "slow: DEBUG SLEEP 0.05" in lines[lines.index(diagnoses[0]) + 1]
