"""Common parts of the processes: one-line errors, quiet logs, a metrics port."""

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import Gauge, start_http_server
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


def fail(message: str, code: int = 2) -> SystemExit:
    """Print one line on stderr; raise the result to end the process with ``code``."""
    print(" ".join(message.split()), file=sys.stderr, flush=True)
    return SystemExit(code)


class RareLog:
    """Logs at most one line a minute, with the number of suppressed lines. For errors that come by the thousand."""

    def __init__(self, logger: logging.Logger, every_seconds: float = 60.0) -> None:
        self._logger = logger
        self._every = every_seconds
        self._next = 0.0
        self._suppressed = 0

    def warning(self, message: str) -> None:
        """Log ``message`` or count it."""
        now = time.monotonic()
        if now < self._next:
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more like it in the last minute)" if self._suppressed else ""
        self._logger.warning("%s%s", " ".join(message.split())[:300], more)
        self._next, self._suppressed = now + self._every, 0


def setup_logging(name: str) -> logging.Logger:
    """Log to stderr, one line a record."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO)
    return logging.getLogger(name)


def serve_metrics(host: str, port: int, name: str) -> None:
    """Serve ``/metrics`` and print the address; port 0 takes a free one. A taken port ends the process with
    code 2.
    """
    try:
        server, _thread = start_http_server(port, host)
    except OSError as error:
        raise fail(f"{name}: cannot listen on {host}:{port}: {error.strerror or error}") from None
    print(f"{name}: metrics on http://{host}:{server.server_port}/metrics", flush=True)


def listen(host: str, port: int) -> socket.socket:
    """A listener; a taken port ends the process with code 2 and one line."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise fail(f"web: cannot listen on {host}:{port}: {error.strerror or error}") from None


BODY_S = 5.0
"""Seconds without a byte of a body that was announced; then the request is a 400, and its thread free again."""


class _Handler(WSGIRequestHandler):
    timeout = BODY_S


def serve_operations(app: "WSGIApplication", host: str, port: int) -> None:
    """Serve ``app`` from a background thread, each request in a thread of its own; port 0 takes a free port.

    A taken port ends the process with code 2.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    listener = listen(host, port)
    server = make_server(host, port, app, threaded=True, request_handler=_Handler, fd=listener.detach())
    threading.Thread(target=server.serve_forever, name="operations", daemon=True).start()
    print(f"web: settings, health and metrics at {host}, port {server.port}", flush=True)


def live_gauge(gauge: Gauge, read: Callable[[], float]) -> None:
    """Compute ``gauge`` on each scrape. If ``read`` fails the value is NaN, so that the scrape itself succeeds."""

    def value() -> float:
        try:
            return read()
        except Exception:
            return float("nan")

    gauge.set_function(value)
