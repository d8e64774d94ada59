"""The stack for tests that need a Docker Engine; `make test-compose` provides one, `make test` leaves them out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.stack import EVERYTHING, PROFILE_OPTIONS, Stack

STORY = {"GROW_SECONDS": "180", "KEYS_AT_CAP": "80000", "UTILISATION": "0.2"}
"""Less than .env has: the story is told sooner, and two busy cores have some time left for the engine."""

collect_ignore_glob = [] if os.environ.get("LAB_ENGINE") else ["test_stack_*.py"]


SECOND_STACK = {"stack", "served"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a second stack beside the story's as `whole`: only make test-compose-all runs them."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and SECOND_STACK & set(getattr(item, "fixturenames", ())):
            item.add_marker("whole")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """An empty Compose project with its own ports; at the end all of it is taken down."""
    project = Stack(tmp_path_factory.mktemp("stack"))
    project.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans", check=False)
    try:
        yield project
    finally:
        project.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans", check=False)


@pytest.fixture(scope="session")
def story(project: Stack) -> Stack:
    """The stack as `docker compose up` brings it up: two servers, and the story has begun."""
    began = time.monotonic()
    project.environ |= STORY
    project.compose("up", "--detach", "--wait", "--wait-timeout", "180")
    project.began = time.time()
    print(f"healthy after {time.monotonic() - began:.0f} s")
    return project


@pytest.fixture(scope="session")
def stack(project: Stack) -> Stack:
    """The stack without its story: every server is on, healthy and empty."""
    project.compose(*EVERYTHING, "down", "--volumes", "--remove-orphans")
    project.environ["CONTROL_STORY"] = "off"
    began = time.monotonic()
    project.compose(*PROFILE_OPTIONS, "up", "--detach", "--wait", "--wait-timeout", "180")
    print(f"healthy after {time.monotonic() - began:.0f} s")
    return project
