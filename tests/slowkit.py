"""Clients that send half a request and then nothing, and requests as bytes."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

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


def exchange(port: int, data: bytes) -> list[int]:
    """Send bytes, end the sending side, and return the status of each answer. Raises `TimeoutError` after `SOON_S`."""
    came = b""
    with socket.create_connection(("127.0.0.1", port), SOON_S) as connection:
        with suppress(ConnectionError):  # closed before all was read: it may have answered all the same
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := connection.recv(65536):
                came += part
    return [int(found) for found in re.findall(rb"(?m)^HTTP/1\.[01] ([0-9]{3})\b", came)]
