"""The HTTP contract, on the Flask test client with a real cache server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from app.cache import Cache
from app.fragments import fragment_names, is_fragment_name, parse_user
from app.settings import STRATEGY_NAMES, Settings
from app.state import State, WarmingStatus
from app.storefront import SHOWN_AT_FIRST, create_app
from tests.app.servicekit import ServerProcess, free_port


@pytest.fixture
def state(settings: Settings) -> Iterator[State]:
    opened = State(settings.state_dir)
    opened.init_invalidation("scan", 1000)
    yield opened
    opened.close()


@pytest.fixture
def web(settings: Settings, state: State) -> FlaskClient:
    return create_app(settings, state, Cache(settings)).test_client()


def is_problem(reply: Any, status: int) -> bool:
    """True if a reply is an RFC 9457 document with that status."""
    body = json.loads(reply.data)
    return bool(
        reply.status_code == status
        and reply.content_type == "application/problem+json"
        and body["status"] == status
        and set(body) == {"type", "title", "status", "detail"}
        and body["detail"]
    )


def test_first_read_misses_second_hits(web: FlaskClient, settings: Settings) -> None:
    """A fragment is computed once and then served from the cache, with the same body, of the configured size."""
    first, second = web.get("/users/42/fragments/page-3"), web.get("/users/42/fragments/page-3")
    assert (first.headers["Cache-Status"], second.headers["Cache-Status"]) == ("shop; fwd=miss", "shop; hit")
    assert first.json == second.json
    assert first.json is not None
    assert (first.json["user"], first.json["name"]) == (42, "page-3")
    assert len(first.json["body"]) == settings.value_bytes


def test_a_server_that_is_down_is_a_bypass(tmp_path: Path, state: State) -> None:
    """Without a cache server the answer is computed and still 200; readiness says 503."""
    down = Settings(store_url=f"redis://127.0.0.1:{free_port()}/0", state_dir=tmp_path)
    client = create_app(down, state, Cache(down)).test_client()
    reply = client.get("/users/1/fragments/cart-0")
    assert (reply.status_code, reply.headers["Cache-Status"]) == (200, "shop; fwd=bypass")
    assert is_problem(client.get("/readyz"), 503)
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_page_caches_all_usual_fragments(web: FlaskClient, state: State, strategy: str) -> None:
    """Under every strategy a page shows five fragments with the bodies of single reads, and caches all twenty."""
    state.set_invalidation({"strategy": strategy})
    first, second = web.get("/users/42/page"), web.get("/users/42/page")
    assert (first.headers["Cache-Status"], second.headers["Cache-Status"]) == ("shop; fwd=miss", "shop; hit")
    assert first.json and second.json and first.json == second.json
    assert list(first.json["fragments"]) == fragment_names(20)[:SHOWN_AT_FIRST]
    for name in fragment_names(20):
        single = web.get(f"/users/42/fragments/{name}")
        assert single.json and single.headers["Cache-Status"] == "shop; hit"
        assert first.json["fragments"].get(name, single.json["body"]) == single.json["body"]
    assert 'http_route="/users/<user>/page"' in web.get("/metrics").data.decode()


def test_a_page_without_the_server_is_a_bypass(tmp_path: Path, state: State) -> None:
    """A page asks a server that does not answer once, computes what it shows, and is still 200; nobody has no page."""
    down = Settings(store_url=f"redis://127.0.0.1:{free_port()}/0", state_dir=tmp_path)
    client = create_app(down, state, Cache(down)).test_client()
    reply = client.get("/users/1/page")
    assert (reply.status_code, reply.headers["Cache-Status"]) == (200, "shop; fwd=bypass")
    assert is_problem(client.get("/users/0/page"), 404)


def test_a_request_may_say_how_long_a_fragment_takes(web: FlaskClient) -> None:
    """`miss_cost_ms` is the time that a miss takes; a hit takes none of it."""
    path = "/users/1/fragments/page-0"
    began = time.monotonic()
    assert web.get(f"{path}?miss_cost_ms=300").headers["Cache-Status"] == "shop; fwd=miss"
    assert time.monotonic() - began >= 0.3
    began = time.monotonic()
    assert web.get(f"{path}?miss_cost_ms=10000").headers["Cache-Status"] == "shop; hit"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("cost", ["", "-1", "10001", "1.5", "x", "%D9%A3", "9" * 5000])
def test_a_bad_miss_cost_is_400(web: FlaskClient, server: ServerProcess, cost: str) -> None:
    """Only whole numbers of milliseconds up to ten seconds; nothing is cached."""
    assert is_problem(web.get(f"/users/1/fragments/page-0?miss_cost_ms={cost}"), 400)
    assert server.client().dbsize() == 0


@pytest.mark.parametrize("user", ["0", "-1", "+1", "01", "1000000001", "1e3", "1.0", "x", "%D9%A1", "9" * 40])
def test_bad_user_is_404(web: FlaskClient, user: str) -> None:
    """Only whole numbers 1..10**9 in plain digits are users."""
    assert is_problem(web.get(f"/users/{user}/fragments/page-0"), 404)
    assert is_problem(web.post(f"/users/{user}/events", json={"type": "order"}), 404)


@pytest.mark.parametrize(
    "name", ["page", "page-", "blog-1", "page-A", "page-*", "page-" + "a" * 60, "page-%0A"]
)
def test_bad_fragment_is_404(web: FlaskClient, server: ServerProcess, name: str) -> None:
    """A name outside the grammar is not found and reaches no cache server."""
    assert is_problem(web.get(f"/users/1/fragments/{name}"), 404)
    assert server.client().dbsize() == 0


@given(st.text(max_size=70))
def test_names_hold_no_pattern_characters(text: str) -> None:
    """An accepted name or id has no glob character, separator or control character, and its length is bounded."""
    if is_fragment_name(text):
        assert len(text) <= 64
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    if (user := parse_user(text)) is not None:
        assert str(user) == text
        assert 1 <= user <= 10**9


@pytest.mark.parametrize(
    ("data", "content_type", "status"),
    [
        (b'{"type":"order"}', "text/plain", 415),
        (b'{"type":"order"}', "", 415),
        (b'{"type":"sale"}', "application/json", 400),
        (b'{"type":7}', "application/json", 400),
        (b'{"type":"order","x":1}', "application/json", 400),
        (b"{}", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"", "application/json", 400),
        (b'"\xff"', "application/json", 400),
        (b"[" * 4000, "application/json", 400),
        (b" " * 5000, "application/json", 413),
        (b" " * 4096 + b"{", "application/json", 413),
    ],
)
def test_bad_event_is_refused(
    web: FlaskClient, state: State, data: bytes, content_type: str, status: int
) -> None:
    """A bad event is refused with its status and leaves nothing in the outbox."""
    assert is_problem(web.post("/users/1/events", data=data, content_type=content_type), status)
    assert state.pending() == 0


def test_many_fragments_are_cached_at_once(web: FlaskClient, server: ServerProcess) -> None:
    """PUT caches as many fragments as asked; a read is then a hit, with the body that a miss would have computed."""
    asked = web.get("/users/8/fragments/page-100").json
    assert web.put("/users/7/fragments", json={"count": 1000}).json == {"user": 7, "count": 1000}
    assert len(server.client().keys("shop:user:7:*")) == 1000
    reply = web.get("/users/7/fragments/page-100")
    assert reply.headers["Cache-Status"] == "shop; hit"
    assert reply.json is not None
    assert asked is not None
    assert reply.json["body"] == asked["body"].replace("8/", "7/")


@pytest.mark.parametrize(
    "body", [{}, {"count": 0}, {"count": 1_000_001}, {"count": 1.5}, {"count": None}, {"count": 1, "x": 1}]
)
def test_bad_count_of_fragments(web: FlaskClient, server: ServerProcess, body: dict[str, Any]) -> None:
    """A bad count is 400, and nothing is cached."""
    assert is_problem(web.put("/users/7/fragments", json=body), 400)
    assert server.client().dbsize() == 0


def test_many_fragments_need_the_server(tmp_path: Path, state: State) -> None:
    """Caching many fragments is 503 without the server, and 404 for an invalid user."""
    down = Settings(store_url=f"redis://127.0.0.1:{free_port()}/0", state_dir=tmp_path)
    client = create_app(down, state, Cache(down)).test_client()
    assert is_problem(client.put("/users/7/fragments", json={"count": 1}), 503)
    assert is_problem(client.put("/users/0/fragments", json={"count": 1}), 404)


def test_an_event_is_pending_until_it_is_done(web: FlaskClient, state: State) -> None:
    """An event is pending until it is done, even while it is claimed; an invalid user or number is 404."""
    reply = web.post("/users/9/events", json={"type": "order"}).json
    assert reply is not None
    number = reply["event"]
    assert web.get(f"/users/9/events/{number}").json == {"event": number, "state": "pending"}
    (event,) = state.claim("test")
    assert web.get(f"/users/9/events/{number}").json == {"event": number, "state": "pending"}
    state.done(event.id)
    assert web.get(f"/users/9/events/{number}").json == {"event": number, "state": "done"}
    assert is_problem(web.get(f"/users/x/events/{number}"), 404)
    assert is_problem(web.get("/users/9/events/" + "9" * 30), 404)


def test_event_is_accepted_without_the_server(tmp_path: Path, state: State) -> None:
    """202 depends on the outbox only: it is given while no cache server exists, and the event is in the outbox."""
    down = Settings(store_url=f"redis://127.0.0.1:{free_port()}/0", state_dir=tmp_path)
    reply = create_app(down, state, Cache(down)).test_client().post("/users/9/events", json={"type": "price"})
    assert reply.status_code == 202
    (event,) = state.claim("test")
    assert reply.json == {"event": event.id}
    assert (event.user, event.type) == (9, "price")


def test_invalidation_settings(web: FlaskClient) -> None:
    """PUT changes only the settings it names; GET returns the new values."""
    at_first = web.get("/settings/invalidation").get_json()
    assert list(at_first.pop("strategies")) == list(STRATEGY_NAMES)
    assert at_first.pop("searching") == ["scan", "keys", "slot", "scan-tagged"]
    assert at_first == {"strategy": "scan", "scan_count": 1000}
    changed = {"strategy": "index", "scan_count": 1000}
    assert web.put("/settings/invalidation", json={"strategy": "index"}).json == changed
    changed = {"strategy": "index", "scan_count": 5}
    assert web.put("/settings/invalidation", json={"scan_count": 5}).json == changed
    now = web.get("/settings/invalidation").get_json()
    assert {name: now[name] for name in changed} == changed


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"strategy": "SCAN"}, {"strategy": None}, {"strategy": []}, {"strategy": "scan", "x": 1}),
        *({"scan_count": 0}, {"scan_count": True}, {"scan_count": 1.5}, {"scan_count": None}),
        {"scan_count": 10_000_001},
    ],
)
def test_bad_invalidation_settings(web: FlaskClient, body: dict[str, Any]) -> None:
    """A bad value is 400 and changes nothing; the answer to a wrong strategy lists the valid names."""
    before = web.get("/settings/invalidation").json
    reply = web.put("/settings/invalidation", json=body)
    assert is_problem(reply, 400)
    if "strategy" in body and "x" not in body:
        assert ", ".join(STRATEGY_NAMES).encode() in reply.data
    assert web.get("/settings/invalidation").json == before


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"target_keys":-1}',
        b'{"target_keys":100000001}',
        b'{"target_keys":1.5}',
        b'{"target_keys":null}',
        b'{"keys_per_second":0}',
        b'{"keys_per_second":NaN}',
        b'{"keys_per_second":true}',
        b'{"keys_per_second":1' + b"0" * 400 + b"}",
        b'{"restart":1}',
    ],
)
def test_bad_warming_settings(web: FlaskClient, body: bytes) -> None:
    """A bad value is 400 and leaves the warmer's settings as they were."""
    before = web.get("/settings/warming").json
    assert is_problem(web.put("/settings/warming", data=body, content_type="application/json"), 400)
    assert web.get("/settings/warming").json == before


def test_warming_is_filling_until_the_warmer_saw_the_request(web: FlaskClient, state: State) -> None:
    """After a PUT the state is `filling` until the warmer reports on that PUT; earlier reports do not count."""
    state.set_warming_status(WarmingStatus(keys=7, state="idle"))
    reply = web.put("/settings/warming", json={"target_keys": 10, "keys_per_second": 5}).json
    assert reply is not None
    assert (reply["state"], reply["keys"], reply["keys_per_second"]) == ("filling", 7, 5)
    state.set_warming_status(WarmingStatus(keys=20, state="idle", revision=state.warming().revision))
    assert web.put("/settings/warming", json={"keys_per_second": None}).json == {
        **reply,
        "keys": 20,
        "keys_per_second": None,
    }


def test_unknown_paths_and_methods(web: FlaskClient) -> None:
    """404 and 405 are problem documents too; 405 says what is allowed."""
    assert is_problem(web.get("/nothing"), 404)
    reply = web.delete("/settings/invalidation")
    assert is_problem(reply, 405)
    assert "PUT" in reply.headers["Allow"]


def test_metrics_in_both_formats(web: FlaskClient) -> None:
    """/metrics speaks OpenMetrics when asked, and shows the strategy in force as 1 and the others as 0."""
    web.get("/users/1/fragments/page-0")
    open_metrics = web.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert open_metrics.content_type.startswith("application/openmetrics-text")
    assert open_metrics.data.endswith(b"# EOF\n")
    web.put("/settings/invalidation", json={"strategy": "keys"})
    text = web.get("/metrics").data.decode()
    assert 'cache_invalidation_strategy{strategy="keys"} 1.0' in text
    assert 'cache_invalidation_strategy{strategy="scan"} 0.0' in text
    assert (
        'db_client_operation_duration_seconds_bucket{db_operation_name="GET",db_system_name="redis"' in text
    )
    assert 'http_route="/users/<user>/fragments/<name>"' in text
