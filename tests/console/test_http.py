"""The console's HTTP interface, with stories on stand-ins and a real server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from console import web
from console.config import ServerAddresses
from console.metrics import ControlMetrics
from console.story import AllStories, Story
from console.web import create_app
from tests.app.servicekit import ServerProcess, eventually
from tests.console.standins import StandIns


class Page:
    """A console with running stories, and a client for it."""

    def __init__(self, standins: StandIns, server_url: str, **settings: Any) -> None:
        self.standins = standins
        self.config = standins.config(server_url, **settings)
        names = [server.name for server in self.config.servers]
        metrics = ControlMetrics(names)
        everybody = AllStories()
        self.stories = {s.name: Story(s, self.config, metrics, everybody) for s in self.config.servers}
        everybody.add(self.stories.values())
        for story in self.stories.values():
            story.start()
        self.client: FlaskClient = create_app(self.stories, self.config, metrics).test_client()

    def post(self, path: str, body: Any) -> Any:
        """POST a JSON body."""
        return self.client.post(path, json=body)

    def server(self) -> dict[str, Any]:
        """The state of the only server."""
        found: dict[str, Any] = self.client.get("/api/state").get_json()["servers"][0]
        return found

    def until(self, check: Callable[[dict[str, Any]], Any]) -> None:
        """Wait until `check` is true of the server's state."""
        eventually(
            lambda: (self.client.get("/api/state").get_json()["servers"] or None) and check(self.server())
        )

    def close(self) -> None:
        """End the stories."""
        for story in self.stories.values():
            story.end()


@pytest.fixture
def new_page(standins: StandIns, shared_server: ServerProcess) -> Iterator[Callable[..., Page]]:
    """Return a function that makes a console without a story."""
    made: list[Page] = []

    def make(**settings: Any) -> Page:
        made.append(Page(standins, shared_server.url, **settings))
        return made[-1]

    yield make
    for page in made:
        page.close()


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """A console whose only server is ready for actions."""
    made = new_page(grafana_url="http://127.0.0.1:3000", locust_urls={"one": "http://127.0.0.1:8089"})
    made.until(lambda server: server["free"] and server["up"])
    return made


def is_problem(answer: Any, status: int) -> bool:
    """True if an answer is an RFC 9457 problem document with this status."""
    body = answer.get_json()
    return (
        answer.status_code == status == body["status"]
        and answer.mimetype == "application/problem+json"
        and {"type", "title", "detail"} <= set(body)
        and bool(body["detail"])
    )


def test_actions(page: Page, standins: StandIns) -> None:
    """Each action takes effect, says what was done, answers with the new state, and is counted."""
    told = page.post("/api/servers/one/strategy", {"strategy": "index"}).get_json()
    assert told["said"].startswith("Strategy is now index;") and told["server"]["strategy"] == "index"
    assert told["parts"] == [{"part": "storefront", "done": True, "said": "Done."}]
    assert page.post("/api/servers/one/growth", {"on": True}).get_json()["server"]["growth"]
    assert page.post("/api/servers/one/growth", {"on": False}).get_json()["server"]["growth"] is False
    assert (
        page.post("/api/servers/one/rate", {"events_per_second": 3})
        .get_json()["said"]
        .startswith("Event rate")
    )
    assert standins.load["events_per_second"] == 3
    text = page.client.get("/metrics").get_data(as_text=True)
    counts = {
        sample.labels["action"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "lab_actions_total"
    }
    assert counts["strategy_index"] == counts["growth_start"] == counts["growth_stop"] == counts["rate"] == 1
    assert (
        counts["restart"] == counts["strategy_scan"] == 0
    )  # exported from the beginning: otherwise increase() sees no step


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("strategy", {"strategy": "magic"}),
        ("strategy", {"strategy": 3}),
        ("strategy", {"strategy": ["scan"]}),
        ("strategy", {}),
        ("strategy", {"strategy": "scan", "more": 1}),
        ("growth", {"on": 1}),
        ("growth", []),
        ("rate", {"events_per_second": -1}),
        ("rate", {"events_per_second": 1e9}),
        ("rate", {"events_per_second": 10**400}),
        ("rate", {"events_per_second": True}),
        ("rate", {"events_per_second": "3"}),
        ("restart", {"now": True}),
    ],
)
def test_bad_bodies_change_nothing(page: Page, standins: StandIns, action: str, body: Any) -> None:
    """An invalid body is a 400 problem, and nothing reaches the scene."""
    before = list(standins.told)
    assert is_problem(page.post(f"/api/servers/one/{action}", body), 400)
    assert [entry for entry in standins.told if entry not in before] == []


def test_not_a_number_is_refused(page: Page) -> None:
    """NaN and Infinity, which Python's JSON knows, are no rates."""
    for word in ("NaN", "Infinity"):
        answer = page.client.post(
            "/api/servers/one/rate", data=f'{{"events_per_second": {word}}}', content_type="application/json"
        )
        assert is_problem(answer, 400)


def test_brackets_in_brackets_are_refused(page: Page) -> None:
    """JSON too deep to be read is a 400 problem."""
    answer = page.client.post("/api/servers/one/rate", data=b"[" * 4000, content_type="application/json")
    assert is_problem(answer, 400)


def test_other_problems(page: Page) -> None:
    """Unknown servers, pages and methods, foreign content types, long bodies and refusals have their statuses."""
    assert is_problem(page.post("/api/servers/two/growth", {"on": True}), 404)
    assert "one" in page.post("/api/servers/two/growth", {"on": True}).get_json()["detail"]
    assert is_problem(page.client.get("/nothing"), 404)
    answer = page.client.get("/api/servers/one/rate")
    assert is_problem(answer, 405) and "POST" in answer.headers["Allow"]
    assert is_problem(page.client.post("/api/stop", data="{}", content_type="text/plain"), 415)
    assert is_problem(
        page.client.post("/api/stop", data="{" + " " * 5000 + "}", content_type="application/json"), 413
    )
    assert is_problem(page.post("/api/servers/one/rate", {"events_per_second": None}), 409)


def test_form_of_another_site_changes_nothing(page: Page, standins: StandIns) -> None:
    """Nothing that a form on another site can send has an effect."""
    before = len(standins.told)
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"):
        page.client.post("/api/servers/one/restart", data='{"a":1}', content_type=kind)
        page.client.post("/api/servers/one/growth", data='{"on":true}', content_type=kind)
    assert len(standins.told) == before


def test_page_under_a_name_of_its_own_changes_nothing(page: Page, standins: StandIns) -> None:
    """A site that points its own name at this machine, and so has one origin with the lab in a browser, is refused."""
    before = len(standins.told)
    headers = {"Host": "evil.example", "Origin": "http://evil.example"}
    for action, body in (("servers/one/restart", {}), ("servers/one/growth", {"on": True}), ("stop", {})):
        assert is_problem(page.client.post(f"/api/{action}", json=body, headers=headers), 421)
    assert is_problem(page.client.get("/api/state", headers=headers), 421)
    assert len(standins.told) == before


def test_a_part_out_of_order_is_named(page: Page, standins: StandIns) -> None:
    """If a process of the scene does not do what it is told, the answer is still 200 and names the process."""
    page.until(lambda server: server["keys"] is not None)
    standins.broken.add("locust")
    answer = page.post("/api/servers/one/rate", {"events_per_second": 3})
    (part,) = answer.get_json()["parts"]
    assert answer.status_code == 200 and not part["done"] and "Locust" in answer.get_json()["said"]
    answer = page.post("/api/stop", {})
    done = {part["part"]: part["done"] for part in answer.get_json()["parts"]}
    assert answer.status_code == 200 and done == {"one load": False}
    standins.broken.clear()
    eventually(lambda: standins.load["events_per_second"] == 0)


@pytest.mark.parametrize(
    ("action", "body"),
    [("over", {"on": "yes"}), ("over", {}), ("strategy", {"strategy": "scan", "late": 1})],
)
def test_bad_bodies_of_newer_levers(page: Page, standins: StandIns, action: str, body: Any) -> None:
    """An invalid body is a 400 problem, and nothing reaches the scene."""
    before = len(standins.told)
    assert is_problem(page.post(f"/api/servers/one/{action}", body), 400)
    assert len(standins.told) == before


def test_over_the_edge_over_http(page: Page) -> None:
    """Going over the edge is refused while no events are sent; then the answer says what will happen, and the state
    shows it.
    """
    assert is_problem(page.post("/api/servers/one/over", {"on": True}), 409)
    page.post("/api/servers/one/rate", {"events_per_second": 3})
    told = page.post("/api/servers/one/over", {"on": True}).get_json()
    assert "for 60 seconds" in told["said"] and told["server"]["shown_phase"] == "over_the_edge"
    told = page.post("/api/servers/one/over", {"on": False}).get_json()
    assert told["server"]["over"] is False and told["server"]["shown_phase"] == "level"


def test_state_has_everything(page: Page, standins: StandIns) -> None:
    """The state has what the page shows; curves come only when asked for."""
    standins.warming["keys"], standins.in_flight = 123, 4.0
    page.until(lambda server: server["keys"] == 123 and server["events_in_flight"] == 4)
    server = page.server()
    assert server["product"].startswith("Valkey ") and server["name"] == "one" and "curve" not in server
    assert server["knee_keys"] is None and server["calibrated_events_per_second"] is None
    curves = page.client.get("/api/state?curves=1").get_json()["servers"][0]["curve"]
    assert curves["keys"] and set(curves) == {"ago_s", "p99_ms", "keys"}


def test_page_is_whole_and_local(page: Page) -> None:
    """The page links to every dashboard and to Locust, and loads nothing from elsewhere."""
    html = page.client.get("/").get_data(as_text=True)
    for uid in ("incident", "where-time-goes", "before-after", "redis", "dragonfly", "the-lab"):
        assert f"http://127.0.0.1:3000/d/{uid}" in html
    assert "http://127.0.0.1:8089" in html
    for path in ("/static/page.css", "/static/page.js", "/static/icon.svg"):
        assert path in html and page.client.get(path).status_code == 200
    loaded = [
        part.split('"')[0] for key in ('src="', 'rel="stylesheet" href="') for part in html.split(key)[1:]
    ]
    assert loaded and all(address.startswith("/static/") for address in loaded)
    assert "default-src 'self'" in page.client.get("/").headers["Content-Security-Policy"]


def test_the_guide_is_served_where_it_was_made(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the site there is no link and an answer says how to make it; with it, its pages and no other file."""
    monkeypatch.setattr(web, "GUIDE", tmp_path / "site")
    (tmp_path / "secret.html").write_text("secret")
    assert "/guide" not in page.client.get("/").get_data(as_text=True)
    missing = page.client.get("/guide")
    assert missing.status_code == 404 and "make site" in missing.get_json()["detail"]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("the guide")
    assert "/guide" in page.client.get("/").get_data(as_text=True)
    found = page.client.get("/guide", follow_redirects=True)
    assert found.get_data(as_text=True) == "the guide"
    assert "'unsafe-inline'" in found.headers["Content-Security-Policy"]
    assert "'unsafe-inline'" not in page.client.get("/").headers["Content-Security-Policy"]
    assert page.client.get("/guide/../secret.html").status_code == 404


def test_page_links_to_no_load_of_a_server_that_is_not_there(new_page: Callable[..., Page]) -> None:
    """The page has no link to the Locust of a server that is not there: it would lead nowhere."""
    made = new_page(locust_urls={"one": "http://127.0.0.1:8089", "two": "http://127.0.0.1:8090"})
    made.until(lambda server: server["up"])
    html = made.client.get("/").get_data(as_text=True)
    assert "http://127.0.0.1:8089" in html
    assert "http://127.0.0.1:8090" not in html


def test_page_without_links(new_page: Callable[..., Page]) -> None:
    """Without configured links the page has no navigation."""
    html = new_page().client.get("/").get_data(as_text=True)
    assert "<nav" not in html


def test_health_is_red_when_nobody_directs(page: Page) -> None:
    """Health is red if an story has ended, even though the page answers."""
    assert page.client.get("/healthz").status_code == 200
    page.stories["one"].end()
    assert is_problem(page.client.get("/healthz"), 503)


def test_health_is_red_when_nobody_watches_the_slow_log(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an unforeseen error ends the thread that watches the slow log, health is red."""
    monkeypatch.setattr("threading.excepthook", lambda *_: None)
    monkeypatch.setattr("console.slowlog.SlowlogReader.new_entries", lambda *_: 1 / 0)
    eventually(lambda: page.client.get("/healthz").status_code == 503)


def test_waiting_is_said_and_nothing_can_be_done(new_page: Callable[..., Page], standins: StandIns) -> None:
    """Until everything answers the page says what is missing and refuses actions; then the server becomes ready."""
    standins.broken.add("probe")
    page = new_page()
    page.until(lambda server: "probe" in server["status"] and not server["free"])
    assert is_problem(page.post("/api/servers/one/growth", {"on": True}), 409)
    standins.broken.clear()
    page.until(lambda server: server["free"])


def test_unknown_host_is_not_shown(standins: StandIns) -> None:
    """A server whose profile is off, so that its name does not resolve, is neither shown nor an error."""
    base = "http://no-such-host.invalid"
    ghost = ServerAddresses("ghost", "redis://no-such-host.invalid:6379", base, base, base, base)
    page = Page(standins, "redis://127.0.0.1:1", servers=(ghost,))
    try:
        assert page.client.get("/api/state").get_json()["servers"] == []
        assert is_problem(page.post("/api/servers/ghost/growth", {"on": True}), 404)
        assert page.client.get("/healthz").status_code == 200
    finally:
        page.close()


@pytest.mark.parametrize("resumed", [True, False])
def test_lease(page: Page, standins: StandIns, resumed: bool) -> None:
    """While a run leases the scene, nothing is changed; when the lease is ended or runs out, the story goes on."""
    assert page.post("/api/pause", {"seconds": 60 if resumed else 1.5}).status_code == 200
    assert page.server()["phase"] == "leased"
    told = len(standins.told)
    assert is_problem(page.post("/api/servers/one/rate", {"events_per_second": 5}), 409)
    assert len(standins.told) == told
    if resumed:
        page.post("/api/resume", {})
    page.until(lambda server: server["free"])
    assert page.post("/api/servers/one/rate", {"events_per_second": 5}).status_code == 200


def test_stopping_everything_waits_for_a_run(page: Page, standins: StandIns) -> None:
    """While a run leases the scene, its load is left alone, and the answer says so; afterwards everything rests."""
    page.post("/api/pause", {"seconds": 60})
    told = len(standins.told)
    answer = page.post("/api/stop", {})
    assert answer.status_code == 200 and "when the run is over" in answer.text
    assert len(standins.told) == told
    page.post("/api/resume", {})
    eventually(lambda: len(standins.told) > told)
    eventually(lambda: standins.load["events_per_second"] == 0)


@pytest.mark.parametrize("seconds", [0, -1, 1e9, True, None, "60"])
def test_lease_must_end(page: Page, seconds: Any) -> None:
    """A lease without a sensible end is refused: the scene must go on by itself if the run dies."""
    assert is_problem(page.post("/api/pause", {"seconds": seconds}), 400)
    assert is_problem(page.post("/api/pause", {"seconds": 5, "server": "ghost"}), 400)
    assert page.server()["free"]


def test_strategies_are_those_that_the_storefront_tells(page: Page) -> None:
    """A strategy that the storefront names can be chosen and is counted from 0 on; any other is refused."""
    assert page.server()["strategies"] == page.standins.strategies
    assert page.post("/api/servers/one/strategy", {"strategy": "index"}).status_code == 200
    assert is_problem(page.post("/api/servers/one/strategy", {"strategy": "keys"}), 400)
    page.standins.strategies["keys"] = "KEYS"
    page.until(lambda server: "keys" in server["strategies"])
    assert 'lab_actions_total{action="strategy_keys",server="one"} 0.0' in page.client.get("/metrics").text
    assert page.post("/api/servers/one/strategy", {"strategy": "keys"}).status_code == 200
