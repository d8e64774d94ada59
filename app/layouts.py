"""Layouts of entries on the server: the reads and puts that each strategy requires, and the effect of a switch.

    layout       strategies                 one read          one put                          an invalidation's work
    entries      scan, keys, exact, index,  GET               MULTI SET SADD PEXPIREAT EXEC    see the strategy
                 index-naive
    hash         hash                       HGET              MULTI HSET PEXPIREAT EXEC        one key
    generation   generation                 GET, then GET     MULTI SET PEXPIREAT EXEC         one number
    tagged       slot, scan-tagged,         GET               MULTI SET SADD PEXPIREAT EXEC    see the strategy
                 index-tagged
    plain        ttl                        GET               SET                              none

`tagged` is `entries` with the user's id as a hash tag, so that all keys of a user are in one slot of a cluster. On a
server in cluster mode `entries` and `generation` cannot be used: their transactions cross slots. On a cluster of
several nodes (`app.cluster`) a user's keys are on one node under `tagged` and `hash`, and on any under `plain`.

Values that may be served although they are older than a finished event: under `entries`, `tagged` and `hash`, a value
computed before the event and put after it, for one TTL at most, or until the user's next event. It stays so, and is
counted (`bench.history`, `loadtest.incidents.race`): to close the race, each read must ask for a number first, one
round trip more. That is `generation`, under which no such value is served. Under `plain` all are, for one TTL at most.

The strategy may change at any time, and no process notifies the others. Three rules make that safe:

* A change of layout begins an *epoch* (`State.set_invalidation`), whose number is part of every key. The cache is then
  cold. Entries of earlier epochs are never read again, even if the old strategy comes back, and expire by TTL; until
  then the server's memory holds both.
* Each read first reads the epoch from the state (some microseconds, no round trip), and puts into the epoch it read. So
  every entry of an epoch was computed after the epoch began.
* Each attempt at an event reads the epoch after the event was accepted. If the epoch changes during the attempt, all
  entries of later epochs were computed after the event.

Eviction does no harm under `hash` (a user's entries go together) and `generation` (the next number is a different
one). An index set that is evicted leaves its entries to their TTL: see `app.strategies.index`.

All three rules rely on the state database: a service that loses its state folder must begin with an empty server.
"""

from collections.abc import Iterable, Mapping, Sequence

from app.bulk import GenerationTemplate, HashTemplate, PlainTemplate, UserTemplate
from app.cache import Cache
from app.fragments import generation_step, written
from app.state import Invalidation


class HashCache(Cache):
    """Layout `hash`: one hash for each user, a field for each release and name.

    Servers expire keys; few of them expire fields (HEXPIRE: Redis 7.4, Valkey 9). So the hash expires one TTL after
    the last put into it, and each value begins with its own expiry in unix milliseconds, which the reader checks. The
    cost: 13 bytes per entry, and an expired field takes memory until its user has had no put for one TTL, or is
    invalidated. An entry's expiry depends on the reader's clock; in the other layouts it depends on the server's.
    """

    def _slot_key(self, user: int, name: str) -> str:
        return self.keyspace.user_hash(user)

    def get(self, user: int, name: str) -> bytes | None:
        """The cached fragment or None. One round trip."""
        key, field = self.keyspace.user_hash(user), self.keyspace.member(name)
        stored: bytes | None = self._timed("HGET", self._client.execute_command, "HGET", key, field)
        if stored is None or int(stored[:STAMP]) <= self.now() * 1000:
            return None
        return stored[STAMP:]

    def put_all(self, user: int, values: Mapping[str, bytes | str], since: int = 0) -> None:
        """Cache a user's fragments, by name, for one TTL. One round trip."""
        expires, key = self.keyspace.entry_expires_ms(self.now()), self.keyspace.user_hash(user)
        words: list[bytes | str] = []
        for name, value in values.items():
            body = value.encode() if isinstance(value, str) else value
            words += (self.keyspace.member(name), b"%013d" % expires + body)
        pipe = self._client.pipeline(transaction=True)
        pipe.execute_command("HSET", key, *words)
        pipe.execute_command("PEXPIREAT", key, expires)
        self._timed("HSET", pipe.execute)

    def _template(self, names: Sequence[str], users: Iterable[int]) -> tuple[UserTemplate, Iterable[int]]:
        return HashTemplate(self.keyspace, names, self._settings.value_bytes, self.now()), users

    def entries(self, keys: int, users: int) -> int:
        """Number of entries: each key is a user's hash. Exact for hashes that hold the usual fragments."""
        return keys * self._settings.fragments_per_user

    def keys(self, users: int) -> int:
        """Number of keys: one for each user."""
        return users


class GenerationCache(Cache):
    """Layout `generation`: like `entries` without an index, but the keys contain the user's generation number.

    A number is made when there is none, and lives as long as the entries under it. If the server loses it (evicted, or
    with all other keys), no harm is done: the next number is a different one, see `generation_step`.
    """

    def get_with_since(self, user: int, name: str) -> tuple[bytes | None, int]:
        """The cached fragment or None, and the user's generation. Two round trips, one after the other.

        An event may be carried out between the two; the read then began before the event was done.
        """
        generation, is_new = self._learn(user)
        if is_new:
            return None, generation
        key = self.keyspace.entry_in(user, written(generation), name)
        return self._timed("GET", self._client.execute_command, "GET", key), generation

    def get(self, user: int, name: str) -> bytes | None:
        """The cached fragment or None. Two round trips."""
        return self.get_with_since(user, name)[0]

    def put_all(self, user: int, values: Mapping[str, bytes | str], since: int = 0) -> None:
        """Cache a user's fragments for one TTL, in the generation that was read before they were computed (`since`).

        One round trip. Without `since` two; the put is then no safer than in the other layouts.
        """
        generation = since or self._learn(user)[0]
        expires = self.keyspace.entry_expires_ms(self.now())
        pipe = self._client.pipeline(transaction=True)
        for name, value in values.items():
            key = self.keyspace.entry_in(user, written(generation), name)
            pipe.execute_command("SET", key, value, "PXAT", expires)
        pipe.execute_command("PEXPIREAT", self.keyspace.generation(user), expires)
        self._timed("SET", pipe.execute)

    def _learn(self, user: int) -> tuple[int, bool]:
        """The user's generation, and True if it was made because there was none. One round trip, or two."""
        key = self.keyspace.generation(user)
        found = self._timed("GET", self._client.execute_command, "GET", key)
        return (int(found), False) if found is not None else (self._make([user])[0], True)

    def _make(self, users: Sequence[int]) -> list[int]:
        """Begin new generations, as events do. Of two made for a user at once, the first loses the entry put in it."""
        expires = self.keyspace.entry_expires_ms(self.now())
        pipe = self._client.pipeline(transaction=True)
        for user in users:
            pipe.execute_command("INCRBY", self.keyspace.generation(user), generation_step())
            pipe.execute_command("PEXPIREAT", self.keyspace.generation(user), expires)
        return [int(reply) for reply in self._timed("INCRBY", pipe.execute)[::2]]

    def _template(self, names: Sequence[str], users: Iterable[int]) -> tuple[UserTemplate, Iterable[int]]:
        """The bulk template; one MGET reads the generations of all users before any value is rendered."""
        filled = list(users)
        keys = [self.keyspace.generation(user) for user in filled]
        found = self._timed("MGET", self._client.execute_command, "MGET", *keys) if keys else []
        generations = {
            user: int(number) for user, number in zip(filled, found, strict=True) if number is not None
        }
        if missing := [user for user in filled if user not in generations]:
            generations |= zip(missing, self._make(missing), strict=True)
        size, now = self._settings.value_bytes, self.now()
        return GenerationTemplate(self.keyspace, names, size, now, generations), filled


class TaggedCache(Cache):
    """Layout `tagged`: as `entries`, with names in which the user's id is a hash tag (`TaggedKeyspace`)."""

    layout = "tagged"


class PlainCache(Cache):
    """Layout `plain`: entries only, as a client that relies on their TTL writes them."""

    one_slot = False

    def put_all(self, user: int, values: Mapping[str, bytes | str], since: int = 0) -> None:
        """Cache a user's fragments, by name, for one TTL. One round trip each: on a cluster they are on any node."""
        expires = self.keyspace.entry_expires_ms(self.now())
        for name, value in values.items():
            key = self.keyspace.entry(user, name)
            self._timed("SET", self._client.execute_command, "SET", key, value, "PXAT", expires)

    def _template(self, names: Sequence[str], users: Iterable[int]) -> tuple[UserTemplate, Iterable[int]]:
        return PlainTemplate(self.keyspace, names, self._settings.value_bytes, self.now()), users

    def entries(self, keys: int, users: int) -> int:
        """Number of entries: each key is one."""
        return keys

    def keys(self, users: int) -> int:
        """Number of keys: one for each usual fragment of each user."""
        return users * self._settings.fragments_per_user


STAMP = 13
"""Digits of a time in unix milliseconds, until the year 2286."""
KINDS: dict[str, type[Cache]] = {
    "entries": Cache,
    "hash": HashCache,
    "generation": GenerationCache,
    "tagged": TaggedCache,
    "plain": PlainCache,
}


class Layouts:
    """Gives the cache that fits the layout and epoch in force. Thread-safe."""

    def __init__(self, cache: Cache) -> None:
        self._first = cache
        self._latest: tuple[tuple[str, int], Cache] = ("entries", 0), cache

    def at(self, mode: Invalidation) -> Cache:
        """The cache in the layout and epoch of `mode`."""
        wanted = mode.layout, mode.epoch
        known, cache = self._latest
        if known != wanted:
            cache = self._first.other(KINDS[mode.layout], mode.epoch)
            self._latest = wanted, cache
        return cache
