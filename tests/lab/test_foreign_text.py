"""What a server chose reaches no terminal as control characters."""

from __future__ import annotations

import pytest

from lab.blind.diagnostics import table
from lab.cli import _complain
from lab.foreign_text import shown
from lab.stacks import by_hand

EVIL = "x\x1b]52;c;QQ==\x07\x9b2J\u202e\x7f"
TOLD = r"x\x1b]52;c;QQ==\x07\x9b2J\u202e\x7f"


def test_controls_are_escaped_and_words_are_not() -> None:
    """C0, DEL, C1 and marks of direction are written out; tabs, lines and letters of all scripts stay."""
    assert shown(EVIL) == TOLD
    assert shown("a\tb\nc é 漢 עברית") == "a\tb\nc é 漢 עברית"


def test_no_output_of_foreign_text_has_controls(capsys: pytest.CaptureFixture[str]) -> None:
    """An answer, a table of a session and an error message show them written out."""
    assert list(by_hand.lines([EVIL.encode()], terminal=True)) == [f"1) {TOLD}"]
    assert list(by_hand.lines([EVIL.encode()], terminal=False)) == [TOLD]
    assert table(("key",), [(EVIL,)]).splitlines()[1] == TOLD
    _complain(f"the server refuses: {EVIL}", 2)
    assert capsys.readouterr().err == f"lab: the server refuses: {TOLD}\n"
