"""What a server chose reaches no terminal as control characters."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from rich.console import Console

from lab import ROOT
from lab.blind.diagnostics import table
from lab.cli import _complain
from lab.diagnose import command
from lab.errors import StackError
from lab.foreign_text import shown
from lab.report.terminal import show_verdict
from lab.server import redis_cli
from lab.server.address import read_address
from tests.lab.doctored import build_run

EVIL = "x\x1b]52;c;QQ==\x07\x9b2J\u202e\x7f"
TOLD = r"x\x1b]52;c;QQ==\x07\x9b2J\u202e\x7f"


def test_controls_are_escaped_and_words_are_not() -> None:
    """C0, DEL, C1 and marks of direction are written out; tabs, lines and letters of all scripts stay."""
    assert shown(EVIL) == TOLD
    assert shown("a\tb\nc é 漢 עברית") == "a\tb\nc é 漢 עברית"


def test_no_output_of_foreign_text_has_controls(capsys: pytest.CaptureFixture[str]) -> None:
    """An answer, a table of a session and an error message show them written out."""
    assert list(redis_cli.lines([EVIL.encode()], terminal=True)) == [f"1) {TOLD}"]
    assert list(redis_cli.lines([EVIL.encode()], terminal=False)) == [TOLD]
    assert table(("key",), [(EVIL,)]).splitlines()[1] == TOLD
    _complain(f"the server refuses: {EVIL}", 2)
    assert capsys.readouterr().err == f"lab: the server refuses: {TOLD}\n"


def test_a_verdict_shows_brackets_as_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run folder holds is no markup of the terminal's; an address keeps its brackets."""
    folder = build_run(tmp_path / "run", judged=True).folder
    result = json.loads((folder / "result.json").read_text())
    result["claims"][0]["measured"] = f"[/x] redis://[fe80::1]:6379 {EVIL}"
    (folder / "result.json").write_text(json.dumps(result))
    show_verdict(Console(markup=False, highlight=False, width=400), folder)
    assert f"[/x] redis://[fe80::1]:6379 {TOLD}" in capsys.readouterr().out


def test_a_watch_shows_them_written_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the server does not let itself be diagnosed, and says why."""

    def refuses(*_: object, **__: object) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: math.inf)
        raise StackError(EVIL)

    monkeypatch.setattr(command, "watch", refuses)
    archive = command._Archive(None, 1, Path())
    console = Console(markup=False, highlight=False, width=400)
    command._watch(read_address("redis://127.0.0.1:1"), 60, 1, archive, False, console)
    assert TOLD in capsys.readouterr().out


def test_every_console_of_the_lab_prints_text() -> None:
    """Rich reads markup from what it prints unless its console is made without."""
    made = [
        line
        for path in (ROOT / "lab").rglob("*.py")
        for line in path.read_text().splitlines()
        if " Console(" in line
    ]
    assert made
    assert not [line for line in made if "markup=False" not in line]
