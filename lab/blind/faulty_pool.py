"""The storefront's web process with a connection pool and a piece of work beside the pages that follow orders on stdin.

Without an order the pool behaves as the storefront's own: it has as many connections as there are commands at once.
An order {`size`, `hold_s`, `wait_s`} limits it to `size` connections (0: no limit). A released connection then returns
to the pool only after `hold_s` seconds, as if its user kept it to the end of some other work. A command that finds no
free connection waits at most `wait_s` seconds.

If the order has `sum_s` and `every_s`, a thread adds up numbers every `every_s` seconds. The interpreter does that in
one piece of about `sum_s`, in which no other thread of the process runs: no page is served. A collection of garbage, or
an extension that computes without releasing the interpreter's lock, does the same. The end of stdin ends the
storefront.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from heapq import heappop, heappush
from typing import Any

import redis

from lab.blind.inbox import Inbox, Order

_Plain: Any = redis.ConnectionPool
TRIED = 200_000
"""How many numbers are added up to find out how long one takes: a few milliseconds' work."""


class Housekeeping:
    """Adds up numbers now and then, in a thread of its own; each sum is one piece of work for the interpreter."""

    def __init__(self) -> None:
        self._sum_s = self._every_s = 0.0
        self._news = threading.Event()
        threading.Thread(target=self._keep, name="pool", daemon=True).start()

    def follow(self, order: Order) -> None:
        """Follow an order from now on; one without `every_s` ends the work."""
        self._sum_s, self._every_s = order.get("sum_s", 0.0), order.get("every_s", 0.0)
        self._news.set()

    def _keep(self) -> None:
        while True:
            self._news.wait(self._every_s or None)
            self._news.clear()
            if self._every_s:
                sum(range(numbers(self._sum_s)))


def numbers(seconds: float) -> int:
    """How many numbers this machine adds up in that time, if the thread has a core."""
    began = time.thread_time()
    sum(range(TRIED))
    return round(TRIED * seconds / (time.thread_time() - began))


class Pool(_Plain):  # type: ignore[misc] # redis-py's classes have no types worth the name
    """A connection pool that follows orders."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._places: threading.Semaphore | None = None
        self._wait_s = self._hold_s = 0.0
        self._late: list[tuple[float, int, Any]] = []
        self._given = threading.Condition()
        self._owing: dict[
            int, threading.Semaphore
        ] = {}  # by the connection's id: the limit under which it was taken
        self._housekeeping = Housekeeping()
        Inbox(self._hear)  # runs in the worker that serves, because gunicorn's master has already forked it
        threading.Thread(target=self._give_back, name="pool", daemon=True).start()

    def _hear(self, order: Order | None) -> None:
        if order is None:  # the session is gone: end gunicorn's master, and this worker with it
            os.kill(os.getppid(), signal.SIGTERM)
        elif order:
            self._hold_s, self._wait_s = order["hold_s"], order["wait_s"]
            self._places = threading.Semaphore(order["size"]) if order["size"] else None
            self._housekeeping.follow(order)

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Return a connection. Raises redis-py's `ConnectionError` when none becomes free in time."""
        places = self._places
        if places is None:
            return super().get_connection(*arguments, **options)
        if not places.acquire(timeout=self._wait_s):
            raise redis.ConnectionError("No connection available.")
        try:
            connection = super().get_connection(*arguments, **options)
        except BaseException:
            places.release()
            raise
        self._owing[id(connection)] = places
        return connection

    def release(self, connection: Any) -> None:
        """Give a connection back: after `hold_s` if it was taken under a limit, else now."""
        if id(connection) not in self._owing:
            super().release(connection)
            return
        with self._given:
            heappush(self._late, (time.monotonic() + self._hold_s, id(connection), connection))
            self._given.notify()

    def _give_back(self) -> None:
        while True:
            with self._given:
                while not self._late:
                    self._given.wait()
                left = self._late[0][0] - time.monotonic()
                if left > 0:
                    self._given.wait(left)
                    continue
                connection = heappop(self._late)[2]
            places = self._owing.pop(id(connection))
            super().release(connection)
            places.release()


def main() -> None:
    """Serve, as `python -m gunicorn` would."""
    from gunicorn.app.wsgiapp import run

    redis.ConnectionPool = Pool  # type: ignore[misc] # the storefront's cache asks for it by this name
    run(prog="gunicorn")


if __name__ == "__main__":
    main()
