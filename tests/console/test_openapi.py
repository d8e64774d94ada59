"""docs/openapi/console.json describes the control page: its routes, and the statuses and bodies of its answers."""

from __future__ import annotations

from typing import Any

import pytest

from console.metrics import ControlMetrics
from console.story import AllStories, Story
from console.web import create_app
from tests.app.servicekit import ServerProcess, eventually
from tests.console.standins import StandIns
from tests.openapikit import ask, complaint, described, description, routes, statuses

FOUND = description("console")
for _item in FOUND["paths"].values():
    for _one in _item.get("parameters", ()):
        _one["example"] = "one" if _one["name"] == "name" else _one["example"]  # the server of the stand-ins


def test_every_answer_is_as_described(
    standins: StandIns, own_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control page has exactly the routes that are described. Each status comes when it should, with a body of the
    form that is described.
    """
    config, metrics, every = standins.config(own_server.url), ControlMetrics(["one"]), AllStories()
    story = Story(config.servers[0], config, metrics, every)
    every.add([story])
    app = create_app({"one": story}, config, metrics)
    client, found = app.test_client(), []

    def hold(method: str, path: str, status: int) -> Any:
        answer = ask(client, FOUND, method, path, status)
        found.append(complaint(FOUND, method, path, status, answer))

    assert routes(app) == described(FOUND)
    story.start()
    try:
        eventually(
            lambda: [server["free"] for server in client.get("/api/state").get_json()["servers"]] == [True]
        )
        order = sorted(statuses(FOUND), key=lambda one: one[2] == 409)
        for method, path, status in order:
            if status != 503 and (path, status) != ("/api/pause", 409):
                if status == 409:
                    again = "/api/start" if path == "/api/start" else "/api/pause"
                    ask(client, FOUND, "POST", again, 200)
                hold(method, path, status)
        client.post("/api/resume", json={})
        eventually(lambda: story.control.phase != "leased")
        monkeypatch.setattr("console.web.HANDS_OFF_S", 0.0)  # no time for the story to let go
        hold("POST", "/api/pause", 409)
    finally:
        story.end()
    hold("GET", "/healthz", 503)
    assert [one for one in found if one] == []
