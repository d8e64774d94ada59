"""A stand-in for a cache server that is no server: its clock is wrong, or it stands for a proxy that knows no TIME."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import hiredis

Says = Callable[[], bytes | None]
"""The answer to TIME; None hangs up."""


def ahead(seconds: float, step_us: int = 1) -> Says:
    """A clock that is so far ahead of this machine's, and is told in steps of so many microseconds."""

    def say() -> bytes:
        there = int((time.time() + seconds) * 1_000_000) // step_us * step_us
        words = [str(there // 1_000_000), str(there % 1_000_000)]
        return b"*2\r\n" + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)

    return say


class RespStandIn:
    """Listens from its creation until `close`. Answers GET with a value and all else but TIME with OK."""

    def __init__(self, says: Says, host: str = "127.0.0.1") -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                reader: Any = hiredis.Reader()
                while data := self.request.recv(65536):
                    reader.feed(data)
                    while (asked := reader.gets()) is not False:
                        answer = _answer(asked[0].upper(), says)
                        if answer is None:
                            return
                        self.request.sendall(answer)

        class Listener(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that went away is no failure of the test."""

        self._server = Listener((host, 0), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"redis://{host}:{self.port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answer(name: bytes, says: Says) -> bytes | None:
    if name == b"TIME":
        return says()
    return b"$5\r\nvalue\r\n" if name == b"GET" else b"+OK\r\n"
