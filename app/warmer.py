"""The warmer: keeps the wanted number of entries in the cache, filling users 1, 2, 3 ... in bulk.

Run as ``python -m app.warmer``. It puts through `Cache`, so the index stays complete. A marker on the server shows
that the server still holds the fill (a restart, FLUSHALL or the entries' TTL removes it); without it the
fill begins again.
"""

import logging
import math
import signal
import time
from dataclasses import replace
from types import FrameType

from app.cache import Cache, CacheUnavailable
from app.layouts import Layouts
from app.metrics import HEARTBEAT, WARMING_KEYS
from app.process import RareLog, fail, serve_metrics, setup_logging
from app.settings import Settings, load_settings
from app.state import State, StateError, Warming, new_marker

POLL_SECONDS = 0.2
CENSUS_SECONDS = 1.0
FILLING_CENSUS_SECONDS = 0.2
REPORT_SECONDS = 1.0
CHUNK_ENTRIES = 10_000
PACED_CHUNK_SECONDS = 0.05


class Warmer:
    """Fills the cache, one fill at a time; `step` does a bounded piece of work."""

    def __init__(self, settings: Settings, state: State, cache: Cache, log: logging.Logger) -> None:
        self._each = settings.fragments_per_user
        self._state = state
        self._layouts = Layouts(cache)
        self._cache, self._epoch = cache, 0
        self._rare = RareLog(log)
        self._status = state.warming_status()
        self._wanted = Warming()
        self._next_census = 0.0
        self._next_report = 0.0
        self._due = 0.0

    def step(self) -> float:
        """Do one bounded piece of work; returns the seconds to wait before the next step."""
        try:
            if self._state.changed():
                self._wanted = self._state.warming()
                mode = self._state.invalidation()
                self._cache, self._epoch = self._layouts.at(mode), mode.epoch
            before = self._status
            delay = self._work()
            now = time.monotonic()
            changed = replace(before, keys=0, at=0.0) != replace(self._status, keys=0, at=0.0)
            settled = changed and (self._status.state == "idle" or before.state == "idle")
            if settled or now >= self._next_report:
                self._next_report = now + (0.25 if self._status.state == "filling" else REPORT_SECONDS)
                self._status = replace(self._status, at=time.time())
                self._state.set_warming_status(self._status)
            WARMING_KEYS.set(self._status.keys)
            return delay
        except StateError as error:
            self._rare.warning(str(error))
            return 1.0

    def _work(self) -> float:
        wanted = self._wanted
        fresh = wanted.revision != self._status.revision
        try:
            moved = self._epoch != self._status.epoch
            if fresh or moved or time.monotonic() >= self._next_census:
                self._census()
            if wanted.generation != self._status.generation or not (
                self._status.marker and wanted.target_keys
            ):
                self._begin()
            users = math.ceil(wanted.target_keys / self._each)
            delay = POLL_SECONDS
            if self._status.users < users:
                delay = self._fill(users)
            done = self._status.users >= users
            if done and self._status.state == "filling":
                self._census()
            self._status = replace(
                self._status, state="idle" if done else "filling", error=None, revision=wanted.revision
            )
            return delay
        except CacheUnavailable as error:
            self._rare.warning(str(error))
            self._next_census = (
                0.0  # the next step takes a census, so that an idle fill is not reported as healthy
            )
            short = self._status.users < math.ceil(wanted.target_keys / self._each)
            self._status = replace(
                self._status,
                state="filling" if short else "idle",
                error=str(error),
                revision=wanted.revision,
            )
            return 0.5

    def _census(self) -> None:
        """Check whether the fill is still there, and count the entries.

        While keys of earlier epochs expire, an entry that an event removed cannot be distinguished from an expired key,
        and is still counted.
        """
        pause = FILLING_CENSUS_SECONDS if self._status.state == "filling" else CENSUS_SECONDS
        self._next_census = time.monotonic() + pause
        marker, size = self._cache.census()
        status = self._status
        if status.epoch != self._epoch:
            status = replace(status, epoch=self._epoch, marker="", users=0, sets=0, others=size)
        if status.marker and marker != status.marker:
            status = replace(status, marker="", users=0, sets=0)
        if size < status.sets:  # Emptied while nothing was wanted, and so without a marker.
            status = replace(status, sets=0)
        own = self._cache.keys(status.users) + bool(marker)
        others = max(0, min(status.others, size - own))
        # Exact except for users invalidated or read since.
        keys = self._cache.entries(size - others - bool(marker), status.sets)
        self._status = replace(status, keys=keys, others=others)

    def _begin(self) -> None:
        """Start from user 1, if anything is wanted."""
        wanted = self._wanted
        if wanted.target_keys:
            marker = new_marker()
            self._cache.set_marker(marker)
            self._due = time.monotonic()
        else:
            marker = ""
            if self._status.marker:
                self._cache.clear_marker()
        self._status = replace(self._status, marker=marker, users=0, generation=wanted.generation)

    def _fill(self, users: int) -> float:
        rate = self._wanted.keys_per_second
        entries = CHUNK_ENTRIES if rate is None else min(CHUNK_ENTRIES, rate * PACED_CHUNK_SECONDS)
        first = self._status.users + 1
        last = min(users, first + max(1, int(entries / self._each)) - 1)
        if rate is not None:
            now = time.monotonic()
            if self._due > now:
                return min(POLL_SECONDS, self._due - now)
            # At most one chunk is caught up on: a pause must not become a burst.
            self._due = max(self._due, now - PACED_CHUNK_SECONDS) + (last - first + 1) * self._each / rate
        self._cache.put_users(range(first, last + 1))
        self._status = replace(self._status, users=last, sets=max(last, self._status.sets))
        return 0.0


def _stop(_number: int, _frame: FrameType | None) -> None:
    # Raised in the middle of whatever blocks, so that a stalled server does not delay the end.
    raise SystemExit(0)


def main() -> None:
    """Entry point."""
    settings = load_settings()
    log = setup_logging("warmer")
    try:
        state = State(settings.state_dir)
    except StateError as error:
        raise fail(str(error)) from None
    port = 9103 if settings.metrics_port is None else settings.metrics_port
    serve_metrics(settings.metrics_host, port, "warmer")
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    warmer = Warmer(settings, state, Cache(settings), log)
    while True:
        delay = warmer.step()
        HEARTBEAT.set_to_current_time()
        if delay > 0:
            time.sleep(delay)


if __name__ == "__main__":
    main()
