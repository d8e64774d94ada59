"""Holds an application against its OpenAPI description: the routes of both, and an answer with each status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
from flask import Flask
from flask.testing import FlaskClient

ROOT = Path(__file__).resolve().parents[1]
IMPLIED = {"HEAD", "OPTIONS"}
"""Methods that Flask adds to every route."""
NOBODY = {"user": "0", "name": "nobody", "filename": "nothing.css", "event_id": "1"}
"""Values of path parameters that lead nowhere."""


def description(name: str) -> dict[str, Any]:
    """The committed description."""
    found: dict[str, Any] = json.loads((ROOT / "docs" / "openapi" / f"{name}.json").read_text())
    return found


def routes(app: Flask) -> set[tuple[str, str]]:
    """(method, path) of every route of an application, with the path as OpenAPI writes it."""
    return {
        (method, re.sub(r"<(?:[^<>]*:)?(\w+)>", r"{\1}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - IMPLIED
    }


def described(found: dict[str, Any]) -> set[tuple[str, str]]:
    """(method, path) of every operation of a description."""
    return {
        (method.upper(), path)
        for path, item in found["paths"].items()
        for method in item
        if method != "parameters"
    }


def statuses(found: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """(method, path, status) of every answer of a description, in its order."""
    for path, item in found["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield from ((method.upper(), path, int(status)) for status in operation["responses"])


def ask(client: FlaskClient, found: dict[str, Any], method: str, path: str, status: int) -> Any:
    """The answer to the request that the examples make; for a status of the request's own fault, with that fault."""
    item = found["paths"][path]
    given = item.get("parameters", ())
    values = {one["name"]: str(one["example"]) for one in given}
    if status == 404:
        values |= {name: NOBODY[name] for name in values if name in NOBODY}
    if status == 400:
        values |= {one["name"]: "x" for one in given if one["in"] == "query"}
    address = re.sub(r"\{(\w+)\}", lambda name: values.pop(name[1]), path)
    asked: dict[str, Any] = {"query_string": values}
    if "requestBody" in item[method.lower()]:
        example = item[method.lower()]["requestBody"]["content"]["application/json"]["example"]
        faulty = {400: "{", 413: " " * 5000}
        asked["data"] = faulty.get(status) or json.dumps(example)
        asked["content_type"] = "text/plain" if status == 415 else "application/json"
    if status == 421:
        asked["headers"] = {"Host": "evil.example"}
    return client.open(address, method=method, **asked)


def complaint(found: dict[str, Any], method: str, path: str, status: int, answer: Any) -> str:
    """What is wrong with an answer that ought to have this status; '' if it is as described."""
    where = f"{method} {path} {status}"
    if answer.status_code != status:
        return f"{where}: it was {answer.status_code} {answer.get_data(as_text=True)[:200]}"
    content = found["paths"][path][method.lower()]["responses"][str(status)]["content"]
    if answer.mimetype not in content:
        return "" if "*/*" in content else f"{where}: it was {answer.mimetype}"
    if not answer.mimetype.endswith("json"):
        return ""
    schema = {**content[answer.mimetype]["schema"], "components": found["components"]}
    errors = jsonschema.Draft202012Validator(schema).iter_errors(answer.get_json())
    return "; ".join(f"{where}: {error.message[:200]}" for error in errors)
