"""An HTTP server on a free port of this machine, for stand-ins: a subclass says what it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    """A request as it came. `target`: path and query. `headers`: by their names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def body(self) -> Any:
        """The content as JSON; None without content."""
        return json.loads(self.content) if self.content else None


@dataclass(frozen=True)
class Answer:
    """An answer. Text and bytes are sent as they are, anything else as JSON."""

    content: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The content as it is sent."""
        if isinstance(self.content, bytes):
            return self.content
        return (self.content if isinstance(self.content, str) else json.dumps(self.content)).encode()


class HttpStandIn:
    """Listens from its creation until `close`. `url` is its address, without a slash at the end."""

    def __init__(self) -> None:
        standin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.command, self.path, headers, self.rfile.read(length))
                reply = standin.answer(request)
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(reply.data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.data)

            do_HEAD = do_POST = do_PUT = do_OPTIONS = do_GET

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = (
                128  # with the usual five a burst of new connections waits a second for the next try
            )

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def answer(self, request: Request) -> Answer:
        """The answer to a request. Requests of several connections come at the same time."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
