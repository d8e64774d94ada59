"""Fixtures: healthy synthetic runs, shared by all tests that only read them."""

from pathlib import Path

import pytest

from lab.results.folder import Run
from tests.lab.doctored import build_run


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of `key-growth` in which everything is as it should be."""
    return build_run(tmp_path_factory.mktemp("healthy") / "run")


@pytest.fixture(scope="session")
def control(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of `control`: the same load and phases without the cause."""
    return build_run(tmp_path_factory.mktemp("control") / "run", cause="index")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place for a run folder."""
    return tmp_path / "run"
