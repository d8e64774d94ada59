"""Errors as RFC 9457 problem documents."""

import json
from http import HTTPStatus

from flask import Flask, Response
from werkzeug.exceptions import HTTPException


class Problem(Exception):
    """Raised by a view to answer with a problem document."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem(status: int, detail: str) -> Response:
    """The document as a response. ``type`` is about:blank: the status says what kind of problem it is."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    return Response(json.dumps(body) + "\n", status, content_type="application/problem+json")


def install(app: Flask) -> None:
    """Answer every error of ``app`` with a problem document."""

    @app.errorhandler(Problem)
    def _problem(error: Problem) -> Response:
        return problem(error.status, error.detail)

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        response = problem(error.code or 500, error.description or "")
        for name, value in error.get_headers():
            if name.lower() == "allow":
                response.headers[name] = value
        return response

    @app.errorhandler(Exception)
    def _unexpected(error: Exception) -> Response:
        app.logger.exception("unexpected error")
        return problem(500, "unexpected error; the log has the details")
