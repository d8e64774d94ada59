"""Invalidating one user by the index against a bare pipelined UNLINK of the same keys: time, as a ratio.

Run as ``python -m bench.index_invalidation``. The bare one knows the keys already and deletes them in one
round trip: no way to invalidate can be faster. Both run on the asynchronous client, in turns, with 100 000
other entries in the server.
"""

import asyncio
import statistics
import time

from app.cache import Cache
from app.cache_async import AsyncClient, connect
from app.fragments import AREAS, fragment_names
from app.settings import Settings
from app.strategies import STRATEGIES
from bench.kit import report, server

USERS = range(1, 5001)
ROUNDS = 1000


async def measure(settings: Settings, cache: Cache) -> list[tuple[float, float]]:
    """Seconds of (index, bare) for each round, one user each."""
    bare = connect(settings)
    client = AsyncClient(bare, settings, "index")
    names = fragment_names(settings.fragments_per_user)
    clock = time.perf_counter
    found = []
    for user in range(1, 2 * ROUNDS + 1, 2):
        started = clock()
        deleted = await STRATEGIES["index"](client, user, AREAS, 1000)
        by_index = clock() - started
        keys = [cache.keyspace.entry(user + 1, name) for name in names]
        started = clock()
        pipe = bare.pipeline(transaction=False)
        for key in keys:
            pipe.execute_command("UNLINK", key)
        unlinked = sum(await pipe.execute())
        found.append((by_index, clock() - started))
        assert deleted == unlinked == len(names)
    await bare.aclose()
    await bare.connection_pool.disconnect()
    return found


def main() -> None:
    """Print the medians and the ratio."""
    with server() as url:
        settings = Settings(store_url=url)
        cache = Cache(settings)
        cache.put_users(USERS)
        pairs = asyncio.run(measure(settings, cache))
    report(
        "index invalidation / bare pipelined UNLINK",
        statistics.median(ours / bare for ours, bare in pairs),
        goal="3 dependent round trips against 1",
        index_us=statistics.median(ours for ours, _ in pairs) * 1e6,
        bare_us=statistics.median(bare for _, bare in pairs) * 1e6,
    )


if __name__ == "__main__":
    main()
