"""A server with a core of its own, on a machine that has two."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lab.stacks.own_core import OwnCore

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores",
)


def test_the_server_has_a_core_that_nothing_else_uses() -> None:
    """What is started keeps off the core, the server gets it alone, and afterwards this process has all cores again."""
    before, core = os.sched_getaffinity(0), OwnCore(wanted=True)
    core.keep()
    try:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            others = os.sched_getaffinity(child.pid)
            core.give(child.pid)
            own = os.sched_getaffinity(child.pid)
            child.communicate(b"\n")
    finally:
        core.release()
    assert len(own) == 1
    assert others == before - own
    assert os.sched_getaffinity(0) == before


def test_nothing_changes_where_it_is_not_wanted() -> None:
    """A scenario without busy loads leaves all processes on all cores."""
    before, core = os.sched_getaffinity(0), OwnCore(wanted=False)
    core.keep()
    core.give(os.getpid())
    assert os.sched_getaffinity(0) == before
