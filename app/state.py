"""The state that the processes share besides the cache: settings that change at run time, and the outbox of
accepted events.

SQLite in WAL mode with synchronous=NORMAL: a commit is one append without fsync, and survives the death of
any process (not a power cut). Every process sees a commit at once; `State.changed` is a cheap check for
one.
"""

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.settings import layout_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT, user INTEGER NOT NULL, type TEXT NOT NULL,
  traceparent TEXT, accepted_at REAL NOT NULL, claimed_by TEXT);
CREATE INDEX IF NOT EXISTS outbox_unclaimed ON outbox (id) WHERE claimed_by IS NULL;
CREATE INDEX IF NOT EXISTS outbox_claimed ON outbox (claimed_by) WHERE claimed_by IS NOT NULL;
"""


BEGIN_ANEW = "; put its folder aside, empty the server, and start again"
"""The remedy for a corrupt database. `app.layouts` explains why the server must be empty."""
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REOPEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
"""Errors that a new handle may not have: one that was opened while the file could only be read never writes."""
_BUSY_S, _TRY_BUSY_S = 5.0, 0.2
"""The seconds to wait for the database's lock."""
_TRIED = 0
"""Id of the event that `State.try_event` writes and takes away; accepted events count from 1."""


class StateError(Exception):
    """The state database cannot be read or written; the message is one line.

    `corrupt`: its content is lost. `busy`: another process held its lock for too long.
    """

    def __init__(self, message: str, corrupt: bool = False, busy: bool = False) -> None:
        super().__init__(message)
        self.corrupt, self.busy = corrupt, busy


def _state_error(what: str, error: Exception) -> StateError:
    code = _code(error)
    corrupt = code in _CORRUPT
    return StateError(f"{what}: {error}{BEGIN_ANEW if corrupt else ''}", corrupt, code == sqlite3.SQLITE_BUSY)


def _code(error: Exception) -> int:
    """SQLite's primary result code of an error; 0 for one that is not SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@dataclass(frozen=True)
class Invalidation:
    """The present strategy of invalidation, and so the layout of entries on the server.

    ``epoch`` counts the changes of layout: an entry is served only in the epoch it was put in. ``late``: events that
    were under way at the last change are finished as they were begun; else they are given up and done again.
    """

    strategy: str
    scan_count: int
    layout: str = "entries"
    epoch: int = 0
    late: bool = False


@dataclass(frozen=True)
class Warming:
    """A request to the warmer. ``revision`` counts requests, ``generation`` forced refills."""

    target_keys: int = 0
    keys_per_second: float | None = None
    generation: int = 0
    revision: int = 0


@dataclass(frozen=True)
class WarmingStatus:
    """The warmer's report. ``sets``: number of users that have an index set (or the like) on the server; ``marker``:
    name of the fill; ``at``: unix seconds; ``others``: number of keys of earlier epochs, which expire.
    """

    keys: int = 0
    users: int = 0
    sets: int = 0
    state: str = "idle"
    error: str | None = None
    revision: int = 0
    generation: int = 0
    marker: str = ""
    at: float = 0.0
    epoch: int = 0
    others: int = 0


@dataclass(frozen=True)
class Event:
    """An accepted event. ``accepted_at`` is unix seconds; ``traceparent`` a W3C header or None."""

    id: int
    user: int
    type: str
    traceparent: str | None
    accepted_at: float


class State:
    """A handle on the database, safe to share between threads. Every method raises `StateError` if SQLite fails.

    Without `make` another process makes the database; the first call that can opens it, and those before it raise.
    """

    def __init__(self, folder: Path, make: bool = True) -> None:
        self._lock = threading.Lock()
        self._version: int | None = None
        path = folder / "state.sqlite3"
        self._uri = f"{path.absolute().as_uri()}?mode=rw"
        self._db: sqlite3.Connection | None = None
        if not make:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = _connect(str(path), True, _BUSY_S)
        except (sqlite3.Error, OSError) as error:
            raise _state_error(f"cannot open {path}", error) from error

    def _run(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._execute(sql, values)
            except sqlite3.Error as error:
                raise _state_error("state database", error) from error

    def _execute(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._db is not None:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.OperationalError as error:
                if _code(error) not in _REOPEN:
                    raise
        self._drop()
        self._db = _connect(self._uri, False, _BUSY_S)
        return self._db.execute(sql, values).fetchall()

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = self._version = None

    def close(self) -> None:
        """Close the handle."""
        with self._lock:
            if self._db is not None:
                self._db.close()

    def ping(self) -> None:
        """Raise `StateError` unless the database can be read."""
        self._run("SELECT 1 FROM settings LIMIT 1")

    def changed(self) -> bool:
        """True if another process committed since the last call, and on the first call. Takes a few microseconds."""
        version = int(self._run("PRAGMA data_version")[0][0])
        changed = version != self._version
        self._version = version
        return changed

    # settings

    def _read(self, key: str) -> dict[str, Any]:
        rows = self._run("SELECT value FROM settings WHERE key = ?", (key,))
        return dict(json.loads(rows[0][0])) if rows else {}

    def _merge(self, key: str, change: Mapping[str, Any]) -> None:
        # json_patch drops members whose new value is null; readers then get the dataclass default.
        self._run(
            "INSERT INTO settings VALUES (?1, json_patch('{}', ?2)) "
            "ON CONFLICT (key) DO UPDATE SET value = json_patch(value, ?2)",
            (key, json.dumps(dict(change))),
        )

    def init_invalidation(self, strategy: str, scan_count: int) -> None:
        """Set the initial values; a stored value wins."""
        value = json.dumps(
            {"strategy": strategy, "scan_count": scan_count, "layout": layout_of(strategy), "epoch": 0}
        )
        self._run("INSERT OR IGNORE INTO settings VALUES ('invalidation', ?)", (value,))

    def invalidation(self) -> Invalidation:
        """The strategy and COUNT in force."""
        return Invalidation(**{"strategy": "scan", "scan_count": 1000, **self._read("invalidation")})

    def set_invalidation(self, change: Mapping[str, Any], late: bool = False) -> None:
        """Change ``strategy``, ``scan_count`` or both, for all processes. A change of layout begins an epoch.

        Events under way are given up and done again, as by a deploy; with ``late`` they are finished as begun.
        """
        wanted = {**change, "late": late}
        if "strategy" in wanted:
            wanted["layout"] = layout_of(str(wanted["strategy"]))
        self._run(
            "INSERT INTO settings VALUES ('invalidation', json_patch('{}', ?1)) "
            "ON CONFLICT (key) DO UPDATE SET value = json_set(json_patch(value, ?1), '$.epoch', "
            "coalesce(json_extract(value, '$.epoch'), 0) + (coalesce(json_extract(?1, '$.layout'), '') "
            "NOT IN ('', coalesce(json_extract(value, '$.layout'), 'entries'))))",
            (json.dumps(wanted),),
        )

    def warming(self) -> Warming:
        """Return the present request to the warmer."""
        return Warming(**self._read("warming"))

    def set_warming(self, change: Mapping[str, Any], restart: bool = False) -> None:
        """Change ``target_keys`` and/or ``keys_per_second``; ``restart`` forces a refill from user 1."""
        self._merge("warming", change)
        self._run(
            "UPDATE settings SET value = json_set(value, "
            "'$.revision', coalesce(json_extract(value, '$.revision'), 0) + 1, "
            "'$.generation', coalesce(json_extract(value, '$.generation'), 0) + ?) WHERE key = 'warming'",
            (int(restart),),
        )

    def warming_status(self) -> WarmingStatus:
        """The warmer's last report."""
        return WarmingStatus(**self._read("warming_status"))

    def set_warming_status(self, status: WarmingStatus) -> None:
        """Replace the warmer's report."""
        self._run(
            "INSERT OR REPLACE INTO settings VALUES ('warming_status', ?)", (json.dumps(asdict(status)),)
        )

    # outbox

    def add_event(self, user: int, kind: str, traceparent: str | None) -> int:
        """Accept an event and return its id."""
        sql = "INSERT INTO outbox (user, type, traceparent, accepted_at) VALUES (?, ?, ?, ?) RETURNING id"
        with self._new_handle(_BUSY_S) as db:
            return int(db.execute(sql, (user, kind, traceparent, time.time())).fetchall()[0][0])

    def try_event(self) -> int | None:
        """Write an event, delete it, and count the unfinished ones, in one transaction that no other process sees.

        Returns None if another process writes for longer than `_TRY_BUSY_S`.
        """
        try:
            with self._new_handle(_TRY_BUSY_S) as db:
                db.execute("BEGIN IMMEDIATE")
                db.execute("INSERT INTO outbox (id, user, type, accepted_at) VALUES (?, 0, '', 0)", (_TRIED,))
                db.execute("DELETE FROM outbox WHERE id = ?", (_TRIED,))
                found = int(db.execute("SELECT count(*) FROM outbox").fetchone()[0])
                db.execute("COMMIT")
                return found
        except StateError as error:
            if error.busy:
                return None
            raise

    @contextmanager
    def _new_handle(self, busy_s: float) -> Iterator[sqlite3.Connection]:
        """A handle for one use. One that stays open remembers pages, and goes on writing when the file is corrupt."""
        try:
            with closing(_connect(self._uri, False, busy_s)) as db:
                yield db
        except sqlite3.Error as error:
            if _code(error) in _REOPEN:
                # All handles of a process share what the first one opened, and so what it could only read.
                with self._lock:
                    self._drop()
            raise _state_error("state database", error) from error

    def claim(self, name: str) -> list[Event]:
        """Take all unclaimed events for the invalidator ``name``, oldest first."""
        if not self._run("SELECT 1 FROM outbox WHERE claimed_by IS NULL LIMIT 1"):
            return []
        rows = self._run(
            "UPDATE outbox SET claimed_by = ? WHERE claimed_by IS NULL "
            "RETURNING id, user, type, traceparent, accepted_at",
            (name,),
        )
        return sorted((Event(*row) for row in rows), key=lambda event: event.id)

    def release(self, name: str | None = None) -> int:
        """Give back the events that ``name`` (or anybody) claimed and did not finish; returns how many."""
        sql = "UPDATE outbox SET claimed_by = NULL WHERE claimed_by = coalesce(?, claimed_by) RETURNING id"
        return len(self._run(sql, (name,)))

    def done(self, event_id: int) -> None:
        """Remove a finished event."""
        self._run("DELETE FROM outbox WHERE id = ?", (event_id,))

    def is_pending(self, event_id: int) -> bool:
        """True while an accepted event is unfinished."""
        return bool(self._run("SELECT 1 FROM outbox WHERE id = ?", (event_id,)))

    def pending(self) -> int:
        """Return the number of accepted events that are not finished."""
        return int(self._run("SELECT count(*) FROM outbox")[0][0])


def _connect(database: str, make: bool, busy_s: float) -> sqlite3.Connection:
    """Open a database, by path or URI; with `make` its tables are there then. Raises sqlite3.Error."""
    db = sqlite3.connect(database, timeout=busy_s, isolation_level=None, check_same_thread=False, uri=True)
    try:
        if make:
            _prepare(db)
        db.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    # Switching to WAL needs exclusive access to the file, and ignores the busy timeout when several
    # processes start together.
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    db.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")


def new_marker() -> str:
    """A fresh name for one fill of the server."""
    return uuid.uuid4().hex
