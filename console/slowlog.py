"""The slow log as counters: number of entries and their execution time, by command.

Reading is bounded: SLOWLOG GET of many entries takes the server's thread for milliseconds, and would be in the log
itself. So the reader requests few entries at first, and more only while all of them are new. An entry is identified by
its id and time together: Dragonfly keeps a log for each thread, and every server counts from 0 after a
restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import takewhile

from lab.errors import StackError
from lab.server.server_stats import ServerObserver, Snapshot

EVERY_S = 2.0
LENGTH = 512
AT_FIRST = 4
"""Entries in the first request of a reading; each further one has `MORE` times as many, up to `LENGTH`."""
MORE = 8

Entry = tuple[str, float, str, int]


class SlowlogReader:
    """A reader that returns new entries. Entries of the first reading are old, and are not counted."""

    def __init__(self, server: ServerObserver, threshold_us: int) -> None:
        self._server = server
        self._threshold_us = threshold_us
        self._configured = False
        self._life: tuple[str, int] | None = None
        self._newest: str | None = None
        self.starts = 0
        """Number of server starts seen, the running one included; a restart adds one."""

    def new_entries(self, hands_off: bool = False) -> list[Entry]:
        """Return entries since the last call, oldest first; with `hands_off` the log's settings are left alone.

        Raises `StackError` if the server does not answer.
        """
        run, uptime = self._server.run_id_and_uptime()
        if self._life is None or run != self._life[0] or uptime < self._life[1]:
            self.starts += 1
            self._configured = False  # after a restart the server has its default settings again
        self._life = run, uptime
        if not self._configured and not hands_off:
            self._server.configure_slowlog(self._threshold_us, LENGTH)
            self._configured = True
        last, limit = self._newest, AT_FIRST
        while True:
            entries = self._server.slowlog(limit)
            new = list(takewhile(lambda entry: entry[0] != last, entries))
            if last is None or len(new) < limit or limit >= LENGTH:
                break
            limit = min(LENGTH, limit * MORE)
        self._newest = entries[0][0] if entries else last or ""
        return [] if last is None else new[::-1]


class ServerWatcher(threading.Thread):
    """A thread that samples one server every two seconds, on its own connection, which may wait in the server's queue.

    Calls `on_up(up, starts)` after every sample, `on_entry(command, seconds)` for each new entry of the slow log,
    and `on_counters` with the server's own counters. Leaves the log's settings alone while `hands_off()` is true.
    """

    def __init__(
        self,
        name: str,
        server: ServerObserver,
        threshold_us: int,
        on_up: Callable[[bool, int], None],
        on_entry: Callable[[str, float], None],
        on_counters: Callable[[Snapshot], None],
        hands_off: Callable[[], bool],
    ) -> None:
        super().__init__(name=f"slowlog-{name}", daemon=True)
        self._server = server
        self._reader = SlowlogReader(server, threshold_us)
        self._on_up, self._on_entry, self._hands_off = on_up, on_entry, hands_off
        self._on_counters = on_counters
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample the server until `end` is called."""
        while not self._ended.is_set():
            try:
                for _, _, command, micros in self._reader.new_entries(self._hands_off()):
                    self._on_entry(command, micros / 1e6)
                self._on_up(True, self._reader.starts)
                self._on_counters(self._server.snapshot())
                pause = EVERY_S
            except StackError:
                self._on_up(False, self._reader.starts)
                pause = EVERY_S / 4  # notice soon that it is back
            self._ended.wait(pause)

    def end(self) -> None:
        """Stop after the current sample."""
        self._ended.set()
