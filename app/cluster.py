"""The storefront's connections to a cluster (APP_STORE_CLUSTER=1): redis-py's cluster clients, behind the same calls.

What differs from one server:

* A command goes to the node that has its key's slot. The client learns the slots at its first use, and again when a
  node answers MOVED.
* A transaction is carried out by one node. So all its keys must be in one slot, as the layout `tagged` has them, and
  those of `hash` and `plain`, which write one key at a time. `entries` and `generation` cannot be used.
* A search must go to every node that has slots (`AsyncCluster.places`). No node answers MOVED to a SCAN. So a search
  that knew too few nodes would leave entries behind without an error: the client reads the slots before a search, at
  most once a second.
* A fill writes each user's bytes to the user's node, one node after the other (`Cluster.write_users`).
* `python -m app.backfill` cannot be used: its cursor is one server's.

There are no retries, as with one server. A client that reached no node is replaced by a new one at its next use, which
begins with the address that it was given.
"""

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import redis
import redis.asyncio.cluster
import redis.cluster
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, RedisClusterException
from redis.retry import Retry

from app import bulk
from app.settings import Settings

SLOTS_KNOWN_S = 1.0
"""The time for which a search relies on the slots that were read."""


class Cluster:
    """The synchronous client. Thread-safe. Raises `redis.RedisError`, as redis-py's client of one server does."""

    def __init__(self, settings: Settings, options: dict[str, Any]) -> None:
        self._url, self._options = settings.store_url, options
        self._lock = threading.Lock()
        self._made: Any = None

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = redis.cluster.RedisCluster.from_url(
                    self._url, retry=Retry(NoBackoff(), 0), **self._options
                )
            return self._made

    def _try(self, call: Callable[[Any], Any]) -> Any:
        try:
            return call(self._client())
        except RedisClusterException as error:  # not a RedisError; most often no node could be reached
            with self._lock:
                left, self._made = self._made, None
            if left is not None:  # else its sockets stay open until the garbage collector comes
                with contextlib.suppress(redis.RedisError, RedisClusterException, OSError):
                    left.close()
            raise redis.ConnectionError(str(error)) from error

    def execute_command(self, *words: Any) -> Any:
        """Send one command to the node that has its key's slot."""
        return self._try(lambda client: client.execute_command(*words))

    def pipeline(self, transaction: bool = True) -> "_Transaction":
        """A transaction, whose keys must be in one slot."""
        return _Transaction(self)

    def transact(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Carry out the commands as one transaction, on the node of the first one's key."""

        def send(client: Any) -> list[Any]:
            pipe = self._node(client, commands[0][1]).pipeline(transaction=True)
            for command in commands:
                pipe.execute_command(*command)
            return list(pipe.execute())

        def attempt(client: Any) -> list[Any]:
            try:
                return send(client)
            except MovedError:  # the slots were given to other nodes: nothing was carried out
                client.nodes_manager.initialize()
                return send(client)

        return list(self._try(attempt))

    @staticmethod
    def _node(client: Any, key: Any) -> Any:
        """redis-py's client of the node that has a key's slot."""
        return client.get_redis_connection(client.get_node_from_key(key))

    def keys(self) -> int:
        """The number of keys on all nodes."""
        return int(self._try(lambda client: client.dbsize(target_nodes=client.PRIMARIES)))

    def write_users(
        self, template: bulk.UserTemplate, users: Iterable[int], key_of: Callable[[int], str]
    ) -> int:
        """Write each user's bytes to the node that has the slot of `key_of(user)`; returns how many users."""

        def write(client: Any) -> int:
            client.nodes_manager.initialize()  # a fill's bytes are not sent again after MOVED
            of_node: dict[str, tuple[Any, list[int]]] = {}
            for user in users:
                node = client.get_node_from_key(key_of(user))
                of_node.setdefault(node.name, (node, []))[1].append(user)
            return sum(
                write_users(client.get_redis_connection(node).connection_pool, template, theirs)
                for node, theirs in of_node.values()
            )

        return int(self._try(write))

    def disconnect(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None


class _Transaction:
    """Collects commands; `execute` sends them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._commands: list[tuple[Any, ...]] = []

    def execute_command(self, *words: Any) -> None:
        """Add a command."""
        self._commands.append(words)

    def execute(self) -> list[Any]:
        """Carry out all commands; their replies."""
        return self._cluster.transact(self._commands)


def write_users(pool: Any, template: bulk.UserTemplate, users: Iterable[int]) -> int:
    """Write users' bytes over a connection of a pool; returns how many users. A connection that failed is closed."""
    connection = pool.get_connection()
    try:
        # Uses the bare socket: reading the replies with redis-py costs more than the server's writes.
        return bulk.write_users(connection._sock, template, users)
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


class AsyncCluster:
    """The asynchronous client. Raises `redis.RedisError`, as redis-py's client of one server does."""

    def __init__(self, settings: Settings, options: dict[str, Any]) -> None:
        self._client: Any = redis.asyncio.cluster.RedisCluster.from_url(
            settings.store_url, retry=AsyncRetry(NoBackoff(), 0), **options
        )
        self._slots: Any = None
        self._slots_read_at = -SLOTS_KNOWN_S

    async def _try(self, call: Callable[..., Awaitable[Any]], *words: Any) -> Any:
        try:
            return await call(*words)
        except RedisClusterException as error:
            raise redis.ConnectionError(str(error)) from error

    async def execute_command(self, *words: Any) -> Any:
        """Send one command to the node that has its key's slot."""
        return await self._try(self._send, *words)

    async def _send(self, *words: Any) -> Any:
        await self._client.initialize()  # before it knows the slots, the client would ask any node
        return await self._client.execute_command(*words)

    async def transact(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Carry out the commands as one transaction, on the node of the first one's key.

        By hand: for each command of a transaction on a cluster redis-py 8.1 starts a thread with a loop of its own.
        """
        return list(await self._try(self._transact, commands))

    async def _transact(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        await self._client.initialize()
        try:
            return await Place(self._client.get_node_from_key(commands[0][1])).transact(commands)
        except MovedError:  # the slots were given to other nodes: nothing was carried out
            await self._learn()
            return await Place(self._client.get_node_from_key(commands[0][1])).transact(commands)

    async def places(self) -> list["Place"]:
        """All nodes that have slots: where a search must go."""
        return list(await self._try(self._places))

    async def _places(self) -> list["Place"]:
        await self._client.initialize()
        if time.monotonic() - self._slots_read_at >= SLOTS_KNOWN_S:
            asking = time.monotonic()
            node = Place(self._client.get_default_node())
            found = await node.execute_command("CLUSTER", "SLOTS")
            # Learning the slots closes all connections, so it is done only if they changed.
            if found != self._slots:
                await self._learn()
                self._slots = found
            self._slots_read_at = (
                asking  # set last: after a failure the next attempt must read the slots again
            )
        return [Place(node) for node in self._client.get_primaries()]

    async def _learn(self) -> None:
        """Learn the slots again."""
        try:
            await self._client.nodes_manager.initialize()
        except (
            RedisClusterException
        ):  # its connection may be from before a restart; it has now closed that one
            await self._client.nodes_manager.initialize()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class Place:
    """A node of the cluster, for calls that must go to this node."""

    def __init__(self, node: Any) -> None:
        self._node = node

    async def get_connection(self) -> Any:
        """A connection for this caller alone, until `release`. One that the node has closed is opened again."""
        connection = self._node.acquire_connection()
        try:
            await self._node.disconnect_if_needed(connection)
            await connection.connect()
            if await _is_closed(connection):
                await connection.disconnect()
                await connection.connect()
        except BaseException:
            self._node.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        """Give the connection back."""
        self._node.release(connection)

    async def execute_command(self, *words: Any) -> Any:
        """Send one command to this node."""
        connection = await self.get_connection()
        try:
            await connection.send_command(*words)
            return await connection.read_response()
        finally:
            await self.release(connection)

    async def transact(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Carry out the commands as one transaction. Raises the first error, after all replies were read."""
        connection = await self.get_connection()
        try:
            whole = [("MULTI",), *commands, ("EXEC",)]
            await connection.send_packed_command(connection.pack_commands(whole))
            replies = [await _reply(connection) for _ in whole]
        finally:
            await self.release(connection)
        done = replies[-1]
        for reply in (*replies[:-1], *(done if isinstance(done, list) else [done])):
            if isinstance(reply, Exception):
                raise reply
        return list(done)


async def _is_closed(connection: Any) -> bool:
    """True if the other side has closed the connection, or sent an unrequested reply."""
    try:
        return bool(await connection.can_read())
    except (redis.ConnectionError, OSError):
        return True


async def _reply(connection: Any) -> Any:
    """The next reply, or the error that the server replied with."""
    try:
        return await connection.read_response()
    except redis.ResponseError as error:
        return error
