"""Random requests and slow clients do the storefront no harm."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from flask import Flask
from hypothesis import HealthCheck, find, given
from hypothesis import settings as tries
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from app.cache import Cache
from app.settings import Settings
from app.state import State
from app.storefront import create_app
from lab.server.processes import port_taken
from tests.app.servicekit import ServerProcess, Service, eventually, free_port, http
from tests.slowkit import SOON_S, exchange, slow_clients

NewService = Callable[..., Service]
NAMES = st.one_of(
    st.from_regex(r"[a-z0-9-]{1,8}", fullmatch=True), st.integers().map(str), st.text(max_size=20)
)
VALUES = st.one_of(
    NAMES, st.none(), st.booleans(), st.floats(), st.integers(-1, 9), st.lists(NAMES, max_size=3)
)
FIELDS = ("strategy", "count", "type", "target", "enabled", "keys", "names", "miss_cost_ms", "rate")
BODIES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.just(b"[" * 5000),
    st.dictionaries(st.sampled_from(FIELDS), VALUES),
    VALUES,
)
REQUESTS = st.tuples(
    st.sampled_from(range(60)), NAMES, st.dictionaries(st.sampled_from(FIELDS), NAMES, max_size=2), BODIES
)
TRIES = tries(max_examples=200, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def app(settings: Settings) -> Flask:
    """The storefront, without a process of its own."""
    state = State(settings.state_dir)
    state.init_invalidation("scan", 1000)
    return create_app(settings, state, Cache(settings))


def status(app: Flask, request: tuple[int, str, dict[str, str], object]) -> int:
    """The status of the answer to a request: one of the routes, one name in its path, a query, and a body."""
    number, name, query, body = request
    rules = [
        (rule, method)
        for rule in app.url_map.iter_rules()
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
    ]
    rule, method = rules[number % len(rules)]
    path = re.sub("<[^>]*>", lambda _: quote(name, safe=""), rule.rule)
    sent = {"data": body, "content_type": "application/json"} if isinstance(body, bytes) else {"json": body}
    return app.test_client().open(path, method=method, query_string=query, **sent).status_code


def test_random_requests_find_no_error(app: Flask) -> None:
    """No request has an answer of 500 or above; they reach the handlers: most kinds of answers are among those."""
    came: set[int] = set()

    @TRIES
    @given(REQUESTS)
    def each(request: tuple[int, str, dict[str, str], object]) -> None:
        came.add(status(app, request))
        assert max(came) < 500, request

    each()
    assert {200, 400, 404} <= came


@pytest.mark.whole
def test_an_error_would_be_found(app: Flask) -> None:
    """The same requests find a storefront whose warming cannot be set; without a fault they find none."""
    with pytest.raises(NoSuchExample):
        find(REQUESTS, lambda request: status(app, request) >= 500, settings=TRIES)

    def broken() -> str:
        raise RuntimeError("x")

    app.view_functions[next(name for name in app.view_functions if "warming" in name)] = broken
    assert find(REQUESTS, lambda request: status(app, request) == 500, settings=TRIES)


def test_nobody_says_under_which_path_the_storefront_lies(
    new_service: NewService, server: ServerProcess
) -> None:
    """Headers by which a proxy would move the storefront to another path are answered as if they were not there."""
    service = new_service(server).start("web")
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nSCRIPT_NAME: /x\r\nPATH_INFO: /y\r\n\r\n"
    assert exchange(service.port, request) == [200]


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("status", "line", "header"), [(200, 3000, 8000), (414, 4090, 1), (431, 1, 8200)], ids=str
)
def test_what_is_too_long_is_refused_in_one_status(
    status: int, line: int, header: int, new_service: NewService, server: ServerProcess
) -> None:
    """A request's line and a header have a limit each, whatever the path."""
    service = new_service(server).start("web")
    request = f"GET /healthz?{'x' * line} HTTP/1.1\r\nHost: localhost\r\nX-Long: {'y' * header}\r\n\r\n"
    assert exchange(service.port, request.encode()) == [status]


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("what", "shared"),
    [("headers", True), ("bodies", False)],
    ids=["headers, shared port", "bodies, own port"],
)
def test_slow_clients_delay_no_settings(
    new_service: NewService, server: ServerProcess, what: str, shared: bool
) -> None:
    """While 300 clients have sent half a request, to the storefront's port or to that of the settings, health and
    settings answer on the latter without waiting for one of them to be given up.
    """
    port = free_port()
    service = new_service(server, APP_OPERATIONS_PORT=str(port)).start("web")
    base = f"http://127.0.0.1:{port}"
    eventually(lambda: port_taken(port))
    with slow_clients(service.port if shared else port, what, "PUT /settings/warming"):
        for _ in range(5):
            began = time.monotonic()
            assert http("GET", f"{base}/healthz").status == 200
            assert http("PUT", f"{base}/settings/invalidation", {"strategy": "index"}).status == 200
            assert time.monotonic() - began < SOON_S
    assert service.get("/healthz").status == 200
    assert "Traceback" not in service.log("web")
