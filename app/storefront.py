"""The HTTP interface: fragments of a user's pages, events, run-time settings, metrics and health."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flask import Flask, Response, g, request
from gunicorn.http.errors import ParseException
from opentelemetry import propagate, trace
from prometheus_client import REGISTRY

from app import hosts, problems
from app.acceptance import Acceptance
from app.cache import Cache, CacheUnavailable
from app.exposition import encoder_for
from app.fragments import fragment_names, is_fragment_name, parse_user, render
from app.layouts import Layouts
from app.metrics import CACHE_REQUESTS, HTTP_DURATION, exemplar, show_strategy
from app.problems import Problem, problem
from app.process import BODY_S
from app.settings import SCAN_COUNT_MAX, STRATEGY_NAMES, STRATEGY_ROWS, Settings
from app.state import State, StateError

BODY_MAX = 4096
MISS_COST_MAX_MS = 10_000
UNDER_WAY = ("redo", "finish")
"""Events under way when the strategy changes are done again under the new one, or finished as begun."""
SHOWN_AT_FIRST = 5
"""Fragments that a visit reads of a page, one after another: those that a visitor sees before scrolling. A page
that waits for each answer meets a search at most once: with twenty reads the other nineteen would hide it."""
EVENT_TYPES = ("order", "profile", "price")
TARGET_MAX = 100_000_000
FRAGMENTS_MAX = 1_000_000
EVENT_ID_MAX = 2**63 - 1
WARMER_SILENT_SECONDS = 5.0
_OUTBOX = {
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "messaging.destination.name": "outbox",
}
_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}


def create_app(settings: Settings, state: State, cache: Cache, acceptance: Acceptance | None = None) -> Flask:
    """The Flask application on a state database and a cache."""
    acceptance = acceptance or Acceptance(state)
    app = Flask("shop", static_folder=None)
    # One byte more than allowed: a chunked body is cut there without an error, and `_body` must still refuse it.
    app.config["MAX_CONTENT_LENGTH"] = BODY_MAX + 1
    problems.install(app)
    hosts.guard(app)
    _time_requests(app)
    _add_fragments(app, settings, state, Layouts(cache))
    _add_events(app, state, acceptance)
    _add_invalidation_settings(app, state)
    _add_warming_settings(app, state)
    _add_operations(app, state, cache, acceptance)
    _answer_state_errors(app)
    return app


def create_operations(state: State, cache: Cache, acceptance: Acceptance | None = None) -> Flask:
    """Settings, health and metrics only, for a listener of their own: they do not queue behind reads that wait.

    The same paths are on the storefront's port, where they share its threads with all reads.
    """
    acceptance = acceptance or Acceptance(state)
    app = Flask("shop-operations", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = BODY_MAX + 1
    problems.install(app)
    hosts.guard(app)
    _add_invalidation_settings(app, state)
    _add_warming_settings(app, state)
    _add_operations(app, state, cache, acceptance)
    _answer_state_errors(app)
    return app


def _answer_state_errors(app: Flask) -> None:
    @app.errorhandler(StateError)
    def _state_failed(error: StateError) -> Response:
        return problem(503, str(error))


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(body) + "\n", status, content_type="application/json")


def _body() -> dict[str, Any]:
    """The request's JSON object; 413, 415 or 400 otherwise."""
    connection = request.environ.get("gunicorn.socket")
    if connection:  # a client that announces a body and sends none must not keep a thread
        connection.settimeout(BODY_S)
    try:
        data = request.get_data(cache=False)
    except (
        OSError,
        ParseException,
    ):  # what servers raise when chunks are malformed or end too soon
        raise Problem(400, "the body ends too soon, or its chunks are malformed") from None
    if len(data) > BODY_MAX:
        raise Problem(413, f"the body may have at most {BODY_MAX} bytes")
    if request.mimetype != "application/json":
        raise Problem(415, "the body must be application/json")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object")
    return value


def _only(body: dict[str, Any], *fields: str) -> None:
    for name in body:
        if name not in fields:
            raise Problem(400, f"unknown field {name[:64]!r}; known are {', '.join(fields)}")
    if not body:
        raise Problem(400, f"give at least one of {', '.join(fields)}")


def _whole_number(value: Any, field: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise Problem(400, f"{field} must be a whole number from {low} to {high}")
    return value


def _user(text: str) -> int:
    user = parse_user(text)
    if user is None:
        raise Problem(404, "no such user: an id is a whole number from 1 to 1000000000")
    return user


def _miss_cost_ms(usual: float) -> float:
    """Return the time (ms) to compute the fragment on a miss: the usual one, or that in the request."""
    text = request.args.get("miss_cost_ms")
    if text is None:
        return usual
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else MISS_COST_MAX_MS + 1
    if number > MISS_COST_MAX_MS:
        raise Problem(400, f"miss_cost_ms must be a whole number from 0 to {MISS_COST_MAX_MS}")
    return number


def _time_requests(app: Flask) -> None:
    @app.before_request
    def _start() -> None:
        g.started = time.perf_counter()

    @app.after_request
    def _end(response: Response) -> Response:
        rule = request.url_rule.rule if request.url_rule else "unmatched"
        method = request.method if request.method in _METHODS else "_OTHER"
        elapsed = time.perf_counter() - g.get("started", time.perf_counter())
        HTTP_DURATION.labels(method, rule, str(response.status_code)).observe(elapsed, exemplar())
        return response


def _add_fragments(app: Flask, settings: Settings, state: State, layouts: Layouts) -> None:
    page_names = fragment_names(settings.fragments_per_user)

    def compute(user: int, names: Sequence[str], cost_ms: float) -> dict[str, str]:
        # Stands for the work the cache saves: a few database queries and templates.
        time.sleep(cost_ms / 1000)
        return {name: render(user, name, settings.value_bytes) for name in names}

    @app.get("/users/<user>/fragments/<name>")
    def fragment(user: str, name: str) -> Response:
        number = _user(user)
        if not is_fragment_name(name):
            raise Problem(
                404,
                "no such fragment: a name is page-, cart- or offer-, then a-z, 0-9 or '-'; at most 64 characters",
            )
        cost_ms = _miss_cost_ms(settings.miss_cost_ms)
        since, cached = 0, None
        try:
            cache = layouts.at(state.invalidation())
            cached, since = cache.get_with_since(number, name)
            result = "miss" if cached is None else "hit"
        except (CacheUnavailable, StateError):
            result = "bypass"
        if cached is None:
            body = compute(number, [name], cost_ms)[name]
            if result == "miss":
                with suppress(CacheUnavailable):  # The answer does not depend on it.
                    cache.put(number, name, body, since)
        else:
            body = cached.decode(errors="replace")
        return answer(result, {"user": number, "name": name, "body": body})

    @app.get("/users/<user>/page")
    def page(user: str) -> Response:
        """Return the first part of a user's page: `SHOWN_AT_FIRST` fragments, read one after another.

        If one is not cached, the whole page is computed and cached at once.
        """
        number = _user(user)
        shown: dict[str, str] = {}
        result = "hit"
        try:
            cache = layouts.at(state.invalidation())
            for name in page_names[:SHOWN_AT_FIRST]:
                cached, since = cache.get_with_since(number, name)
                if cached is None:
                    result = "miss"
                    break
                shown[name] = cached.decode(errors="replace")
        except (CacheUnavailable, StateError):
            result = "bypass"
        if result != "hit":
            values = compute(number, page_names, settings.miss_cost_ms)
            shown = {name: values[name] for name in page_names[:SHOWN_AT_FIRST]}
            if result == "miss":
                with suppress(CacheUnavailable):
                    cache.put_all(number, values, since)
        return answer(result, {"user": number, "fragments": shown})

    def answer(result: str, body: dict[str, Any]) -> Response:
        CACHE_REQUESTS.labels(result).inc()
        response = _json(body)
        response.headers["Cache-Status"] = "shop; hit" if result == "hit" else f"shop; fwd={result}"
        return response

    @app.put("/users/<user>/fragments")
    def fragments(user: str) -> Response:
        """Cache a number of a user's fragments at once, as if each had been read."""
        number = _user(user)
        body = _body()
        _only(body, "count")
        count = _whole_number(body.get("count"), "count", 1, FRAGMENTS_MAX)
        try:
            layouts.at(state.invalidation()).put_many(number, count)
        except CacheUnavailable as error:
            raise Problem(503, f"the server did not take the fragments: {error}") from None
        return _json({"user": number, "count": count})


def _add_events(app: Flask, state: State, acceptance: Acceptance) -> None:
    @app.get(f"/users/<user>/events/<int(max={EVENT_ID_MAX}):event_id>")
    def event_state(user: str, event_id: int) -> Response:
        """The state of an event: pending or done. An event that was never accepted counts as done."""
        _user(user)
        return _json({"event": event_id, "state": "pending" if state.is_pending(event_id) else "done"})

    @app.post("/users/<user>/events")
    def event(user: str) -> tuple[Response, int]:
        number = _user(user)
        body = _body()
        _only(body, "type")
        kind = body.get("type")
        if kind not in EVENT_TYPES:
            raise Problem(400, f"type must be one of {', '.join(EVENT_TYPES)}")
        carrier: dict[str, str] = {}
        # A producer span here and a consumer span in the invalidator: Tempo needs the pair to draw the edge
        # web -> invalidator in the service graph.
        with trace.get_tracer(__name__).start_as_current_span(
            "send outbox", kind=trace.SpanKind.PRODUCER, attributes=_OUTBOX
        ):
            propagate.inject(carrier)
            accepted = acceptance.accept(number, str(kind), carrier.get("traceparent"))
        return _json({"event": accepted}), 202


def _add_invalidation_settings(app: Flask, state: State) -> None:
    def answer() -> dict[str, object]:
        mode = state.invalidation()
        return {"strategy": mode.strategy, "scan_count": mode.scan_count}

    @app.get("/settings/invalidation")
    def read_invalidation() -> Response:
        """The strategy in force, all strategies with a line on what each costs, and those that search all keys."""
        rows = STRATEGY_ROWS.items()
        costs = {name: row.costs for name, row in rows}
        return _json(
            answer() | {"strategies": costs, "searching": [name for name, row in rows if row.searches]}
        )

    @app.put("/settings/invalidation")
    def write_invalidation() -> Response:
        body = _body()
        _only(body, "strategy", "scan_count", "under_way")
        if "strategy" in body and body["strategy"] not in STRATEGY_NAMES:
            raise Problem(400, f"strategy must be one of {', '.join(STRATEGY_NAMES)}")
        if "scan_count" in body:
            _whole_number(body["scan_count"], "scan_count", 1, SCAN_COUNT_MAX)
        under_way = body.pop("under_way", "redo")
        if under_way not in UNDER_WAY:
            raise Problem(400, f"under_way must be one of {', '.join(UNDER_WAY)}")
        state.set_invalidation(body, late=under_way == "finish")
        return _json(answer())


def _add_warming_settings(app: Flask, state: State) -> None:
    def answer() -> Response:
        wanted, status = state.warming(), state.warming_status()
        # Until the warmer has seen the latest request its report is about an earlier one.
        seen = wanted.revision == status.revision
        error = status.error
        if time.time() - status.at > WARMER_SILENT_SECONDS and (status.at or wanted.target_keys):
            error = "the warmer is not running"
        return _json(
            {
                "target_keys": wanted.target_keys,
                "keys_per_second": wanted.keys_per_second,
                "keys": status.keys,
                "users": status.users,
                "state": status.state if seen else "filling",
                "error": error,
            }
        )

    @app.get("/settings/warming")
    def read_warming() -> Response:
        return answer()

    @app.put("/settings/warming")
    def write_warming() -> Response:
        body = _body()
        _only(body, "target_keys", "keys_per_second", "restart")
        if "target_keys" in body:
            _whole_number(body["target_keys"], "target_keys", 0, TARGET_MAX)
        rate = body.get("keys_per_second")
        # Compared without conversion: an int of hundreds of digits does not fit a float. NaN is in no range.
        if rate is not None and (type(rate) not in (int, float) or not 1 <= rate <= TARGET_MAX):
            raise Problem(400, f"keys_per_second must be null or a number from 1 to {TARGET_MAX}")
        restart = body.pop("restart", False)
        if type(restart) is not bool:
            raise Problem(400, "restart must be true or false")
        state.set_warming(body, restart)
        return answer()


def _add_operations(app: Flask, state: State, cache: Cache, acceptance: Acceptance) -> None:
    @app.get("/metrics")
    def metrics() -> Response:
        with suppress(StateError):  # metrics are needed most when the state fails
            show_strategy(state.invalidation().strategy)
        encode, content_type = encoder_for(request.headers.get("Accept", ""))
        return Response(encode(REGISTRY), content_type=content_type)

    @app.get("/healthz")
    def healthz() -> Response:
        return _json({"status": "ok"})

    @app.get("/readyz")
    def readyz() -> Response:
        acceptance.check()
        try:
            cache.ping()
        except CacheUnavailable as error:
            raise Problem(503, f"the server does not answer: {error}") from None
        return _json({"status": "ready"})
