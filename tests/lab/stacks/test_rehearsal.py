"""`bin/lab doctor --scene`, with one server in the place of Grafana, its data sources, the control page and Locust."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.errors import StackError, UsageError
from lab.scene import dashboards, rehearsal
from lab.server.checks import CheckResult
from tests.httpkit import Answer, HttpStandIn, Request
from tests.lab.stacks.conftest import services_of

BOARD = {
    "uid": "incident",
    "title": "1 The incident",
    "templating": {
        "list": [
            {
                "name": "server",
                "query": {"query": "label_values(up, server)"},
                "current": {"value": "redis"},
            }
        ]
    },
    "panels": [
        {"type": "text", "title": "words"},
        {
            "type": "row",
            "panels": [
                {
                    "type": "stat",
                    "title": "Keys",
                    "datasource": {"uid": "prometheus"},
                    "targets": [{"refId": "A", "expr": 'keys{server="$server"}', "instant": True}],
                }
            ],
        },
        {
            "type": "table",
            "title": "Traces",
            "datasource": {"uid": "tempo"},
            "targets": [{"refId": "A", "queryType": "traceql", "query": "{}"}],
        },
    ],
}


def usual() -> dict[str, Any]:
    """Return the answers of a healthy scene, by the end of the path."""
    return {
        "/api/search?type=dash-db": [{"uid": "incident"}],
        "/api/dashboards/uid/incident": {"dashboard": BOARD},
        "/api/v1/query": {
            "data": {"result": [{"metric": {"job": "web", "instance": "x"}, "value": [0, "1"]}]}
        },
        "/label/server/values": {"data": ["redis"]},
        "/api/ds/query": {"results": {"A": {"frames": [{"data": {"values": [[1], [2]]}}]}}},
        "/api/v1/query_exemplars": {
            "data": [{"exemplars": [{"timestamp": 1.0, "labels": {"trace_id": "abc"}}]}]
        },
        "/tempo/api/search": {"traces": [{"traceID": "abc"}]},
        "/api/traces/abc": {"batches": [{"scopeSpans": [{"spans": [{}, {}]}]}]},
        "/api/state": {"servers": [{"name": "redis", "strategy": "scan", "growth": True}]},
        "/strategy": {"said": "done", "parts": [{"part": "web", "done": True, "said": ""}]},
        "/growth": {"said": "done", "parts": []},
        "/stats/requests": {"state": "running"},
        "/": "<html>",
    }


class Everything(HttpStandIn):
    """One HTTP server that gives these answers, and 404 for any other path and for None."""

    def __init__(self) -> None:
        self.answers = usual()
        self.asked: list[tuple[str, str, Any]] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """The answer whose path is the longest end of the request's."""
        found = [end for end in self.answers if request.target.endswith(end) or request.path.endswith(end)]
        self.asked.append((request.method, request.path, request.body))
        said = self.answers[max(found, key=len)] if found else None
        return Answer(said, 404 if said is None else 200)


@pytest.fixture
def scene(docker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Everything]:
    """A healthy scene of one server, and no Chromium."""
    docker.has(services_of("redis"))
    found = Everything()
    for name in ("CONTROL_PORT", "GRAFANA_PORT", "LOCUST_REDIS_PORT"):
        monkeypatch.setenv(name, str(found.port))
    monkeypatch.setattr(dashboards, "CHROMIUM", ())
    for name, seconds in {"TRACE_S": 0.1, "FILLING_S": 0.3, "RETRY_S": 0.05}.items():
        monkeypatch.setattr(rehearsal, name, seconds)
    yield found
    found.close()


def look(folder: Path) -> dict[str, CheckResult]:
    """Rehearse, and return the results by name."""
    said: list[CheckResult] = []
    found = rehearsal.rehearse(folder, said.append)
    assert found.results == said
    page = (folder / "doctor.html").read_text()
    assert ("A workshop could begin." in page) == found.may_begin
    assert page.count('class="miss"') == len([result for result in said if not result.ok])
    return {result.name: result for result in said}


def test_a_dashboard_of_a_participant_is_passed_over(scene: Everything, tmp_path: Path) -> None:
    """Anybody may save a dashboard; one without a choice of servers is none of the lab's."""
    scene.answers["/api/search?type=dash-db"] = [{"uid": "incident"}, {"uid": "mine"}]
    scene.answers["/api/dashboards/uid/mine"] = {"dashboard": {"uid": "mine", "title": "Mine", "panels": []}}
    found = look(tmp_path)
    assert found["dashboards"].detail == "1"
    assert found["dashboard 1 The incident, redis"].ok


@pytest.mark.parametrize("watched", [["valkey"], ["valkey", "redis"], []])
def test_a_dashboard_of_a_server_that_is_not_there_is_not_looked_at(
    watched: list[str], scene: Everything, tmp_path: Path
) -> None:
    """A scene need not have every server. One that the console watches must have data, though."""
    scene.answers["/label/server/values"] = {"data": []}
    scene.answers["match%5B%5D=lab_store_up"] = {"data": watched}
    found = look(tmp_path)
    if watched == ["valkey"]:
        assert found["dashboard 1 The incident"].detail == "not looked at: no redis in this scene"
        assert "/api/ds/query" not in {path for _, path, _ in scene.asked}
    else:
        assert found["dashboard 1 The incident, redis"].ok


def test_without_docker_the_page_is_written_all_the_same(
    scene: Everything, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the engine's command is missing, the result on containers says so, and the rest is looked at."""
    monkeypatch.setenv("PATH", str(tmp_path))
    found = look(tmp_path)
    assert not found["containers"].ok
    assert found["dashboard 1 The incident, redis"].ok


def test_bad_places_are_one_line(scene: Everything, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be made, and a lab without its .env, are told before anything is asked."""
    with pytest.raises(UsageError, match="/dev/null/x cannot be written"):
        look(Path("/dev/null/x"))
    monkeypatch.delenv("GRAFANA_PORT")
    monkeypatch.setattr(rehearsal, "read_env_file", lambda _: None)
    with pytest.raises(StackError, match=r"\.env does not name GRAFANA_PORT"):
        look(tmp_path)
    assert scene.asked == []


def test_a_whole_scene_is_looked_at_and_left_as_it_was(scene: Everything, tmp_path: Path) -> None:
    """Every panel, a trace and both levers are checked, and the levers put back; missing pictures are no fault."""
    found = look(tmp_path / "new" / "folder")
    assert [what for what, result in found.items() if not result.ok] == []
    assert found["containers"].detail == "all 6 healthy"
    assert found["dashboard 1 The incident, redis"].detail == "2 panels have data"
    assert found["exemplar to trace"].detail == "abc has 2 spans in Tempo"
    assert found["Locust, Redis"].detail == "running"
    [query] = [body["queries"] for _, path, body in scene.asked if path == "/api/ds/query"]
    assert query[0]["expr"] == 'keys{server="redis"}'
    levers = [(path.rpartition("/")[2], body) for _, path, body in scene.asked if "/api/servers/" in path]
    assert levers == [
        ("strategy", {"strategy": "index"}),
        ("strategy", {"strategy": "scan"}),
        ("growth", {"on": False}),
        ("growth", {"on": True}),
    ]


def test_a_panel_that_fills_a_moment_later_is_no_fault(scene: Everything, tmp_path: Path) -> None:
    """A panel without data is asked again: the scene may have just begun."""
    full = scene.answers["/api/ds/query"]
    scene.answers["/api/ds/query"] = {"results": {"A": {"frames": []}}}
    threading.Timer(0.1, scene.answers.__setitem__, ("/api/ds/query", full)).start()
    assert look(tmp_path)["dashboard 1 The incident, redis"].ok


DOWN = {"data": {"result": [{"metric": {"job": "web", "instance": "x"}, "value": [0, "0"]}]}}
BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "no data": (
        "/api/ds/query",
        {"results": {"A": {"frames": []}}},
        "dashboard 1 The incident, redis",
        "Keys: No data",
    ),
    "an error": (
        "/api/ds/query",
        {"results": {"A": {"error": "bad_data: parse error"}}},
        "dashboard 1 The incident, redis",
        "Keys: bad_data",
    ),
    "no traces": ("/tempo/api/search", {"traces": []}, "dashboard 1 The incident, redis", "Traces: No data"),
    "a target down": ("/api/v1/query", DOWN, "scrapes", "down: web x"),
    "no targets": ("/api/v1/query", {"data": {"result": []}}, "scrapes", "all 0 up"),
    "no dashboards": ("/api/search?type=dash-db", [], "dashboards", "0"),
    "no Grafana": ("/api/search?type=dash-db", None, "dashboards", "Grafana refuses GET"),
    "no exemplars": ("/api/v1/query_exemplars", {"data": []}, "exemplar to trace", "no exemplar"),
    "a trace lost": ("/api/traces/abc", None, "exemplar to trace", "none of the 1 latest"),
    "an empty trace": ("/api/traces/abc", {"batches": []}, "exemplar to trace", "none of the 1 latest"),
    "no server": ("/api/state", {"servers": []}, "control page", "no server yet"),
    "no control page": ("/api/state", None, "control page", "control refuses"),
    "a lever that sticks": (
        "/strategy",
        {"said": "", "parts": [{"part": "web", "done": False, "said": "refused"}]},
        "control page, redis",
        "strategy: web refused",
    ),
    "an answer without sense": ("/strategy", [], "control page, redis", "cannot be read"),
    "no load": ("/stats/requests", {"state": "stopped"}, "Locust, Redis", "stopped"),
}


@pytest.mark.first(5)
@pytest.mark.parametrize("case", BROKEN)
def test_what_is_missing_is_said_and_the_rest_looked_at(case: str, scene: Everything, tmp_path: Path) -> None:
    """Each fault that a participant would meet is named in one line, and the other checks go on."""
    path, answer, what, said = BROKEN[case]
    whole = list(look(tmp_path / "whole"))
    scene.answers[path] = answer
    found = look(tmp_path)
    assert not found[what].ok
    assert said in found[what].detail
    assert "\n" not in found[what].detail
    assert len(found) >= len(whole) - 1


def test_no_container_is_told_with_the_command(scene: Everything, docker: Any, tmp_path: Path) -> None:
    """If no container runs, the result says so and how to start them."""
    docker.has([])
    assert look(tmp_path)["containers"].detail == "none runs: make up"


def test_an_ill_container_is_named_at_once(scene: Everything, docker: Any, tmp_path: Path) -> None:
    """An unhealthy container is named, and not waited for: it does not mend by itself."""
    docker.has(services_of("redis"), "unhealthy")
    began = time.monotonic()
    [container, *_] = rehearsal._containers()
    assert time.monotonic() - began < rehearsal.STARTING_S / 2
    assert not container.ok and "redis: unhealthy" in container.detail


@pytest.mark.parametrize("becomes", ["healthy", "starting"])
def test_a_starting_container_is_waited_for(
    becomes: str,
    scene: Everything,
    docker: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that was restarted a moment ago is no fault, unless it is still starting when the wait ends."""
    monkeypatch.setattr(rehearsal, "STARTING_S", 5.0 if becomes == "healthy" else 0.3)
    docker.has(services_of("redis"), "starting")
    threading.Timer(0.4, docker.has, (services_of("redis"), becomes)).start()
    [container] = rehearsal._containers()
    assert container.ok == (becomes == "healthy"), container


@pytest.mark.parametrize("works", [True, False])
def test_dashboards_are_photographed(
    scene: Everything, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    """Each dashboard is photographed for each server and shown on the page; a browser that fails is a result.

    Either way the browser's profile is removed.
    """
    browser = tmp_path / "browser"
    browser.write_text(
        '#!/bin/sh\nfor word; do case $word in --user-data-dir=*) where=${word#*=}; touch "$where/profile"; '
        f'echo "$where" >>{tmp_path}/profiles;; esac; done\n'
        "for word; do case $word in --screenshot=*) "
        + ('echo "$word" >"${word#--screenshot=}"' if works else "exit 1")
        + ";; esac; done\n"
    )
    browser.chmod(0o755)
    monkeypatch.setattr(dashboards, "CHROMIUM", (str(browser),))
    found = look(tmp_path)
    assert found["pictures"].ok is works
    assert ('<img src="incident-redis.png"' in (tmp_path / "doctor.html").read_text()) is works
    assert (tmp_path / "incident-redis.png").exists() is works
    profiles = (tmp_path / "profiles").read_text().split()
    assert profiles and not [profile for profile in profiles if Path(profile).exists()]
