"""Ties the load to Locust: its events, its shapes, its workers, and `/load` and `/metrics` on its web UI."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent  # type: ignore[import-untyped] # no type information in the package
from flask import Blueprint, Response, jsonify, request
from locust.env import Environment
from locust.event import Events
from locust.exception import RPCError
from locust.runners import MasterRunner, WorkerRunner
from locust.web import WebUI

from app import hosts
from loadtest.customers.load import BadLoad, Load, check_range, from_variable, stop
from loadtest.customers.metrics import exposition
from loadtest.customers.shapes import SPAWN_RATE, USERS, Growth, Hold
from loadtest.customers.users import KINDS

LONGEST_BODY = 4096
CHANGING = ("/stop", "/stats/reset")
"""Paths of Locust's own whose GET changes something."""
ORDERS, REPORT = "load-orders", "load-report"
SEND_EVERY_S = 1.0

View = Callable[[], Response]


class Controls:
    """Call `attach()` once, at the end of a file that Locust runs."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def attach(self, events: Events) -> None:
        """Listen to Locust's events (its event hooks have no types)."""
        events.init.add_listener(self._prepare)  # type: ignore[no-untyped-call] # see docstring
        events.test_start.add_listener(lambda **_: self._load.begin())  # type: ignore[no-untyped-call] # see docstring
        events.test_stop.add_listener(lambda **_: self._load.end())  # type: ignore[no-untyped-call] # see docstring
        events.request.add_listener(self._count)  # type: ignore[no-untyped-call] # see docstring

    def _prepare(self, environment: Environment, web_ui: WebUI | None, **_: Any) -> None:
        """Called when Locust has read its options and not started yet: prepare this process for its part."""
        runner = environment.runner
        if isinstance(runner, WorkerRunner):
            self._work(runner)
            return
        options = environment.parsed_options
        _check_host(environment.host, starts_now=bool(options and (options.headless or options.autostart)))
        if options is not None:  # Locust's own default is a single user
            options.num_users = options.num_users or USERS
            options.spawn_rate = options.spawn_rate or SPAWN_RATE
        if environment.shape_class is None:
            self._offer_shapes(environment)
        if isinstance(runner, MasterRunner):
            self._lead(runner)
        else:
            self._carry()
        if web_ui and web_ui.app:
            hosts.guard(web_ui.app, CHANGING)
            web_ui.app.before_request(lambda: _keeps_host(environment))
            web_ui.app.register_blueprint(self._routes(environment, web_ui))

    def _carry(self) -> None:
        for pace in self._load.paces.values():
            gevent.spawn(pace.run)

    def _lead(self, runner: MasterRunner) -> None:
        """Send the load to the workers after every change, and once a second, because workers come and go."""

        def send_orders() -> None:
            clients = runner.clients.ready + runner.clients.spawning + runner.clients.running
            workers = sorted((client.id for client in clients), key=runner.get_worker_index)
            for index, worker in enumerate(workers):
                part = {"orders": self._load.orders(), "index": index, "of": len(workers)}
                with suppress(RPCError):  # Locust repairs the connection, and the next message says the same
                    runner.send_message(ORDERS, part, worker)

        def keep_sending() -> None:
            while True:
                send_orders()
                gevent.sleep(SEND_EVERY_S)

        def include(client_id: str, data: dict[str, Any]) -> None:
            self._load.include(data[REPORT])

        self._load.on_change = send_orders
        runner.environment.events.worker_report.add_listener(include)  # type: ignore[no-untyped-call] # see `attach`
        runner.greenlet.spawn(keep_sending)

    def _work(self, runner: WorkerRunner) -> None:
        """Carry the part that the master sends, none before its first message; report with Locust's own statistics."""

        def follow(environment: Environment, msg: Any) -> None:
            self._load.follow(msg.data["orders"], msg.data["index"], msg.data["of"])

        def report(client_id: str, data: dict[str, Any]) -> None:
            data[REPORT] = self._load.drain()

        self._load.follow(self._load.orders(), 0, 0)
        runner.register_message(ORDERS, follow)
        runner.environment.events.report_to_master.add_listener(report)  # type: ignore[no-untyped-call] # see `attach`
        self._carry()

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

    def _count(self, name: str, response_time: float, exception: object, **_: Any) -> None:
        if name in KINDS:
            self._load.count(KINDS[name], response_time, exception is not None)

    def _routes(self, environment: Environment, web_ui: WebUI) -> Blueprint:
        def users() -> int:
            return environment.runner.user_count if environment.runner else 0

        def show() -> Response:
            return jsonify(self._load.describe(users()))

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
            self._load.reset()
            return show()

        def metrics() -> Response:
            body, content_type = exposition(
                self._load.counts_now(), users(), request.headers.get("Accept", "")
            )
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


def _keeps_host(environment: Environment) -> Response | None:
    """Return a refusal if the request would aim the load at another host than that of the command line."""
    if request.method != "POST" or not environment.host:
        return None
    users = request.get_json(force=True, silent=True) if request.path.endswith("/user") else None
    host = str((users if isinstance(users, dict) else request.form).get("host") or "")
    if host and host.rstrip("/") != environment.host.rstrip("/"):
        return _problem(f"the host is {environment.host}, as --host says; restart Locust for another")
    return None


def _step_seconds() -> float:
    found = from_variable(os.environ, "LOADTEST_STEP_SECONDS", lambda value: check_range(value, 1, 86_400))
    return 30.0 if found is None else found


def _problem(detail: str) -> Response:
    """A 400 by RFC 9457."""
    answer = jsonify(type="about:blank", title="Bad Request", status=400, detail=detail)
    answer.status_code = 400
    answer.mimetype = "application/problem+json"
    return answer
