"""The orders that a program of the scene gets on stdin: one JSON object a line; only the newest counts."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any

Order = dict[str, Any]


class Inbox:
    """Reads stdin in a thread of its own. The end of stdin counts as the order to end (None)."""

    def __init__(self, on_order: Callable[[Order | None], None] | None = None) -> None:
        """`on_order` is called in the reading thread with each order, and with None at the end of stdin."""
        self._on_order = on_order
        self._news = threading.Event()
        self._newest: Order | None = {}
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(0, 65536)
            except OSError:
                data = b""
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                self._put(json.loads(line))
            if not data:
                self._put(None)
                return

    def _put(self, order: Order | None) -> None:
        self._newest = order
        if self._on_order:
            self._on_order(order)
        self._news.set()

    @property
    def news(self) -> bool:
        """True if an order has come since the last `take`."""
        return self._news.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most `seconds` (None: without limit) for an order; return whether one has come."""
        return self._news.wait(None if seconds is None else max(0.0, seconds))

    def take(self) -> Order | None:
        """Wait for an order and return the newest; None means end."""
        self._news.wait()
        self._news.clear()
        return self._newest
