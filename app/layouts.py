"""How entries are laid out in the store: what a strategy needs of reads and puts, and what happens at a switch.

    layout       strategies                 one read          one put                          an invalidation's work
    entries      scan, keys, exact, index,  GET               MULTI SET SADD PEXPIREAT EXEC    see there
                 index-naive
    hash         hash                       HGET              MULTI HSET PEXPIREAT EXEC        one key
    generation   generation                 GET, then GET     MULTI SET PEXPIREAT EXEC         one number
    plain        ttl                        GET               SET                              none

What can be served although it is older than a finished event: under `entries` and `hash`, a value computed before
the event and put after it, for one TTL at most. Under `generation` nothing. Under `plain` everything, for one TTL at
most.

The strategy may change at any time, and no process tells the others. What makes that safe:

* A change of layout begins an *epoch* (`State.set_invalidation`), whose number is part of every key. The cache is
  cold then; what earlier epochs left is never read again, also when the old strategy comes back, and ages out by TTL.
  For that long the server's memory holds both.
* Each read asks the state for the epoch first (some microseconds, no round trip), and puts where it read. So an
  epoch's entries were computed after it began.
* Each attempt at an event asks after the event was accepted. If it works in an epoch that is over by then, all
  entries of the later ones were computed after the event.

The state is part of that: a service that loses its state folder must begin with an empty store.
"""

from collections.abc import Iterable, Sequence

from app.bulk import GenerationTemplate, HashTemplate, PlainTemplate, UserTemplate
from app.cache import Cache
from app.fragments import generation_step, written
from app.state import Invalidation


class HashCache(Cache):
    """Layout `hash`: one hash for each user, a field for each release and name.

    Servers expire keys; few of them expire fields (HEXPIRE: Redis 7.4, Valkey 9). So the hash expires one TTL after
    the last put into it, and each value begins with its own end, in unix milliseconds, which the reader looks at. The
    cost: 13 bytes for each entry, and a field that has ended takes memory until its user is left alone for one TTL, or
    invalidated. An entry's end depends on the reader's clock, as that of an entry elsewhere depends on the server's.
    """

    def get(self, user: int, name: str) -> bytes | None:
        """The cached fragment or None. One round trip."""
        key, field = self.keyspace.user_hash(user), self.keyspace.member(name)
        stored: bytes | None = self._timed("HGET", self._client.execute_command, "HGET", key, field)
        if stored is None or int(stored[:STAMP]) <= self.now() * 1000:
            return None
        return stored[STAMP:]

    def put(self, user: int, name: str, value: bytes | str, since: int = 0) -> None:
        """Cache a fragment for one TTL. One round trip."""
        expires = self.keyspace.entry_expires_ms(self.now())
        key, body = self.keyspace.user_hash(user), value.encode() if isinstance(value, str) else value
        pipe = self._client.pipeline(transaction=True)
        pipe.execute_command("HSET", key, self.keyspace.member(name), b"%013d" % expires + body)
        pipe.execute_command("PEXPIREAT", key, expires)
        self._timed("HSET", pipe.execute)

    def _template(self, names: Sequence[str], users: Iterable[int]) -> tuple[UserTemplate, Iterable[int]]:
        return HashTemplate(self.keyspace, names, self._settings.value_bytes, self.now()), users

    def entries(self, keys: int, users: int) -> int:
        """Each key is a user's hash; exact where it holds the usual fragments."""
        return keys * self._settings.fragments_per_user

    def keys(self, users: int) -> int:
        """One for each user."""
        return users


class GenerationCache(Cache):
    """Layout `generation`: as `entries` without an index, but each user's keys hold the user's current number.

    A number is made when there is none, and lives as long as the entries under it. One that the server loses all the
    same (evicted, or with its store) does no harm: the next one is another, see `generation_step`.
    """

    def look(self, user: int, name: str) -> tuple[bytes | None, int]:
        """The cached fragment or None, and the user's generation. Two round trips, one after the other.

        An event may be carried out between the two: then this read began before the event was done.
        """
        generation, is_new = self._learn(user)
        if is_new:
            return None, generation
        key = self.keyspace.entry_in(user, written(generation), name)
        return self._timed("GET", self._client.execute_command, "GET", key), generation

    def get(self, user: int, name: str) -> bytes | None:
        """The cached fragment or None. Two round trips."""
        return self.look(user, name)[0]

    def put(self, user: int, name: str, value: bytes | str, since: int = 0) -> None:
        """Cache a fragment for one TTL, in the generation that was learned before it was computed (`since`).

        One round trip; without `since`, which is as good as a put in the other layouts, two.
        """
        generation = since or self._learn(user)[0]
        expires = self.keyspace.entry_expires_ms(self.now())
        pipe = self._client.pipeline(transaction=True)
        key = self.keyspace.entry_in(user, written(generation), name)
        pipe.execute_command("SET", key, value, "PXAT", expires)
        pipe.execute_command("PEXPIREAT", self.keyspace.generation(user), expires)
        self._timed("SET", pipe.execute)

    def _learn(self, user: int) -> tuple[int, bool]:
        """The user's generation, made if there is none, and whether it was. One round trip, or two."""
        key = self.keyspace.generation(user)
        found = self._timed("GET", self._client.execute_command, "GET", key)
        return (int(found), False) if found is not None else (self._make([user])[0], True)

    def _make(self, users: Sequence[int]) -> list[int]:
        """New generations, as an event would begin them: who else makes one at the same moment loses one entry."""
        expires = self.keyspace.entry_expires_ms(self.now())
        pipe = self._client.pipeline(transaction=True)
        for user in users:
            pipe.execute_command("INCRBY", self.keyspace.generation(user), generation_step())
            pipe.execute_command("PEXPIREAT", self.keyspace.generation(user), expires)
        return [int(reply) for reply in self._timed("INCRBY", pipe.execute)[::2]]

    def _template(self, names: Sequence[str], users: Iterable[int]) -> tuple[UserTemplate, Iterable[int]]:
        """In bulk: one MGET of all generations before all values are made."""
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


class PlainCache(Cache):
    """Layout `plain`: entries alone, as a client that relies on their TTL writes them."""

    def put(self, user: int, name: str, value: bytes | str, since: int = 0) -> None:
        """Cache a fragment for one TTL. One round trip."""
        expires = self.keyspace.entry_expires_ms(self.now())
        key = self.keyspace.entry(user, name)
        self._timed("SET", self._client.execute_command, "SET", key, value, "PXAT", expires)

    def _template(self, names: Sequence[str], users: Iterable[int]) -> tuple[UserTemplate, Iterable[int]]:
        return PlainTemplate(self.keyspace, names, self._settings.value_bytes, self.now()), users

    def entries(self, keys: int, users: int) -> int:
        """Each key is one."""
        return keys

    def keys(self, users: int) -> int:
        """One for each of their usual fragments."""
        return users * self._settings.fragments_per_user


STAMP = 13
"""Digits of unix milliseconds, until the year 2286."""
KINDS: dict[str, type[Cache]] = {
    "entries": Cache,
    "hash": HashCache,
    "generation": GenerationCache,
    "plain": PlainCache,
}


class Layouts:
    """The cache as it is to be used at present. Thread-safe."""

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
