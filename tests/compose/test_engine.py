"""The tests' own engine does not take the folder of another one that still runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose import engine


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the daemon's name, whose pid stands in the folder."""
    monkeypatch.setenv("LAB_ENGINE_CACHE", str(tmp_path))
    program = shutil.copy(shutil.which("sleep") or "sleep", tmp_path / "dockerd")
    process = subprocess.Popen([program, "60"])
    (tmp_path / engine.PID_FILE).write_text(f"{process.pid}\n")
    yield process
    process.kill()
    process.wait()


def test_an_engine_that_runs_is_not_disturbed(
    other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs it is waited for, and then refused in one line; when it has ended, its folder is free."""
    monkeypatch.setattr(engine, "OTHERS_END_S", 0.1)
    with pytest.raises(engine.NotPossible, match=rf"pid {other.pid}\): wait for its end"):
        engine.Engine()._await_the_other()
    other.kill()
    other.wait()
    engine.Engine()._await_the_other()


def test_a_file_that_was_left_disturbs_nobody(tmp_path: Path) -> None:
    """Without the file, with a broken one, or with the pid of another program, no engine runs in the folder."""
    assert engine.engine_in(tmp_path) is None
    for text in ("", "no number", str(os.getpid())):
        (tmp_path / engine.PID_FILE).write_text(text)
        assert engine.engine_in(tmp_path) is None, text
