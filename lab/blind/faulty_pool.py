"""The storefront's web process with a connection pool and periodic work that follow orders on stdin.

Without an order the pool behaves as the storefront's own: it has as many connections as there are commands at once.
An order {`size`, `hold_s`, `wait_s`} limits it to `size` connections (0: no limit). A released connection then returns
to the pool only after `hold_s` seconds, as if its user kept it during some other work. A command that finds no free
connection waits at most `wait_s` seconds.

If the order has `sum_s` and `every_s`, a thread adds up numbers every `every_s` seconds. The interpreter does that in
one piece of about `sum_s`, in which no other thread of the process runs, so no page is served. A garbage collection, or
an extension that computes without releasing the interpreter's lock, has the same effect. The end of stdin ends the
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
"""Numbers that are added up to measure the time for one: a few milliseconds' work."""


class Housekeeping:
    """Adds up numbers now and then, in a thread of its own; each sum is one piece of work for the interpreter."""

    def __init__(self) -> None:
        self._sum_s = self._every_s = 0.0
        self._news = threading.Event()
        threading.Thread(target=self._work, name="pool", daemon=True).start()

    def follow(self, order: Order) -> None:
        """Follow an order from now on; an order without `every_s` ends the work."""
        self._sum_s, self._every_s = order.get("sum_s", 0.0), order.get("every_s", 0.0)
        self._news.set()

    def _work(self) -> None:
        while True:
            self._news.wait(self._every_s or None)
            self._news.clear()
            if self._every_s:
                sum(range(numbers(self._sum_s)))


def numbers(seconds: float) -> int:
    """Return how many numbers this machine adds up in `seconds` of CPU time."""
    began = time.thread_time()
    sum(range(TRIED))
    return round(TRIED * seconds / (time.thread_time() - began))


class FaultyPool(_Plain):  # type: ignore[misc] # redis-py's classes are hardly typed
    """A connection pool that follows orders."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._slots: threading.Semaphore | None = None
        self._wait_s = self._hold_s = 0.0
        self._held_back: list[tuple[float, int, Any]] = []
        self._changed = threading.Condition()
        self._slots_by_connection: dict[
            int, threading.Semaphore
        ] = {}  # by id, for connections taken under a limit
        self._housekeeping = Housekeeping()
        Inbox(self._follow)  # runs in the worker that serves, because gunicorn's master has already forked it
        threading.Thread(target=self._return_held_back, name="pool", daemon=True).start()

    def _follow(self, order: Order | None) -> None:
        if order is None:  # the session has ended: end gunicorn's master, and this worker with it
            os.kill(os.getppid(), signal.SIGTERM)
        elif order:
            self._hold_s, self._wait_s = order["hold_s"], order["wait_s"]
            self._slots = threading.Semaphore(order["size"]) if order["size"] else None
            self._housekeeping.follow(order)

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Return a connection. Raises redis-py's `ConnectionError` when none becomes free in time."""
        slots = self._slots
        if slots is None:
            return super().get_connection(*arguments, **options)
        if not slots.acquire(timeout=self._wait_s):
            raise redis.ConnectionError("No connection available.")
        try:
            connection = super().get_connection(*arguments, **options)
        except BaseException:
            slots.release()
            raise
        self._slots_by_connection[id(connection)] = slots
        return connection

    def release(self, connection: Any) -> None:
        """Return a connection to the pool: after `hold_s` if it was taken under a limit, else now."""
        if id(connection) not in self._slots_by_connection:
            super().release(connection)
            return
        with self._changed:
            heappush(self._held_back, (time.monotonic() + self._hold_s, id(connection), connection))
            self._changed.notify()

    def _return_held_back(self) -> None:
        while True:
            with self._changed:
                while not self._held_back:
                    self._changed.wait()
                left = self._held_back[0][0] - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                connection = heappop(self._held_back)[2]
            slots = self._slots_by_connection.pop(id(connection))
            super().release(connection)
            slots.release()


def main() -> None:
    """Serve, as `python -m gunicorn` would."""
    from gunicorn.app.wsgiapp import run

    redis.ConnectionPool = FaultyPool  # type: ignore[misc] # the storefront's cache asks for it by this name
    run(prog="gunicorn")


if __name__ == "__main__":
    main()
