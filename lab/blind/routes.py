"""Round trips on the routes of a scene: to the server, through the storefront's link, and to the storefront itself.

A few PINGs in a row measure a route's usual round trip (`pings_ms`). Many requests, spread over seconds, also meet the
moments in which nothing gets through, and their longest wait shows these moments (`WaitSampler`).
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
"""Seconds from an answer to the next request. A shorter moment in which nothing gets through may be missed."""
SERVER, LINK, WEB = "server", "link", "web"
CACHELESS = "/healthz"
"""A page for which the storefront reads neither its cache nor its disk."""


class Target(Protocol):
    """A scene's server and storefront."""

    @property
    def server(self) -> ServerObserver:
        """The observer's view of the server."""
        ...

    @property
    def web(self) -> Storefront:
        """The storefront."""
        ...


class Routes(Target, Protocol):
    """A scene with its three routes."""

    def link_url(self) -> str:
        """Return the URL of the link, through which the storefront reaches the server."""
        ...


def client(url: str) -> Any:
    """Return a client of the server that speaks RESP2 and waits at most 30 s for an answer.

    It returns INFO's values as text, because redis-py would convert some of them.
    """
    connection: Any = redis.Redis.from_url(
        url, protocol=2, driver_info=None, socket_timeout=30, decode_responses=True, encoding_errors="replace"
    )
    connection.set_response_callback("INFO", lambda text, **_: info.fields(text))
    return connection


def median_ping_ms(url: str) -> float:
    """Return the median round trip in ms of some PINGs on a connection of their own; infinite without an answer."""
    try:
        return pings_ms(url)[PINGS // 2]
    except redis.RedisError:
        return float("inf")


def pings_ms(url: str) -> list[float]:
    """Return the round trips in ms of some PINGs on a connection of their own, ascending. Raises `redis.RedisError`."""
    round_trips = []
    with contextlib.closing(client(url)) as connection:
        connection.ping()
        for _ in range(PINGS):
            began = time.perf_counter()
            connection.ping()
            round_trips.append((time.perf_counter() - began) * 1000)
    return sorted(round_trips)


def route_pings(scene: Routes) -> dict[str, Callable[[], object]]:
    """Return, for each route of a scene, a function that sends one request and waits for the answer."""
    return {
        SERVER: client(scene.server.url).ping,
        LINK: client(scene.link_url()).ping,
        WEB: lambda: scene.web.ready(CACHELESS),
    }


class WaitSampler:
    """Sends requests over each route, in a thread for each, and keeps the waits until `take`.

    A request whose connection fails is not counted.
    """

    def __init__(self, routes: Mapping[str, Callable[[], object]]) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._waits: dict[str, list[float]] = {name: [] for name in routes}
        for name, ping in routes.items():
            threading.Thread(target=self._sample, args=(name, ping), daemon=True).start()

    def _sample(self, name: str, ping: Callable[[], object]) -> None:
        while not self._ended.wait(EVERY_S):
            began = time.perf_counter()
            with contextlib.suppress(redis.RedisError):
                ping()
                with self._lock:
                    self._waits[name].append(1000 * (time.perf_counter() - began))

    def take(self) -> dict[str, list[float]]:
        """Return each route's waits in ms since the last call, ascending; none if no answer has come since."""
        with self._lock:
            taken, self._waits = self._waits, {name: [] for name in self._waits}
        return {name: sorted(waits) for name, waits in taken.items()}

    def close(self) -> None:
        """Send no more requests."""
        self._ended.set()
