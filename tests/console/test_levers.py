"""Levers: each part is carried out on its own, in bounded time, and reported."""

import threading
import time

from console.levers import pull
from lab.errors import StackError


def broken() -> None:
    """A part that is out of order."""
    raise StackError("it refuses.")


def test_each_part_is_told() -> None:
    """Each part is reported in the order asked: done, done with its own words, or refused."""
    done = pull({"load": lambda: None, "server": lambda: "The server is shutting down.", "warmer": broken})
    assert [(one.part, one.done) for one in done] == [("load", True), ("server", True), ("warmer", False)]
    assert done[1].said == "The server is shutting down." and done[2].said.startswith("it refuses.")


def test_one_that_hangs_holds_up_no_other() -> None:
    """If a part hangs, the others are done and the lever returns in time; the hanging part still runs to its end."""
    release, reached = threading.Event(), threading.Event()

    def hangs() -> None:
        release.wait(10)
        reached.set()

    began = time.monotonic()
    done = pull({"server": hangs, "load": lambda: None}, seconds=0.2)
    assert time.monotonic() - began < 2
    assert [(one.part, one.done) for one in done] == [("server", False), ("load", True)]
    release.set()
    assert reached.wait(5)
