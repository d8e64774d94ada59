"""The HTTP interfaces of the storefront and the control page, as OpenAPI 3.1: docs/openapi/, made by `make docs`.

Limits and names come from the code. Tests hold routes, methods and statuses against both applications, and send random
requests made from these files (`bench.fuzz`). Beside the answers of each operation, a path that does not exist is
answered with 404, a method that a path does not have with 405.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.fragments import AREAS, NAME_MAX, USER_MAX
from app.settings import SCAN_COUNT_MAX, STRATEGY_NAMES
from app.storefront import (
    EVENT_ID_MAX,
    EVENT_TYPES,
    FRAGMENTS_MAX,
    MISS_COST_MAX_MS,
    TARGET_MAX,
    UNDER_WAY,
)
from console.web import LEASE_MAX_S, RATE_MAX

FOLDER = Path("docs/openapi")
Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SERVER = "^[a-z0-9][a-z0-9-]{0,31}$"
PROBLEM = {"$ref": "#/components/schemas/Problem"}
MEANS = {
    400: "The body is malformed, or a value is wrong.",
    404: "There is no such thing.",
    409: "Not possible at present.",
    413: "The body is too long.",
    415: "The body is not application/json.",
    421: "Asked for under a name that the lab does not serve.",
    503: "A part that is needed does not answer.",
}
WITH_BODY = (400, 413, 415)


def _object(fields: Mapping[str, Schema], optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object with these fields and no others; all are required except the optional ones."""
    found: Schema = {"type": "object", "properties": dict(fields), "additionalProperties": False}
    required = [name for name in fields if name not in optional]
    return found | ({"required": required} if required else {}) | more


def _whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _parameter(name: str, place: str, schema: Schema, example: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "example": example}


def _operation(
    summary: str,
    answer: Schema | dict[str, Schema],
    problems: tuple[int, ...] = (),
    body: Schema | None = None,
    example: Any = None,
    status: int = 200,
) -> dict[str, Any]:
    """An operation. `answer`: a schema of JSON, or content type → schema. `body`, `example`: of the request."""
    content = answer if all("/" in kind for kind in answer) else {"application/json": answer}
    answers: dict[str, Any] = {
        str(status): {
            "description": "Done.",
            "content": {kind: {"schema": content[kind]} for kind in content},
        }
    }
    for code in sorted({*problems, *(WITH_BODY if body else ()), 421}):
        problem = {"application/problem+json": {"schema": PROBLEM}}
        answers[str(code)] = {"description": MEANS[code], "content": problem}
    found: dict[str, Any] = {"summary": summary}
    if body:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body, "example": example}},
        }
    return found | {"responses": answers}


def _description(title: str, said: str, paths: dict[str, Any]) -> dict[str, Any]:
    problem = _object(
        {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": {**TEXT, "minLength": 1}}
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1", "description": said},
        "paths": paths,
        "components": {"schemas": {"Problem": {**problem, "description": "RFC 9457"}}},
    }


METRICS = _operation(
    "Metrics for Prometheus, in the format that Accept asks for.",
    {"text/plain": TEXT, "application/openmetrics-text": TEXT},
)


def storefront() -> dict[str, Any]:
    """The description of the storefront."""
    user = _parameter("user", "path", _whole(1, USER_MAX), 42)
    name: Schema = {"type": "string", "pattern": f"^({'|'.join(AREAS)})-[a-z0-9-]+$", "maxLength": NAME_MAX}
    number = _whole(0, EVENT_ID_MAX)
    mode: Schema = {"strategy": {"enum": list(STRATEGY_NAMES)}, "scan_count": _whole(1, SCAN_COUNT_MAX)}
    names: Schema = {"type": "array", "items": TEXT}
    rate: Schema = {"type": ["number", "null"], "minimum": 1, "maximum": TARGET_MAX}
    target = _whole(0, TARGET_MAX)
    warming = _object(
        {
            "target_keys": target,
            "keys_per_second": rate,
            "keys": COUNT,
            "users": COUNT,
            "state": TEXT,
            "error": {"type": ["string", "null"]},
        }
    )
    status = _object({"status": TEXT})
    paths = {
        "/users/{user}/fragments/{name}": {
            "parameters": [
                user,
                _parameter("name", "path", name, "page-3"),
                _parameter("miss_cost_ms", "query", _whole(0, MISS_COST_MAX_MS), 1),
            ],
            "get": _operation(
                "A fragment of a user's page. The header Cache-Status says whether it was cached. `miss_cost_ms`: how "
                "long it takes to compute if it was not, in place of APP_MISS_COST_MS.",
                _object({"user": user["schema"], "name": TEXT, "body": TEXT}),
                (400, 404),
            ),
        },
        "/users/{user}/page": {
            "parameters": [user],
            "get": _operation(
                "What is seen first of a user's page. One that is not cached is computed and cached whole.",
                _object(
                    {
                        "user": user["schema"],
                        "fragments": {"type": "object", "additionalProperties": TEXT},
                    }
                ),
                (404,),
            ),
        },
        "/users/{user}/fragments": {
            "parameters": [user],
            "put": _operation(
                "Cache a number of a user's fragments at once, as if each had been read.",
                _object({"user": user["schema"], "count": COUNT}),
                (404, 503),
                _object({"count": _whole(1, FRAGMENTS_MAX)}),
                {"count": 3},
            ),
        },
        "/users/{user}/events/{event_id}": {
            "parameters": [user, _parameter("event_id", "path", number, 1)],
            "get": _operation(
                "Whether an event is still to be carried out. One that was never accepted counts as done.",
                _object({"event": number, "state": {"enum": ["pending", "done"]}}),
                (404, 503),
            ),
        },
        "/users/{user}/events": {
            "parameters": [user],
            "post": _operation(
                "Accept an event, after which none of the user's fragments may be served any more.",
                _object({"event": number}),
                (404, 503),
                _object({"type": {"enum": list(EVENT_TYPES)}}),
                {"type": EVENT_TYPES[0]},
                status=202,
            ),
        },
        "/settings/invalidation": {
            "get": _operation(
                "The strategy in force, and all strategies with a line on what each costs.",
                _object(
                    {
                        **mode,
                        "strategies": {"type": "object", "additionalProperties": TEXT},
                        "searching": names,
                    }
                ),
                (503,),
            ),
            "put": _operation(
                "Change the strategy, the COUNT of a SCAN, or both.",
                _object(mode),
                (503,),
                _object(
                    {**mode, "under_way": {"enum": list(UNDER_WAY)}},
                    ("strategy", "scan_count", "under_way"),
                    minProperties=1,
                ),
                {"strategy": "index"},
            ),
        },
        "/settings/warming": {
            "get": _operation("What the warmer is asked for, and how far it is.", warming, (503,)),
            "put": _operation(
                "Change how many keys the warmer fills the server with, and how fast.",
                warming,
                (503,),
                _object(
                    {"target_keys": target, "keys_per_second": rate, "restart": FLAG},
                    ("target_keys", "keys_per_second", "restart"),
                    minProperties=1,
                ),
                {"target_keys": 100},
            ),
        },
        "/metrics": {"get": METRICS},
        "/healthz": {"get": _operation("Whether the process answers.", status)},
        "/readyz": {
            "get": _operation(
                "Whether the server answers, and events can be accepted: the state database can be written.",
                status,
                (503,),
            )
        },
    }
    said = (
        "The service under observation. Settings, metrics and health are also on a port of their own "
        "(APP_OPERATIONS_PORT), where they do not queue behind reads. Whatever the path, a request line of more than "
        "4,094 bytes is answered with 414, and a header of more than 8,190 bytes with 431."
    )
    return _description("Storefront", said, paths)


def console() -> dict[str, Any]:
    """The description of the control page."""
    server = _parameter("name", "path", {"type": "string", "pattern": SERVER}, "valkey")
    part = _object({"part": TEXT, "done": FLAG, "said": TEXT})
    parts: Schema = {"type": "array", "items": part}
    state: Schema = {
        "type": "object",
        "required": ["name", "phase", "free", "status", "up", "strategy", "keys"],
    }
    switch, said = _object({"on": FLAG}), _object({"said": TEXT})
    pulled = _object({"said": TEXT, "parts": parts, "server": state})
    shown = {"servers": {"type": "array", "items": state}, "keys": COUNT, "story": {"enum": ["on", "off"]}}

    def lever(action: str, summary: str, body: Schema, example: Any) -> dict[str, Any]:
        done = _operation(summary, pulled, (404, 409), body, example)
        return {f"/api/servers/{{name}}/{action}": {"parameters": [server], "post": done}}

    def for_all(summary: str, answer: Schema = said, problems: tuple[int, ...] = ()) -> dict[str, Any]:
        return {"post": _operation(summary, answer, problems, _object({}), {})}

    paths = {
        "/": {"get": _operation("The page.", {"text/html": TEXT})},
        "/static/{filename}": {
            "parameters": [_parameter("filename", "path", TEXT, "page.css")],
            "get": _operation("A file of the page.", {"*/*": {}}, (404,)),
        },
        "/api/state": {
            "parameters": [_parameter("curves", "query", {"enum": ["0", "1"]}, "1")],
            "get": _operation(
                "All servers of the scene; `curves=1`: with their last minutes.", _object(shown)
            ),
        },
        "/metrics": {"get": METRICS},
        "/healthz": {
            "get": _operation("Whether an autopilot directs each server.", _object({"status": TEXT}), (503,))
        },
        **lever(
            "strategy",
            "Change the strategy: as a deploy does, or with `late` for later events only.",
            _object({"strategy": TEXT, "late": FLAG}, ("late",)),
            {"strategy": "index"},
        ),
        **lever("growth", "Start or stop the growth of keys.", switch, {"on": True}),
        **lever("over", "Send the scene over its edge, or bring it back.", switch, {"on": False}),
        **lever(
            "rate",
            "Change the event rate; null asks for the calibrated one.",
            _object({"events_per_second": {"type": ["number", "null"], "minimum": 0, "maximum": RATE_MAX}}),
            {"events_per_second": 3},
        ),
        **lever("restart", "Shut the server down; its supervisor starts it again, empty.", _object({}), {}),
        "/api/stop": for_all(
            "No events, no growth, on every server.", _object({"said": TEXT, "parts": parts})
        ),
        "/api/start": for_all("Tell the story from the beginning.", problems=(409,)),
        "/api/pause": {
            "post": _operation(
                "The autopilots change nothing for so long. 409: one is still at work after some seconds.",
                said,
                (409,),
                _object({"seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": LEASE_MAX_S}}),
                {"seconds": 60},
            )
        },
        "/api/resume": for_all("The autopilots go on."),
    }
    return _description("Control page", "What the page at / uses.", paths)


def files(root: Path) -> dict[Path, str]:
    """All files that this module makes: path → text."""
    made = {"storefront": storefront(), "console": console()}
    return {root / FOLDER / f"{name}.json": json.dumps(text, indent=1) + "\n" for name, text in made.items()}
