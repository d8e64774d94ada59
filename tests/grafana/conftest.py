"""Fixtures: the committed dashboards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.grafana.metricnames import ROOT

FILES = sorted((ROOT / "grafana/dashboards").glob("*.json"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def board(request: pytest.FixtureRequest) -> Any:
    """Each dashboard in turn."""
    return json.loads(request.param.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def boards() -> list[Any]:
    """All dashboards."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in FILES]
