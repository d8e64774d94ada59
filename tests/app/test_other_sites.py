"""In a real browser no page of another site reads the storefront or sends it events; neither does a re-pointed name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lab.server.processes import port_taken
from tests.app.servicekit import ServerProcess, Service, eventually, free_port, http
from tests.browserkit import CHROMIUM, Aim, attempts

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: apt install chromium)"),
    pytest.mark.whole,  # tests/console has the same for the control page, by the same rule of names
]
NewService = Callable[..., Service]


@pytest.mark.parametrize("rebinds", [False, True], ids=["another site", "a re-pointed name"])
def test_nothing_is_read_and_no_event_is_accepted(
    rebinds: bool, new_service: NewService, server: ServerProcess, tmp_path: Path
) -> None:
    """The page sees no settings, and the outbox stays empty; the same event from here is accepted."""
    service = new_service(server).start("web")
    aim = Aim(service.base, "/settings/invalidation", "/users/1/events", {"type": "price"})
    found = attempts(aim, rebinds, tmp_path)
    assert not [name for name, seen in found.items() if "strategy" in seen.get("text", "")], found
    assert accepted(service) == 0, found
    if rebinds:
        assert {found[name].get("status") for name in ("read", "act")} == {421}, found
    else:
        assert "error" in found["read"] and "error" in found["act"], found
    assert service.event(1).status == 202
    assert accepted(service) == 1


@pytest.mark.parametrize("rebinds", [False, True], ids=["another site", "a re-pointed name"])
def test_settings_on_a_port_of_their_own_stay(
    rebinds: bool, new_service: NewService, server: ServerProcess, tmp_path: Path
) -> None:
    """The page neither sees nor changes the strategy by PUT; the same request from here does."""
    port = free_port()
    service = new_service(server, APP_OPERATIONS_PORT=str(port)).start("web")
    base, path = f"http://127.0.0.1:{port}", "/settings/invalidation"
    eventually(lambda: port_taken(port))
    before = http("GET", f"{base}{path}").body
    found = attempts(Aim(base, path, path, {"strategy": "keys"}, "PUT"), rebinds, tmp_path)
    assert not [name for name, seen in found.items() if "strategy" in seen.get("text", "")], found
    assert http("GET", f"{base}{path}").body == before, found
    if rebinds:
        assert {found[name].get("status") for name in ("read", "act")} == {421}, found
    else:
        assert "error" in found["read"] and "error" in found["act"], found
    assert http("PUT", f"{base}{path}", {"strategy": "keys"}).status == 200
    assert http("GET", f"{base}{path}").body != before
    assert service.get("/healthz").status == 200


def accepted(service: Service) -> int:
    """Return the number of accepted events: all wait, since no invalidator runs."""
    (file,) = service.state_dir.glob("*.sqlite3")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM outbox").fetchone()[0])
