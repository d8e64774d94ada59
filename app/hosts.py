"""Guards the lab's pages: no page of another site may read the lab or act on it.

A site may point its own name at 127.0.0.1 once its page is open (DNS rebinding). To the browser the lab then has the
same origin as that page, but the Host header still carries the site's name. So only names that no other site can
redirect are served: IP literals, `localhost`, `*.localhost` (RFC 6761), this machine's own name under `.local`, and
those in the variable ALLOWED_HOSTS, such as a container's name inside the stack. (Another machine in the same network
could answer for any other name under `.local`.)

A page of another site may send a form, or ask for leave to send more (CORS). So a request that changes something is
refused when its Origin or Sec-Fetch-Site says that it comes from elsewhere, and no answer gives leave. A program sends
neither header.

The storefront, the control page and Locust's pages all use this module; it depends on none of them.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

VARIABLE = "ALLOWED_HOSTS"
OWN = f"{socket.gethostname().partition('.')[0].lower()}.local"
"""This machine's name by mDNS: it defends it against others."""
_PORT = re.compile(r":[0-9]*\Z")


def named() -> frozenset[str]:
    """The names in the variable ALLOWED_HOSTS, separated by commas or spaces."""
    return frozenset(re.split(r"[,\s]+", os.environ.get(VARIABLE, "").strip().lower())) - {""}


def is_served(host: str, also: Collection[str]) -> bool:
    """True if a Host header (with or without a port) names one of `also`, or a name that no other site can redirect."""
    name = _PORT.sub("", host.strip()).lower().removesuffix(".")
    if name in ("localhost", OWN) or name.endswith(".localhost") or name in also:
        return True
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


def is_from_elsewhere(environ: WSGIEnvironment, also: Collection[str]) -> bool:
    """True if a browser sends this request for a page of another origin than the Host, or the names `also`."""
    if environ.get("HTTP_SEC_FETCH_SITE", "none") not in ("none", "same-origin"):
        return True
    origin = environ.get("HTTP_ORIGIN")
    if origin is None:
        return False
    place = str(origin).rpartition("://")[2].lower()
    return place != str(environ.get("HTTP_HOST", "")).lower() and _PORT.sub("", place) not in also


class Guard:
    """A WSGI application that passes on permitted requests.

    Names that are not served get 421, requests from elsewhere that change something 403: all but GET and HEAD, and the
    paths `changing`. Answers give no other origin leave to read them. A request without a Host header is passed on:
    HTTP/1.0 has none, and every browser sends one.
    """

    def __init__(
        self, application: WSGIApplication, also: Collection[str], changing: Collection[str] = ()
    ) -> None:
        self._application = application
        self._also, self._changing = also, changing

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", ""))
        if host and not is_served(host, self._also):
            return _problem(
                start_response,
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this page is not served under the name {host[:80]!r}; to allow it, add the name to {VARIABLE}",
            )
        changes = environ["REQUEST_METHOD"] not in ("GET", "HEAD") or environ["PATH_INFO"] in self._changing
        if changes and is_from_elsewhere(environ, self._also):
            return _problem(start_response, HTTPStatus.FORBIDDEN, "a page of another site may not do this")

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            own = [row for row in headers if not row[0].lower().startswith("access-control-")]
            return start_response(status, own, *error)

        return self._application(environ, start)


def _problem(start_response: StartResponse, status: HTTPStatus, detail: str) -> list[bytes]:
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    data = (json.dumps(body) + "\n").encode()
    headers = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(data)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return [data]


def guard(app: Any, changing: Collection[str] = ()) -> None:
    """Make a Flask application answer as `Guard` says; `changing` are the paths whose GET changes something."""
    serve: Callable[..., Iterable[bytes]] = app.wsgi_app
    app.wsgi_app = Guard(serve, named(), changing)
