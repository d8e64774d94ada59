"""For every test: it leaves the process as it found it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from lab.processes import INTERRUPTIONS


def pytest_configure() -> None:
    """Tests that send signals mean them, also where pytest was started in the background or by nohup."""
    for number in INTERRUPTIONS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    """A test that left Ctrl-C ignored would leave it ignored in every process that later tests start."""
    before = [signal.getsignal(number) for number in INTERRUPTIONS]
    yield
    assert [signal.getsignal(number) for number in INTERRUPTIONS] == before
