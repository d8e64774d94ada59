"""docs/openapi/storefront.json describes the storefront: its routes, and the statuses and bodies of its answers."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from app.cache import Cache
from app.settings import Settings
from app.state import State
from app.storefront import create_app, create_operations
from tests.openapikit import ask, complaint, described, description, routes, statuses

FOUND = description("storefront")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    opened = State(tmp_path / "state")
    opened.init_invalidation("scan", 1000)
    yield opened
    opened.close()


def test_every_route_is_described(settings: Settings, state: State) -> None:
    """The storefront has exactly the routes that are described; the port of its own has no others."""
    assert routes(create_app(settings, state, Cache(settings))) == described(FOUND)
    assert routes(create_operations(state, Cache(settings))) < described(FOUND)


def test_every_answer_is_as_described(
    settings: Settings, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each status that is described comes when it should, with a body of the form that is described."""
    monkeypatch.setattr("app.acceptance.TRY_EVERY_S", 0.0)
    client = create_app(settings, state, Cache(settings)).test_client()
    found = [
        complaint(FOUND, method, path, status, ask(client, FOUND, method, path, status))
        for method, path, status in statuses(FOUND)
        if status != 503
    ]
    state.close()
    (tmp_path / "state" / "state.sqlite3").unlink()
    found += [
        complaint(FOUND, method, path, status, ask(client, FOUND, method, path, status))
        for method, path, status in statuses(FOUND)
        if status == 503
    ]
    assert [one for one in found if one] == []


def test_a_wrong_description_is_found(settings: Settings, state: State) -> None:
    """A route that does not exist, a status that does not come, and a field that is not there, are noticed."""
    app = create_app(settings, state, Cache(settings))
    wrong = deepcopy(FOUND)
    wrong["paths"]["/nothing"] = {"get": {"responses": {}}}
    health = wrong["paths"]["/healthz"]["get"]["responses"]
    health["404"] = health["421"]
    health["200"]["content"]["application/json"]["schema"]["required"] = ["status", "more"]
    assert described(wrong) - routes(app) == {("GET", "/nothing")}
    client = app.test_client()
    said = [
        complaint(wrong, "GET", "/healthz", status, ask(client, wrong, "GET", "/healthz", status))
        for status in (200, 404)
    ]
    assert "'more' is a required property" in said[0]
    assert "it was 200" in said[1]
