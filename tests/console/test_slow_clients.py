"""Slow clients do the control page no harm."""

from __future__ import annotations

import time

import pytest

from tests.app.servicekit import http
from tests.console.conftest import Page
from tests.slowkit import SOON_S, slow_clients


@pytest.mark.first(1)
@pytest.mark.parametrize("what", ["headers", "bodies"])
def test_slow_clients_delay_no_lever(target: Page, what: str) -> None:
    """While 300 clients have sent half a request, state and levers answer soon."""
    with slow_clients(target.port, what, "POST /api/stop"):
        for _ in range(5):
            began = time.monotonic()
            assert http("GET", f"{target.url}/healthz").status == 200
            assert http("GET", f"{target.url}/api/state").status == 200
            assert http("POST", f"{target.url}/api/servers/one/growth", {"on": False}).status == 200
            assert time.monotonic() - began < SOON_S
