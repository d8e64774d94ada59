"""The host names that a page answers to."""

import pytest
from werkzeug.test import Client
from werkzeug.wrappers import Request, Response

from app.cache import Cache
from app.hosts import OWN, VARIABLE, Guard, is_served
from app.settings import Settings
from app.state import State
from app.storefront import create_app, create_operations

SERVED = (
    "127.0.0.1:8000",
    "127.0.0.1",
    "[::1]:8000",
    "[::1]",
    "localhost",
    "LOCALHOST.:80",
    "lab.localhost",
    f"{OWN}:9",
)
REFUSED = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "xlocalhost", "web",
           "[::1", "127.0.0.1:80:80", "[evil.example]", "", ":", "a" * 5000, "\x00", "other.local")  # fmt: skip


@pytest.mark.parametrize("host", SERVED)
def test_names_that_nobody_can_point_elsewhere_are_served(host: str) -> None:
    """IP literals and names of this machine are served."""
    assert is_served(host, ())


@pytest.mark.parametrize("host", REFUSED)
def test_other_names_are_not_served_unless_named(host: str) -> None:
    """Other names are refused, even if they resemble a served one; a name on the list is served."""
    assert not is_served(host, ())
    assert is_served("Web.Example:1", ("web.example",))


HERE = "127.0.0.1:8089"
FROM = {
    "a program": ({}, 200),
    "the page itself": ({"Origin": f"http://{HERE}", "Sec-Fetch-Site": "same-origin"}, 200),
    "a page behind a proxy": ({"Origin": "https://lab.example"}, 200),
    "another site": ({"Origin": "http://evil.example"}, 403),
    "another port of this machine": ({"Origin": "http://127.0.0.1:3000"}, 403),
    "a page without an origin": ({"Origin": "null"}, 403),
    "another site, without an origin": ({"Sec-Fetch-Site": "cross-site"}, 403),
}


@pytest.mark.parametrize("who", FROM)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/"), ("PUT", "/"), ("OPTIONS", "/"), ("GET", "/stop")]
)
def test_only_this_page_and_programs_change_something(method: str, path: str, who: str) -> None:
    """What changes something is refused to pages of other origins; they may send what changes nothing, and no answer
    gives them leave to read it.
    """
    headers, status = FROM[who]

    @Request.application
    def open_to_all(_: Request) -> Response:
        return Response("done", headers={"Access-Control-Allow-Origin": "*"})

    client = Client(Guard(open_to_all, {"lab.example"}, {"/stop"}))
    answer = client.open(path, method=method, headers={"Host": HERE, **headers})
    assert answer.status_code == status
    for each in (answer, client.get("/", headers={"Host": HERE, **headers})):
        assert "Access-Control-Allow-Origin" not in each.headers
    assert client.get("/", headers={"Host": HERE, **headers}).status_code == 200


@pytest.fixture
def state(settings: Settings) -> State:
    opened = State(settings.state_dir)
    opened.init_invalidation("scan", 1000)
    return opened


def test_a_page_under_a_name_of_its_own_changes_nothing(settings: Settings, state: State) -> None:
    """A request with a foreign Host gets 421 as a problem document and changes nothing, on the storefront and on its
    operations listener.
    """
    cache = Cache(settings)
    for app in (create_app(settings, state, cache), create_operations(state, cache)):
        client = app.test_client()
        headers = {"Host": "evil.example", "Origin": "http://evil.example"}
        answer = client.put("/settings/invalidation", json={"strategy": "index"}, headers=headers)
        assert (answer.status_code, answer.content_type) == (421, "application/problem+json")
        assert VARIABLE in answer.get_json()["detail"]
        for path in ("/settings/invalidation", "/metrics", "/healthz"):
            assert client.get(path, headers=headers).status_code == 421
        assert client.get("/settings/invalidation").get_json()["strategy"] == "scan"


def test_a_name_of_the_stack_is_served_once_it_is_named(
    settings: Settings, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commas and white space separate the names that are served; another container's name is refused."""
    monkeypatch.setenv(VARIABLE, "control web-redis,\tlab.example ")
    client = create_app(settings, state, Cache(settings)).test_client()
    assert client.get("/healthz", headers={"Host": "web-redis:8000"}).status_code == 200
    assert client.get("/healthz", headers={"Host": "lab.example"}).status_code == 200
    assert client.get("/healthz", headers={"Host": "web-valkey:8000"}).status_code == 421
