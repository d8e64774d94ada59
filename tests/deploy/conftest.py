"""The tests of the chart need a Helm: see `tests.deploy.helmkit`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy import helmkit


@pytest.fixture(scope="session")
def helm() -> str:
    """The path of a Helm. Skips, and says why, where there is none and none can be built."""
    try:
        return helmkit.helm()
    except helmkit.NoHelm as error:
        pytest.skip(f"no Helm: {error}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These belong to `make test-all`: they are hundreds of renderings, and the first one may have to build a Helm."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.whole)
