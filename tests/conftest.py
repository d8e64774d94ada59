"""For every test: when it runs beside others, and that it leaves the process as it found it.

`make test` runs files of tests side by side. Marks say which must not:

- ``alone``: it judges ratios of times, loads every core, or starts a run, which measures only on a quiet machine.
  Nothing else runs beside it.
- ``whole``: a whole scenario or scene on real processes, or one more variant of what another test shows in ten seconds.
  Left to `make test-all`; alone, too.
"""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

import pytest

from lab.stacks.processes import INTERRUPTIONS

APART = ("alone", "whole")


def apart(item: pytest.Item) -> bool:
    """Whether nothing may run beside a test."""
    return any(item.get_closest_marker(name) for name in APART)


class Turns:
    """Who may run now, over all of pytest's workers: many tests that bear one another, or one that bears none.

    The kernel keeps the turns, by a lock on a file, and gives back those of a worker that dies.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w")

    def take(self, alone: bool) -> None:
        """Wait for a turn."""
        fcntl.flock(self._file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)

    def give(self) -> None:
        """The next, please."""
        fcntl.flock(self._file, fcntl.LOCK_UN)


TURNS = pytest.StashKey[Turns]()


def pytest_configure(config: pytest.Config) -> None:
    """Tests that send signals mean them, also where pytest was started in the background or by nohup."""
    for number in INTERRUPTIONS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        place = config.rootpath / ".pytest_cache"
        place.mkdir(exist_ok=True)
        config.stash[TURNS] = Turns(place / "turns.lock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that must run alone come last, when no other worker has anything left to do beside them."""
    items.sort(key=apart)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """A test runs, with its fixtures, when it is its turn, and keeps it for the next one of its kind in the file.

    What a file shares between its tests, a running scene perhaps, is there until the last of them.
    """
    turns = item.config.stash.get(TURNS, None)
    if turns is None:  # one process: one test at a time
        return (yield)
    turns.take(apart(item))
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path or apart(nextitem) != apart(item):
            turns.give()


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    """A test that left Ctrl-C ignored would leave it ignored in every process that later tests start."""
    before = [signal.getsignal(number) for number in INTERRUPTIONS]
    yield
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
