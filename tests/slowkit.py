"""Clients that send half a request and then nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

CLIENTS = 300
SOON_S = 5.0
"""Seconds for some answers, far more than they take on a busy machine: without a way of their own they would wait until
half a request is given up, which takes the storefront as long, or for ever."""


@contextmanager
def slow_clients(port: int, what: str, request: str) -> Iterator[None]:
    """Open `CLIENTS` connections, each with half the headers or half the body of a request; close them at the end."""
    half = f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    if what == "bodies":
        half += 'Content-Length: 100\r\n\r\n{"half": '
    with ExitStack() as opened:
        for _ in range(CLIENTS):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            client.sendall(half.encode())
        yield
