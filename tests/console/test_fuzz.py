"""Random requests and slow clients do the control page no harm."""

from __future__ import annotations

import time

import pytest

from bench import fuzz
from tests.app.servicekit import http
from tests.slowkit import SOON_S, slow_clients


def test_random_requests_find_no_fault(target: fuzz.Target) -> None:
    """Hundreds of random requests bring no error of the control page, no hang and no traceback. They reach the
    handlers: most kinds of answers are among those that came.
    """
    found = fuzz.fuzz(target, 400)

    assert found.faults == {}, found.examples
    assert found.sent >= 400
    assert {200, 400, 404, 405} <= set(found.statuses)


@pytest.mark.parametrize("what", ["headers", "bodies"])
def test_slow_clients_delay_no_lever(target: fuzz.Target, what: str) -> None:
    """While 300 clients have sent half a request, state and levers answer soon."""
    with slow_clients(target.port, what, "POST /api/stop"):
        for _ in range(5):
            began = time.monotonic()
            assert http("GET", f"{target.url}/healthz").status == 200
            assert http("GET", f"{target.url}/api/state").status == 200
            assert http("POST", f"{target.url}/api/servers/one/growth", {"on": False}).status == 200
            assert time.monotonic() - began < SOON_S
