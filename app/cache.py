"""The synchronous side of the cache: the only module through which web and warmer talk to the server.

`Cache` is the layout `entries`; `app.layouts` has the other layouts and the rules for all. A put writes the
entry and its index membership in one MULTI/EXEC, whichever strategy of this layout is in force, so a switch to
``index`` needs no back-fill of entries cached before it. (Entries that another program wrote are not indexed:
``python -m app.backfill`` adds them.) No strategy of this layout can delete a value computed before an event and put
after it; the TTL, or the user's next event, bounds how long such a value is served.
"""

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app import bulk, cluster
from app.fragments import fragment_names, keyspace_of
from app.metrics import CallTimer
from app.settings import Settings

PUT_CHUNK = 500
"""Entries per transaction when one user is filled in bulk: a longer transaction would stall bystanders."""
UNACKNOWLEDGED_MS = 5_000
"""The time that sent bytes may stay unacknowledged until the connection is given up (TCP_USER_TIMEOUT).

A kernel acknowledges even for a server that is drowned or stopped, until its receive buffer is full. So an answer to a
command is waited for as long as `store_timeout_seconds` says, and only a bulk put to a stopped server ends sooner. But
after a network failure, TCP retransmits at growing intervals, after half a minute only once in 13 s, and each
connection of the pool would wait for that.
"""


class CacheUnavailable(Exception):
    """The server did not carry out a command: down, too slow, out of memory. The message is one line."""


def connection_options(timeout_seconds: float, url: str) -> dict[str, Any]:
    """Options for a redis-py connection to that address, sync or async.

    RESP2 and no CLIENT SETINFO: a connection is usable without any handshake, on every server of the family
    (no HELLO, no maintenance notifications). No retries: redis-py's default of ten would multiply the load on
    a server that stalls.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "driver_info": None,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "max_connections": 2**31,
    }
    user_timeout = getattr(socket, "TCP_USER_TIMEOUT", None)  # macOS has none, nor has a Unix socket
    if user_timeout is not None and not url.startswith("unix:"):
        options["socket_keepalive_options"] = {user_timeout: UNACKNOWLEDGED_MS}
    return options


def connect(settings: Settings) -> redis.ConnectionPool | cluster.Cluster:
    """Connections to the server, or to the cluster, made when they are needed."""
    options = connection_options(settings.store_timeout_seconds, settings.store_url)
    if settings.store_cluster:
        return cluster.Cluster(settings, options)
    return redis.ConnectionPool.from_url(settings.store_url, retry=Retry(NoBackoff(), 0), **options)


class Cache:
    """Cached fragments of users. Thread-safe. Methods raise `CacheUnavailable` when the server fails."""

    layout = "entries"
    one_slot = True
    """True if a cluster has all of a user's keys in one slot, so that a fill can write them to one node at once."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        epoch: int = 0,
        pool: redis.ConnectionPool | cluster.Cluster | None = None,
    ) -> None:
        self.keyspace = keyspace_of(self.layout, settings.key_prefix, settings.entry_ttl_seconds).at(epoch)
        self._settings = settings
        self.now = clock
        self._timer = CallTimer(settings.server_name)
        self._pool: Any = pool or connect(settings)
        self._client: Any = (
            self._pool if isinstance(self._pool, cluster.Cluster) else redis.Redis(connection_pool=self._pool)
        )

    def other(self, kind: type["Cache"], epoch: int) -> "Cache":
        """Another epoch or layout on the same connections."""
        return kind(self._settings, self.now, epoch, self._pool)

    def _timed(self, operation: str, call: Callable[..., Any], *args: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*args)
        except redis.RedisError as error:
            raise CacheUnavailable(f"{operation}: {error}") from error
        finally:
            self._timer.observe(operation, time.perf_counter() - started)

    def get(self, user: int, name: str) -> bytes | None:
        """The cached fragment or None. One round trip."""
        value: bytes | None = self._timed(
            "GET", self._client.execute_command, "GET", self.keyspace.entry(user, name)
        )
        return value

    def get_with_since(self, user: int, name: str) -> tuple[bytes | None, int]:
        """The cached fragment or None, and the `since` that `put` takes for a value computed from now on."""
        return self.get(user, name), 0

    def put(self, user: int, name: str, value: bytes | str, since: int = 0) -> None:
        """Cache a fragment for one TTL, as `put_all` does."""
        self.put_all(user, {name: value}, since)

    def put_all(self, user: int, values: Mapping[str, bytes | str], since: int = 0) -> None:
        """Cache a user's fragments, by name, for one TTL and index them, atomically. One round trip."""
        now = self.now()
        bucket, expires = self.keyspace.bucket(now), self.keyspace.entry_expires_ms(now)
        index = self.keyspace.index(user, bucket)
        pipe = self._client.pipeline(transaction=True)
        for name, value in values.items():
            pipe.execute_command("SET", self.keyspace.entry(user, name), value, "PXAT", expires)
        pipe.execute_command("SADD", index, *map(self.keyspace.member, values))
        pipe.execute_command("PEXPIREAT", index, self.keyspace.index_expires_ms(bucket))
        self._timed("SET", pipe.execute)

    def put_users(self, users: Iterable[int]) -> int:
        """Cache and index all usual fragments of ``users``, in bulk; returns how many entries."""
        return self._put_bulk(fragment_names(self._settings.fragments_per_user), users)

    def put_many(self, user: int, count: int) -> int:
        """Cache and index the first ``count`` fragments of one user, in bulk; returns how many entries.

        Each transaction has at most `PUT_CHUNK` entries, so that filling a giant does not stall bystanders.
        """
        names = fragment_names(count)
        parts = [names[start : start + PUT_CHUNK] for start in range(0, count, PUT_CHUNK)]
        return sum(self._put_bulk(part, [user]) for part in parts)

    def _put_bulk(self, names: Sequence[str], users: Iterable[int]) -> int:
        try:
            if isinstance(self._pool, cluster.Cluster):
                return self._put_on_nodes(self._pool, names, list(users))
            template, users = self._template(names, users)
            return cluster.write_users(self._pool, template, users) * len(names)
        except (bulk.BulkError, OSError, redis.RedisError) as error:
            raise CacheUnavailable(f"bulk: {error}") from error

    def _put_on_nodes(self, nodes: cluster.Cluster, names: Sequence[str], users: list[int]) -> int:
        """As `_put_bulk`, on a cluster: a user's entries at once where they are in one slot, else name by name."""
        done = 0
        for part in [list(names)] if self.one_slot else [[name] for name in names]:
            template, filled = self._template(part, users)
            key_of = partial(self._slot_key, name=part[0])
            done += nodes.write_users(template, filled, key_of) * len(part)
        return done

    def _slot_key(self, user: int, name: str) -> str:
        """The key whose slot has the user's fragment of that name."""
        return self.keyspace.entry(user, name)

    def _template(
        self, names: Sequence[str], users: Iterable[int]
    ) -> tuple[bulk.UserTemplate, Iterable[int]]:
        return bulk.UserTemplate(self.keyspace, names, self._settings.value_bytes, self.now()), users

    def entries(self, keys: int, users: int) -> int:
        """Number of entries among `keys` keys when `users` users were filled: each user also has an index set."""
        return max(0, keys - users)

    def keys(self, users: int) -> int:
        """Return the number of keys that a fill of `users` users makes."""
        return users * (self._settings.fragments_per_user + 1)

    def adopt(self, cursor: int) -> tuple[int, int]:
        """Index the entries on one SCAN page, whatever program wrote them; returns the next cursor and their number.

        An entry without a TTL, or with a longer one than the service's, gets the service's TTL: otherwise it would
        outlive its index set.
        """
        now = self.now()
        bucket = self.keyspace.bucket(now)
        pattern = f"{self.keyspace.prefix}:*"
        page = self._timed(
            "SCAN", self._client.execute_command, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000
        )
        pipe = self._client.pipeline(transaction=True)
        adopted = 0
        for key in page[1]:
            found = self.keyspace.parse_entry(key.decode(errors="replace"))
            if found is None:
                continue
            user, member = found
            index = self.keyspace.index(user, bucket)
            pipe.execute_command("SADD", index, member)
            pipe.execute_command("PEXPIREAT", index, self.keyspace.index_expires_ms(bucket))
            pipe.execute_command("PEXPIREAT", key, self.keyspace.entry_expires_ms(now), "LT")
            adopted += 1
        if adopted:
            self._timed("SADD", pipe.execute)
        return int(page[0]), adopted

    def set_marker(self, value: str) -> None:
        """Mark the server as filled by fill ``value``; the marker lives one TTL, as the entries do."""
        expires = self.keyspace.entry_expires_ms(self.now())
        self._timed(
            "SET", self._client.execute_command, "SET", self.keyspace.marker(), value, "PXAT", expires
        )

    def clear_marker(self) -> None:
        """Remove the marker."""
        self._timed("UNLINK", self._client.execute_command, "UNLINK", self.keyspace.marker())

    def census(self) -> tuple[str, int]:
        """The marker ('' if none) and the number of keys on the server. One round trip, never a scan.

        On a cluster, one round trip to the marker's node and one to every node.
        """
        if isinstance(self._pool, cluster.Cluster):
            marker = self._timed("GET", self._client.execute_command, "GET", self.keyspace.marker())
            return (marker or b"").decode(errors="replace"), int(self._timed("DBSIZE", self._pool.keys))
        pipe = self._client.pipeline(transaction=False)
        pipe.execute_command("GET", self.keyspace.marker())
        pipe.execute_command("DBSIZE")
        marker, size = self._timed("GET", pipe.execute)
        return (marker or b"").decode(errors="replace"), int(size)

    def ping(self) -> None:
        """Raise `CacheUnavailable` unless the server answers."""
        self._timed("PING", self._client.execute_command, "PING")

    def close(self) -> None:
        """Close all connections."""
        self._pool.disconnect()
