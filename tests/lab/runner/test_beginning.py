"""When a load counts as begun, and when an attempt would begin with too many keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lab.runner.loads import RunningLoad
from lab.runner.phases import too_many_to_begin
from lab.scenarios import catalogue
from lab.scenarios.model import LoadSpec


class Process:
    """The process of a load; the test decides when it prints each line."""

    def __init__(self) -> None:
        self.may_speak, self.may_end = threading.Event(), threading.Event()

    def lines(self) -> Iterator[bytes]:
        """Yield a line once it may speak, and the figures once it may end."""
        self.may_speak.wait(30)
        yield b'{"note": "under way"}\n'
        self.may_end.wait(30)
        yield b'{"figures": {"answer": 42}}\n'

    def exit_code(self) -> int:
        """Return 0: it ended well."""
        return 0

    def last_words(self) -> str:
        """Return no last words: nothing went wrong."""
        return ""


@pytest.mark.parametrize("reports_ready", [True, False])
def test_a_load_that_reports_ready_has_begun_with_its_first_line(reports_ready: bool) -> None:
    """A load that reports ready has begun with its first line, any other load from its start."""
    process, kept = Process(), list[dict[str, Any]]()
    load = RunningLoad(
        LoadSpec("it", "it", reports_ready=reports_ready), process, lambda _name, line: kept.append(line)
    )
    assert load.begun is not reports_ready
    process.may_speak.set()
    end = time.monotonic() + 30
    while not (load.begun and kept):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert not load.over
    process.may_end.set()
    assert load.figures() == {"answer": 42}


@pytest.mark.parametrize(
    ("phase", "keys", "expected"),
    [
        ("grow-1", 5_000, False),
        ("grow-1", 5_499, False),
        ("grow-1", 5_501, True),
        ("grow-1", 4_000, False),
        ("grow-5", 200_000, False),
        ("grow-5", 211_000, True),
    ],
)
def test_too_many_keys_are_removed_before_another_attempt(phase: str, keys: int, expected: bool) -> None:
    """The server is emptied before an attempt once it holds more than half of the surplus keys a phase may have."""
    found = next(each for each in catalogue()["key-growth"].phases if each.id == phase)
    planned = {"grow-1": 5_000, "grow-5": 200_000}[phase]
    assert too_many_to_begin(found, planned, keys) is expected
    other = replace(found, strategy="generation")
    assert not too_many_to_begin(other, planned, 10 * keys)
