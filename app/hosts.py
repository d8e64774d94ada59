"""The host names that the lab's pages answer to: no page of another site may read the lab or act on it.

A site may point its own name at 127.0.0.1 once its page is open (DNS rebinding). To the browser the lab then has the
same origin as that page, but the Host header still carries the site's name. So only names that nobody else can point
anywhere are served: IP literals, `localhost`, `*.localhost` (RFC 6761), `*.local` (RFC 6762: only the local link
answers for it), and those in the variable ALLOWED_HOSTS, such as a container's name inside the stack.

The storefront, the control page and Locust's pages all use this module; it depends on none of them.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

VARIABLE = "ALLOWED_HOSTS"
LOCAL = (".localhost", ".local")
_PORT = re.compile(r":[0-9]*\Z")


def named() -> frozenset[str]:
    """The names in the variable ALLOWED_HOSTS, separated by commas or spaces."""
    return frozenset(re.split(r"[,\s]+", os.environ.get(VARIABLE, "").strip().lower())) - {""}


def is_served(host: str, also: Collection[str]) -> bool:
    """True if a Host header (with or without a port) names one of `also`, or a name nobody else can point here."""
    name = _PORT.sub("", host.strip()).lower().removesuffix(".")
    if name == "localhost" or name.endswith(LOCAL) or name in also:
        return True
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


class HostGuard:
    """A WSGI application that passes on requests for names that are served, and answers others with 421.

    A request without a Host header is passed on: HTTP/1.0 has none, and every browser sends one.
    """

    def __init__(self, application: WSGIApplication, also: Collection[str]) -> None:
        self._application = application
        self._also = also

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        host = str(environ.get("HTTP_HOST", ""))
        if not host or is_served(host, self._also):
            return self._application(environ, start_response)
        detail = (
            f"this page is not served under the name {host[:80]!r}; to allow it, add the name to {VARIABLE}"
        )
        body = {"type": "about:blank", "title": "Misdirected Request", "status": 421, "detail": detail}
        data = (json.dumps(body) + "\n").encode()
        headers = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(data)))]
        start_response("421 Misdirected Request", headers)
        return [data]


def guard(app: Any) -> None:
    """Make a Flask application answer only to the names that are served."""
    serve: Callable[..., Iterable[bytes]] = app.wsgi_app
    app.wsgi_app = HostGuard(serve, named())
