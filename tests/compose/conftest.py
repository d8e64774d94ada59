"""The stack for tests that need a Docker Engine; `make test-compose` provides one, `make test` leaves them out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.compose.stack import EVERYTHING, PROFILE_OPTIONS, Stack

collect_ignore_glob = [] if os.environ.get("LAB_ENGINE") else ["test_stack_*.py"]


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The stack without its story, every profile on, healthy; taken down after the last test."""
    stack = Stack()
    stack.environ["CONTROL_STORY"] = "off"
    stack.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans", check=False)
    try:
        began = time.monotonic()
        stack.compose(*PROFILE_OPTIONS, "up", "--detach", "--wait", "--wait-timeout", "180")
        print(f"healthy after {time.monotonic() - began:.0f} s")
        yield stack
    finally:
        stack.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans", check=False)
