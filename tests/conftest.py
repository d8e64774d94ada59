"""For every test: which tests may run beside it, what is skipped, and that it leaves the signal handlers unchanged.

`make test` runs test files side by side. Two marks say otherwise:

- ``alone``: the test judges ratios of times, loads every core, or starts a run, which measures only on a quiet machine.
  Nothing else runs beside it.
- ``whole``: a whole scenario or scene on real processes, or one more variant of what another test shows in ten seconds.
  It runs only in `make test-all`, and nothing else runs beside it.
- ``first(n)``: all rows of a parametrized test but the first n are ``whole``.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from lab.server.processes import INTERRUPTIONS

APART = ("alone", "whole")


def apart(item: pytest.Item) -> bool:
    """True if nothing may run beside the test."""
    return any(item.get_closest_marker(name) for name in APART)


class Turns:
    """Lets all of pytest's workers run tests side by side, or one worker a test that must run alone.

    The turn is a lock on a file, shared or exclusive. The kernel releases it if a worker dies.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w")

    def take(self, alone: bool) -> None:
        """Wait for a turn, exclusive if ``alone``."""
        fcntl.flock(self._file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)

    def give(self) -> None:
        """Release the turn."""
        fcntl.flock(self._file, fcntl.LOCK_UN)


TURNS = pytest.StashKey[Turns]()


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker all tests of a file, except those that must run alone: they are one group, the last.

    A worker that reached such a test in the middle would wait until all others have nothing left to do.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test."""
        return "alone" if nodeid in self._alone else nodeid.split("::")[0]

    @cached_property
    def _alone(self) -> frozenset[str]:
        """The ids of the tests that must run alone: the workers, who know the marks, have written them by now."""
        return frozenset(noted(self.config).read_text().splitlines())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """Distribute by file under `--dist loadfile`."""
    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


def noted(config: pytest.Config) -> Path:
    """Return the file with the ids of the tests that must run alone."""
    place = config.rootpath / ".pytest_cache"
    place.mkdir(exist_ok=True)
    return place / "alone.txt"


def pytest_configure(config: pytest.Config) -> None:
    """Handle interruption signals where they are ignored, because pytest was started in the background or by nohup:
    tests send them. In a worker, also open the lock of the turns.
    """
    for number in INTERRUPTIONS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        config.stash[TURNS] = Turns(noted(config).with_name("turns.lock"))


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out the tests that -m does not select
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests that must run alone last. A worker also writes their ids; all workers write the same."""
    rows: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("first"):
            test = item.nodeid.split("[")[0]
            rows[test] += 1
            if rows[test] > mark.args[0]:
                item.add_marker(pytest.mark.whole)
    items.sort(key=apart)
    if hasattr(config, "workerinput"):
        own = noted(config).with_suffix(f".{config.workerinput['workerid']}")
        own.write_text("\n".join(item.nodeid for item in items if apart(item)))
        own.replace(noted(config))


CAN_BE_HAD = "apt install"
"""In the reason of a skipped test: a program is missing that this machine could have."""


def skipped(config: pytest.Config) -> Counter[str]:
    """How many tests were skipped, by their reason."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name what was skipped and why: a test that did not run has not passed."""
    for reason, count in sorted(skipped(config).items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where SKIPS_ARE_RED is set, a test that was skipped for want of a program that can be had is red."""
    if os.environ.get("SKIPS_ARE_RED") and any(CAN_BE_HAD in reason for reason in skipped(session.config)):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Run a test with its fixtures once it has a turn; keep the turn for the next test of its kind in the same file.

    What a file's tests share, such as a running scene, stays until the last of them.
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
    """Every test leaves the signal handlers unchanged: if one left Ctrl-C ignored, every process that later tests start
    would ignore it too.
    """
    before = [signal.getsignal(number) for number in INTERRUPTIONS]
    yield
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
