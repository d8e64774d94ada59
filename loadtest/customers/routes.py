"""Ties the load to Locust: its events, its shapes, and `/load` and `/metrics` on its web UI."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request
from locust import User
from locust.env import Environment
from locust.event import Events
from locust.runners import MasterRunner, WorkerRunner
from locust.web import WebUI

from app import hosts
from loadtest.customers.load import EVENTS_NAME, READS_NAME, BadLoad, Load, check_range, number, stop
from loadtest.customers.metrics import exposition
from loadtest.customers.shapes import SPAWN_RATE, USERS, Growth, Hold
from loadtest.customers.team import Alone, Master, Team, Worker, share_users_out

LONGEST_BODY = 4096

View = Callable[[], Response]


class Controls:
    """Call `attach()` once, at the end of a locustfile. `reads` and `events` are the users that carry each: a master
    must know them.
    """

    def __init__(self, load: Load, reads: type[User], events: type[User]) -> None:
        self._load = load
        self._carriers = {READS_NAME: reads.__name__, EVENTS_NAME: events.__name__}

    def attach(self, events: Events) -> None:
        """Listen to Locust's events (its event hooks have no types)."""
        events.init.add_listener(self._prepare)  # type: ignore[no-untyped-call] # see docstring
        events.test_start.add_listener(lambda **_: self._load.begin())  # type: ignore[no-untyped-call] # see docstring
        events.test_stop.add_listener(lambda **_: self._load.end())  # type: ignore[no-untyped-call] # see docstring
        events.request.add_listener(self._count)  # type: ignore[no-untyped-call] # see docstring

    def _prepare(self, environment: Environment, web_ui: WebUI | None, **_: Any) -> None:
        """Called when Locust has read its options and not started yet: prepare this process for its part."""
        if isinstance(environment.runner, WorkerRunner):
            self._worker = Worker(self._load, environment.runner)
            return
        options = environment.parsed_options
        _check_host(environment.host, starts_now=bool(options and (options.headless or options.autostart)))
        if options is not None:  # Locust's own default is a single user
            options.num_users = options.num_users or USERS
            options.spawn_rate = options.spawn_rate or SPAWN_RATE
        self._offer_shapes(environment)
        runner = environment.runner
        team: Team = Alone(self._load)
        if isinstance(runner, MasterRunner):
            share_users_out(runner)
            team = Master(self._load, runner, self._carriers)
        if web_ui and web_ui.app:
            hosts.guard(web_ui.app)
            web_ui.app.register_blueprint(self._routes(environment, web_ui, team))

    def _offer_shapes(self, environment: Environment) -> None:
        shapes = {"Growth": Growth(self._load, step_seconds=_step_seconds()), "Hold": Hold(self._load)}
        environment.available_shape_classes = {**(environment.available_shape_classes or {}), **shapes}
        wanted = os.environ.get("LOADTEST_SHAPE", "").strip()
        if not wanted:
            return
        if wanted.capitalize() not in shapes:
            stop(f"LOADTEST_SHAPE: no such shape: {wanted} (there are growth, hold)")
        environment.shape_class = shapes[wanted.capitalize()]
        environment.shape_class.runner = environment.runner

    def _count(self, request_type: str, response_time: float, exception: object, **_: Any) -> None:
        kind = READS_NAME if request_type == "GET" else EVENTS_NAME
        self._load.count(kind, response_time, exception is not None)

    def _routes(self, environment: Environment, web_ui: WebUI, team: Team) -> Blueprint:
        def users() -> int:
            return environment.runner.user_count if environment.runner else 0

        def show() -> Response:
            return jsonify(self._load.describe(users(), team.results()))

        def change() -> Response:
            values = _small_object()
            if values is None:
                return _problem("the body must be a small JSON object")
            try:
                self._load.change(values)
            except BadLoad as error:
                return _problem(str(error))
            return show()

        def reset() -> Response:
            team.reset()
            return show()

        def metrics() -> Response:
            body, content_type = exposition(team.counts(), users(), request.headers.get("Accept", ""))
            return Response(body, content_type=content_type)

        # With --web-login only those who signed in may touch the load.
        guarded: Callable[[View], View] = web_ui.auth_required_if_enabled
        routes = Blueprint("load", __name__)
        routes.add_url_rule("/load", "show", guarded(show), methods=["GET"])
        routes.add_url_rule("/load", "change", guarded(change), methods=["PUT"])
        routes.add_url_rule("/load/reset", "reset", guarded(reset), methods=["POST"])
        routes.add_url_rule("/metrics", "metrics", metrics, methods=["GET"])  # Prometheus does not sign in
        return routes


def _small_object() -> dict[str, Any] | None:
    """The request's JSON object; None for anything else, and for a body longer than `LONGEST_BODY`, chunked or not."""
    try:
        data = request.stream.read(LONGEST_BODY + 1)
        value = json.loads(data) if request.is_json and len(data) <= LONGEST_BODY else None
    except (OSError, ValueError, RecursionError):  # malformed chunks; no JSON; brackets in brackets
        return None
    return value if isinstance(value, dict) else None


def _check_host(host: str | None, *, starts_now: bool) -> None:
    """End the process if the host is missing or incomplete: Locust would start, and fail each request."""
    if host is None and starts_now:
        stop("--host is missing: where is the storefront? For instance --host http://127.0.0.1:8000")
    if host is not None and not host.startswith(("http://", "https://")):
        stop(f"--host must begin with http:// or https://: {host}")


def _step_seconds() -> float:
    text = os.environ.get("LOADTEST_STEP_SECONDS", "").strip()
    try:
        return check_range(number(text), 1, 86_400) if text else 30.0
    except BadLoad as error:
        stop(f"LOADTEST_STEP_SECONDS: {error}")


def _problem(detail: str) -> Response:
    """A 400 by RFC 9457."""
    answer = jsonify(type="about:blank", title="Bad Request", status=400, detail=detail)
    answer.status_code = 400
    answer.mimetype = "application/problem+json"
    return answer
