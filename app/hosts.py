"""Which names the lab's pages answer to, so that no page of another site can act on them or read them.

A site may point its own name at 127.0.0.1 once its page is open (DNS rebinding): for the browser the lab is then of the
same origin as that page. What the browser sends along tells: the Host header still has that name. Only names that
nobody else can point anywhere are served: IP literals, `localhost`, `*.localhost` (RFC 6761), `*.local` (RFC 6762, the
local link alone answers for it), and those in the variable ALLOWED_HOSTS, such as a container's name inside the stack.

Storefront, control page and Locust's pages all have it; nothing here knows any of them.
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
    """The names in the variable ALLOWED_HOSTS, which commas or spaces separate."""
    return frozenset(re.split(r"[,\s]+", os.environ.get(VARIABLE, "").strip().lower())) - {""}


def is_served(host: str, also: Collection[str]) -> bool:
    """Whether a Host header (with a port or without) has a name that nobody else can point at this machine."""
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
        detail = f"this is not served under the name {host[:80]!r}; a name that shall be served is one of {VARIABLE}"
        body = {"type": "about:blank", "title": "Misdirected Request", "status": 421, "detail": detail}
        data = (json.dumps(body) + "\n").encode()
        headers = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(data)))]
        start_response("421 Misdirected Request", headers)
        return [data]


def guard(app: Any) -> None:
    """Have a Flask application answer only to the names that are served."""
    serve: Callable[..., Iterable[bytes]] = app.wsgi_app
    app.wsgi_app = HostGuard(serve, named())
