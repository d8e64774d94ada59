"""Entries left by an invalidation on a server that evicts, by strategy and maxmemory-policy."""

import asyncio
import random
from itertools import accumulate
from pathlib import Path

import pytest

from app.cache import Cache
from app.cache_async import AsyncClient, connect, disconnect
from app.fragments import AREAS, fragment_names
from app.layouts import Layouts
from app.settings import Settings, layout_of
from app.state import Invalidation
from app.strategies import STRATEGIES
from tests.app.servicekit import ServerProcess

USERS, READS, EVENT_EVERY = 300, 2000, 10
ROOM = 0.6
"""Share of the memory that all entries would need."""
NEVER, OFTEN = 0.0, 0.2
ROWS = {
    ("index", "allkeys-lru"): OFTEN,
    ("index", "allkeys-lfu"): OFTEN,
    ("index", "allkeys-random"): OFTEN,
    ("index", "volatile-lru"): OFTEN,
    ("index", "volatile-lfu"): OFTEN,
    ("index", "volatile-random"): OFTEN,
    ("index", "volatile-ttl"): NEVER,
    ("index-naive", "allkeys-lru"): OFTEN,
    ("hash", "allkeys-lru"): NEVER,
    ("hash", "volatile-random"): NEVER,
    ("generation", "allkeys-lru"): NEVER,
    ("generation", "volatile-random"): NEVER,
}
"""(strategy, policy) → the least share of events that leave entries of their user behind; none may where it is 0."""
QUICK = {("index", "allkeys-lru"), ("index", "volatile-ttl"), ("hash", "allkeys-lru")}
"""The rows of `make test`: one that leaves entries, and the two ways out."""


@pytest.mark.skipif(
    ServerProcess.redis() is None, reason="no redis-server (Debian: apt install redis-server)"
)
@pytest.mark.parametrize(
    ("strategy", "policy"),
    [pytest.param(*row, marks=() if row in QUICK else pytest.mark.whole) for row in ROWS],
)
def test_an_index_is_evicted_before_what_it_names(strategy: str, policy: str, tmp_path: Path) -> None:
    """An index set is evicted like any key, and its entries stay: the next event finds nothing, and they are served.

    `volatile-ttl` takes entries first, which expire before their set. A hash goes whole; a lost number does no harm.
    """
    server = ServerProcess(str(ServerProcess.redis())).start()
    try:
        settings = Settings(store_url=server.url, state_dir=tmp_path)
        cache = Layouts(Cache(settings)).at(Invalidation(strategy, 1, layout_of(strategy)))
        raw = server.client()
        empty = raw.info("memory")["used_memory"]
        cache.put_users(range(USERS))
        full = raw.info("memory")["used_memory"]
        raw.config_set("maxmemory-policy", policy)
        raw.config_set("maxmemory", int(empty + ROOM * (full - empty)))
        left = asyncio.run(events_that_leave_entries(settings, cache, strategy))
        assert raw.info("stats")["evicted_keys"] > 100
        events = READS // EVENT_EVERY
        assert left == 0 if ROWS[strategy, policy] == NEVER else left > ROWS[strategy, policy] * events
    finally:
        server.stop()


async def events_that_leave_entries(settings: Settings, cache: Cache, strategy: str) -> int:
    """Read and put as the storefront does, popular users more often; return how many events leave entries."""
    draw, names, left = random.Random(1), fragment_names(settings.fragments_per_user), 0
    popular = list(accumulate(1 / (1 + user) ** 0.8 for user in range(USERS)))
    server = connect(settings)
    client = AsyncClient(server, settings, strategy)
    for number in range(READS):
        [reader, changed] = draw.choices(range(USERS), cum_weights=popular, k=2)
        name = draw.choice(names)
        value, since = cache.get_with_since(reader, name)
        if value is None:
            cache.put(reader, name, "x" * settings.value_bytes, since)
        if number % EVENT_EVERY == 0:
            await STRATEGIES[strategy](client, changed, AREAS, 1000)
            left += any(cache.get(changed, name) is not None for name in names)
    await disconnect(server)
    return left
