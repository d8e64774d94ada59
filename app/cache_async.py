"""The asynchronous side of the cache: the server as the invalidation strategies see it."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import redis.asyncio
from opentelemetry import trace
from prometheus_client import Counter
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.cache import connection_options
from app.cluster import AsyncCluster, Place
from app.fragments import fragment_names, generation_step, keyspace_of
from app.metrics import EVENT_CALLS, CallTimer
from app.settings import Settings, layout_of
from app.telemetry import SCAN_PAGE

ServerError = redis.RedisError
"""The error of every method of `AsyncClient` when the server is down, too slow or refuses."""

UNLINK_CHUNK = 500
"""Keys per UNLINK: a longer call would stall bystanders, a shorter one would cost more round trips."""


def connect(settings: Settings) -> Any:
    """redis-py's client, with a pool without limit: nothing may queue inside the client, only in the server.

    Close it by `disconnect`.
    """
    options = connection_options(settings.store_timeout_seconds, settings.store_url)
    if settings.store_cluster:
        return AsyncCluster(settings, options)
    pool = redis.asyncio.ConnectionPool.from_url(settings.store_url, retry=Retry(NoBackoff(), 0), **options)
    return redis.asyncio.Redis(connection_pool=pool)


async def disconnect(raw: Any) -> None:
    """Close all connections of what `connect` returned."""
    await raw.aclose()
    if not isinstance(raw, AsyncCluster):
        await raw.connection_pool.disconnect()


async def together(*calls: Awaitable[int]) -> int:
    """Run all calls concurrently and return the sum of their results. If one fails, the others are awaited before
    its error is raised, so that a retry never overlaps the attempt before it.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return sum(result for result in results if isinstance(result, int))


class AsyncClient:
    """The calls to the server that strategies are made of, each one round trip, timed and counted under the
    strategy's name. `raw` is redis-py's client, see `connect`.
    """

    def __init__(
        self,
        raw: Any,
        settings: Settings,
        strategy: str,
        clock: Callable[[], float] = time.time,
        epoch: int = 0,
    ) -> None:
        first = keyspace_of(layout_of(strategy), settings.key_prefix, settings.entry_ttl_seconds)
        self.keyspace = first.at(epoch)
        most = settings.searches_at_once
        self._search: AbstractAsyncContextManager[Any] = asyncio.Semaphore(most) if most else nullcontext()
        self.clock = clock
        self.names = tuple(fragment_names(settings.fragments_per_user))
        """Names of the fragments that a user usually has."""
        self._raw = raw
        self._strategy = strategy
        self._timer = CallTimer(settings.server_name)
        self._counters: dict[str, Counter] = {}

    async def _command(self, operation: str, *args: Any) -> Any:
        return await self._timed(operation, self._raw.execute_command, operation, *args)

    async def _transaction(self, operation: str, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if isinstance(self._raw, AsyncCluster):
            return list(await self._timed(operation, self._raw.transact, commands))
        pipe = self._raw.pipeline(transaction=True)
        for command in commands:
            pipe.execute_command(*command)
        replies: list[Any] = await self._timed(operation, pipe.execute)
        return replies

    async def _timed(self, operation: str, call: Callable[..., Any], *args: Any) -> Any:
        # redis-py sends by asyncio.wait_for, which before Python 3.12 loses a cancellation that comes at the very
        # moment the bytes are sent. Without this check a cancelled search would go on for ever.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        counter = self._counters.get(operation)
        if counter is None:
            counter = self._counters[operation] = EVENT_CALLS.labels(self._strategy, operation)
        started = time.perf_counter()
        try:
            return await call(*args)
        finally:
            self._timer.observe(operation, time.perf_counter() - started)
            counter.inc()

    async def places(self) -> Sequence[Place | None]:
        """Return the places that a search must visit: every node of a cluster, or None for a single server."""
        return await self._raw.places() if isinstance(self._raw, AsyncCluster) else [None]

    async def scan(
        self, pattern: str, count: int, place: Place | None = None
    ) -> AsyncGenerator[list[bytes], None]:
        """Iterate over all keys of a place, one SCAN call per page; yields the keys of each page that has any.

        The caller must close it (`contextlib.aclosing`). Outside a recorded trace all pages use one connection
        without redis-py's pool and command layers, which halves this process's CPU time per page: the server
        must reach its limit before the client does.
        """
        call, connection = (place or self._raw).execute_command, None
        pool = place or self._raw.connection_pool
        if not trace.get_current_span().is_recording():
            connection = await pool.get_connection()

            async def call(*words: Any) -> Any:
                await connection.send_command(*words)
                return await connection.read_response()

        cursor, page = 0, 0
        try:
            while True:
                page += 1
                SCAN_PAGE.set(page)
                async with self._search:
                    reply = await self._timed("SCAN", call, "SCAN", cursor, "MATCH", pattern, "COUNT", count)
                cursor = int(reply[0])
                if reply[1]:
                    yield reply[1]
                if cursor == 0:
                    return
        finally:
            if connection is not None:
                await pool.release(connection)

    async def keys(self, pattern: str) -> list[bytes]:
        """All keys that match, by one KEYS call, which blocks the server while it visits the whole keyspace."""
        async with self._search:
            return list(await self._command("KEYS", pattern))

    async def unlink(self, keys: Sequence[bytes | str]) -> int:
        """Delete keys, at most `UNLINK_CHUNK` a call; returns how many existed."""
        deleted = 0
        for start in range(0, len(keys), UNLINK_CHUNK):
            deleted += int(await self._command("UNLINK", *keys[start : start + UNLINK_CHUNK]))
        return deleted

    async def sscan(self, key: str, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Send one SSCAN call on an index set; returns the next cursor and some members (all of a small set)."""
        reply = await self._command("SSCAN", key, cursor, "COUNT", count)
        return int(reply[0]), list(reply[1])

    async def smembers(self, key: str) -> list[bytes]:
        """All members of an index set, by one SMEMBERS call, which blocks the server while it reads the whole set."""
        return list(await self._command("SMEMBERS", key))

    async def unlink_indexed(
        self, user: int, index: str, members: Sequence[bytes], command: str = "UNLINK"
    ) -> int:
        """Delete entries (by UNLINK or DEL) and their index members in one MULTI/EXEC, which blocks the server until
        all are deleted; returns how many entries existed.
        """
        entries = [self.keyspace.entry_of(user, member) for member in members]
        replies = await self._transaction(command, [(command, *entries), ("SREM", index, *members)])
        return int(replies[0])

    async def renew(self, user: int) -> None:
        """Begin the user's next generation. Its number lives for one TTL from now, or from the last put in it."""
        key = self.keyspace.generation(user)
        expires = self.keyspace.entry_expires_ms(self.clock())
        await self._transaction("INCRBY", [("INCRBY", key, generation_step()), ("PEXPIREAT", key, expires)])
