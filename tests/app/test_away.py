"""The service's processes while their server is away."""

from __future__ import annotations

import time
from collections.abc import Callable

from app.invalidator import RETRY_CAP_SECONDS, RETRY_FIRST_SECONDS, retry_delay
from tests.app.servicekit import ServerProcess, Service, eventually

NewService = Callable[..., Service]


def test_an_idle_warmer_reports_a_server_that_is_away_every_time(
    new_service: NewService, own_server: ServerProcess
) -> None:
    """With nothing to fill, too, the error stays there for as long as the server is away."""
    service = new_service(own_server).start("web", "warmer")
    service.put("/settings/warming", {"target_keys": 0})
    eventually(lambda: service.get("/settings/warming").json["state"] == "idle")
    own_server.stop()
    eventually(lambda: service.get("/settings/warming").json["error"])
    end = time.monotonic() + 2.5  # some rounds of half a second
    while time.monotonic() < end:
        assert service.get("/settings/warming").json["error"]
        time.sleep(0.05)


def test_events_are_tried_again_for_ever() -> None:
    """The delay doubles up to its cap, and stays there: a server that is away for days loses no event."""
    assert [retry_delay(attempt) for attempt in range(3)] == [
        RETRY_FIRST_SECONDS,
        2 * RETRY_FIRST_SECONDS,
        4 * RETRY_FIRST_SECONDS,
    ]
    assert {retry_delay(attempt) for attempt in (10, 1_023, 1_024, 1_000_000)} == {RETRY_CAP_SECONDS}
