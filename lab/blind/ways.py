"""How long the ways of a scene take: to the server, through the storefront's link, and to the storefront itself.

A few PINGs in a row say how long a way is (`pings_ms`). Many questions, spread over seconds, also meet the moments in
which nothing gets through; the longest wait tells of them (`Waits`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import redis

from lab.server.http import Storefront
from lab.server.server_stats import ServerObserver
from loadtest import info

PINGS = 9
EVERY_S = 0.1
"""Seconds from an answer to the next question; a moment in which nothing gets through has to last longer to be seen."""
SERVER, LINK, WEB = "server", "link", "web"
CACHELESS = "/healthz"
"""A page for which the storefront asks neither its cache nor its disk."""


class Ways(Protocol):
    """A scene with its three ways."""

    @property
    def server(self) -> ServerObserver:
        """The observer's view of the server."""
        ...

    @property
    def web(self) -> Storefront:
        """The storefront."""
        ...

    def link_url(self) -> str:
        """URL of the link, through which the storefront reaches the server."""
        ...


def client(url: str) -> Any:
    """A client of the server that speaks RESP2 and waits at most 30 s for an answer.

    It keeps INFO as text: redis-py would convert some figures in its own way.
    """
    found: Any = redis.Redis.from_url(
        url, protocol=2, driver_info=None, socket_timeout=30, decode_responses=True, encoding_errors="replace"
    )
    found.set_response_callback("INFO", lambda text, **_: info.fields(text))
    return found


def median_ms(url: str) -> float:
    """Median round trip in ms of some PINGs on a connection of their own; infinite without an answer."""
    try:
        return pings_ms(url)[PINGS // 2]
    except redis.RedisError:
        return float("inf")


def pings_ms(url: str) -> list[float]:
    """Round trips in ms of some PINGs on a connection of their own, ascending. Raises `redis.RedisError`."""
    taken = []
    with contextlib.closing(client(url)) as asking:
        asking.ping()
        for _ in range(PINGS):
            began = time.perf_counter()
            asking.ping()
            taken.append((time.perf_counter() - began) * 1000)
    return sorted(taken)


def asking(scene: Ways) -> dict[str, Callable[[], object]]:
    """For each way of a scene a function that asks once and waits for the answer."""
    return {
        SERVER: client(scene.server.url).ping,
        LINK: client(scene.link_url()).ping,
        WEB: lambda: scene.web.ready(CACHELESS),
    }


class Waits:
    """Asks each way again and again, in a thread of its own, and keeps the waits until they are taken.

    A question that gets no answer because nobody listens any more counts for nothing.
    """

    def __init__(self, ways: Mapping[str, Callable[[], object]]) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._taken: dict[str, list[float]] = {name: [] for name in ways}
        for name, ask in ways.items():
            threading.Thread(target=self._ask, args=(name, ask), daemon=True).start()

    def _ask(self, name: str, ask: Callable[[], object]) -> None:
        while not self._ended.wait(EVERY_S):
            began = time.perf_counter()
            with contextlib.suppress(redis.RedisError):
                ask()
                with self._lock:
                    self._taken[name].append(1000 * (time.perf_counter() - began))

    def take(self) -> dict[str, list[float]]:
        """Each way's waits in ms since the last call, ascending; none if no answer has come meanwhile."""
        with self._lock:
            taken, self._taken = self._taken, {name: [] for name in self._taken}
        return {name: sorted(waits) for name, waits in taken.items()}

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()
