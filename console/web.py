"""The HTTP side: the page, the interface it uses, metrics and health.

Every request that changes something is a POST with a JSON body. For a page of another site the browser asks before it
sends that content type (a CORS preflight), and never gets a permission. So such a page cannot steer the lab without the
participant. Nor can a site whose name points at this machine: see `app.hosts`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, redirect, render_template, request, send_from_directory
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from app import hosts
from app.exposition import encoder_for
from console import view
from console.config import SCAN_COUNT_MAX, Config
from console.levers import LEVER_S, PartResult, pull
from console.metrics import ControlMetrics
from console.server_control import Refused
from console.story import Story
from lab import ROOT
from lab.errors import StackError

BODY_MAX = 4096
RATE_MAX = 10_000.0
LEASE_MAX_S = 600.0
HANDS_OFF_S = 8.0
GUIDE = ROOT / "build" / "site"
"""The folder into which `make site` writes the pages of this repository."""


class BadRequest(Exception):
    """A malformed request; the message is a sentence."""


def create_app(stories: dict[str, Story], config: Config, metrics: ControlMetrics) -> Flask:
    """Return the Flask application on running stories."""
    app = Flask("console")
    app.config["MAX_CONTENT_LENGTH"] = BODY_MAX
    hosts.guard(app)
    _answer_problems(app)
    _add_reading(app, stories, config, metrics)
    _add_levers(app, stories)
    _add_for_all(app, stories)

    @app.after_request
    def _guard(response: Response) -> Response:
        # The site's theme has scripts, styles and small pictures inside its pages.
        inside = " 'unsafe-inline' data:" if request.path.startswith("/guide/") else ""
        response.headers["Content-Security-Policy"] = f"default-src 'self'{inside}; frame-ancestors 'none'"
        response.headers["X-Content-Type-Options"] = "nosniff"
        if not request.path.startswith("/static/"):
            response.headers["Cache-Control"] = "no-store"
        return response

    return app


def _json(body: Any, status: int = 200, kind: str = "application/json") -> Response:
    return Response(json.dumps(body) + "\n", status, content_type=kind)


def problem(status: int, detail: str) -> Response:
    """Return an error by RFC 9457; the status is the kind of problem."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return _json(body, status, "application/problem+json")


def _answer_problems(app: Flask) -> None:
    @app.errorhandler(BadRequest)
    def _bad(error: BadRequest) -> Response:
        return problem(400, str(error))

    @app.errorhandler(Refused)
    def _refused(error: Refused) -> Response:
        return problem(409, str(error))

    @app.errorhandler(StackError)
    def _scene(error: StackError) -> Response:
        return problem(502, str(error))

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        response = problem(error.code or 500, error.description or "")
        for name, value in error.get_headers():
            if name.lower() == "allow":
                response.headers[name] = value
        return response


def _add_reading(app: Flask, stories: dict[str, Story], config: Config, metrics: ControlMetrics) -> None:
    @app.get("/")
    def page() -> str:
        present = [story.control.server for story in _present(stories)]
        links = view.links(config, present)
        return render_template("page.html", links=links, config=config, has_guide=_has_guide())

    @app.get("/guide")
    @app.get("/guide/")
    @app.get("/guide/<path:name>")
    def guide(name: str = "") -> ResponseReturnValue:
        if not _has_guide():
            raise _Missing(
                "the guide is not here as a site: `make site` makes it if the page runs without Docker"
            )
        return send_from_directory(GUIDE, name) if name else redirect("/guide/index.html")

    @app.get("/api/state")
    def state() -> Response:
        controls = [story.control for story in stories.values()]
        return _json(view.scene(controls, config, with_curves=request.args.get("curves") == "1"))

    @app.get("/metrics")
    def show_metrics() -> Response:
        encode, content_type = encoder_for(request.headers.get("Accept", ""))
        return Response(encode(metrics.registry), content_type=content_type)

    @app.get("/healthz")
    def healthz() -> Response:
        dead = [name for name, story in stories.items() if not story.healthy]
        if dead:
            return problem(503, f"the story has stopped on {', '.join(dead)}")
        return _json({"status": "ok"})


def _add_levers(app: Flask, stories: dict[str, Story]) -> None:
    """Add the routes that change one server's scene."""

    def found(name: str) -> Story:
        story = stories.get(name)
        if story is None or story.control.phase == "absent":
            there = ", ".join(d.control.server for d in _present(stories)) or "none yet"
            raise _Missing(f"no server {name[:40]!r} here; there are: {there}")
        return story

    def done(story: Story, pulled: tuple[str, list[PartResult]]) -> Response:
        sentence, parts = pulled
        return _json({"said": sentence, "parts": _rows(parts), "server": view.server(story.control)})

    def yes_or_no(body: dict[str, Any], field: str) -> bool:
        value = body.get(field, False)
        if type(value) is not bool:
            raise BadRequest(f"{field} must be true or false")
        return value

    @app.post("/api/servers/<name>/strategy")
    def strategy(name: str) -> Response:
        story, body = found(name), _body("strategy", optional=("late",))
        there = story.control.strategies
        if not there:
            raise Refused(f"the strategies of the storefront on {name} are not known yet; try again")
        if body["strategy"] not in list(there):  # a list, because the value may be of any type
            raise BadRequest(f"strategy must be one of {', '.join(there)}")
        return done(story, story.control.switch(body["strategy"], yes_or_no(body, "late")))

    @app.post("/api/servers/<name>/growth")
    def growth(name: str) -> Response:
        story, body = found(name), _body("on")
        return done(story, story.control.grow(yes_or_no(body, "on")))

    @app.post("/api/servers/<name>/over")
    def over(name: str) -> Response:
        story, body = found(name), _body("on")
        return done(story, story.control.go_over(yes_or_no(body, "on")))

    @app.post("/api/servers/<name>/rate")
    def rate(name: str) -> Response:
        story, body = found(name), _body("events_per_second")
        wanted = body["events_per_second"]
        if wanted is not None:
            # Compared before conversion: an int of hundreds of digits does not fit a float. NaN is in no range.
            if type(wanted) not in (int, float) or not 0 <= wanted <= RATE_MAX:
                raise BadRequest(
                    f"events_per_second must be a number from 0 to {RATE_MAX:,.0f}, "
                    "or null for the planned rate"
                )
            wanted = float(wanted)
        return done(story, story.control.rate(wanted))

    @app.post("/api/servers/<name>/count")
    def count(name: str) -> Response:
        story, wanted = found(name), _body("scan_count")["scan_count"]
        if type(wanted) is not int or not 1 <= wanted <= SCAN_COUNT_MAX:
            raise BadRequest(f"scan_count must be a whole number from 1 to {SCAN_COUNT_MAX:,}")
        return done(story, story.control.count(wanted))

    @app.post("/api/servers/<name>/restart")
    def restart(name: str) -> Response:
        story = found(name)
        _body()
        return done(story, story.control.restart())


def _add_for_all(app: Flask, stories: dict[str, Story]) -> None:
    """Add the routes that change the scenes of all servers at once."""

    @app.post("/api/stop")
    def stop() -> Response:
        _body()
        parts = {story.control.server: story.halt for story in _present(stories)}
        parts_of: dict[str, list[PartResult]] = {}

        def halt(name: str) -> Callable[[], None]:
            return lambda: parts_of.__setitem__(name, parts[name]())

        every = pull({name: halt(name) for name in parts}, LEVER_S + 0.5)
        rows = [
            PartResult(f"{name} {one.part}", one.done, one.said)
            for name in parts
            for one in parts_of.get(name, ())
        ]
        rows += [one for one in every if one.part not in parts_of]
        missing = [f"{one.part}: {one.said}" for one in rows if not one.done]
        return _json(
            {"said": " ".join(["Everything stops: no events, no visits.", *missing]), "parts": _rows(rows)}
        )

    @app.post("/api/pause")
    def pause() -> Response:
        """Lease the scene to a run in the container `lab`. It goes on by itself if the run dies.

        `server`: the one that the run uses.
        """
        body = _body("seconds", optional=("server",))
        seconds, lent = body["seconds"], body.get("server")
        if type(seconds) not in (int, float) or not 0 < seconds <= LEASE_MAX_S:
            raise BadRequest(f"seconds must be a number above 0, at most {LEASE_MAX_S:.0f}")
        present = _present(stories)
        if lent is not None and lent not in [story.control.server for story in present]:
            raise BadRequest(f"server must be one of {', '.join(story.control.server for story in present)}")
        for story in present:
            story.lease(float(seconds), story.control.server == lent)
        end = time.monotonic() + HANDS_OFF_S
        for story in present:
            story.await_hands_off(max(0.0, end - time.monotonic()))
        return _json({"said": "The stories pause."})

    @app.post("/api/resume")
    def resume() -> Response:
        _body()
        for story in _present(stories):
            story.resume()
        return _json({"said": "The stories go on."})

    @app.post("/api/start")
    def start() -> Response:
        _body()
        begun = 0
        for story in _present(stories):
            try:
                story.begin()
                begun += 1
            except Refused:
                continue
        if not begun:
            raise Refused("The story is running already.")
        return _json({"said": "The story starts from the beginning."})


def _has_guide() -> bool:
    return (GUIDE / "index.html").is_file()


def _present(stories: dict[str, Story]) -> list[Story]:
    return [story for story in stories.values() if story.control.phase != "absent"]


class _Missing(HTTPException):
    code = 404


def _rows(parts: list[PartResult]) -> list[dict[str, Any]]:
    return [one.as_dict() for one in parts]


def _body(*fields: str, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the request's JSON object, which has exactly these fields, and perhaps the optional ones."""
    if request.mimetype != "application/json":
        raise _Unsupported("the body must be application/json")
    try:
        body = request.get_json(silent=True)
    except OSError:  # malformed chunks
        raise BadRequest("the body ends too soon, or its chunks are malformed") from None
    except RecursionError:  # thousands of brackets in brackets
        raise BadRequest("the body is not JSON") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    if set(body) - set(optional) != set(fields):
        raise BadRequest(f"the body must have exactly the fields: {', '.join(fields) or '(none)'}")
    return body


class _Unsupported(HTTPException):
    code = 415
