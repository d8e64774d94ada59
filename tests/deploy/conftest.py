"""The tests of the chart need a Helm: see `tests.deploy.helmkit`."""

from __future__ import annotations

import pytest

from tests.deploy import helmkit


@pytest.fixture(scope="session")
def helm() -> str:
    """The path of a Helm. Skips, and says why, where there is none and none can be built."""
    try:
        return helmkit.helm()
    except helmkit.NoHelm as error:
        pytest.skip(f"no Helm: {error}")
