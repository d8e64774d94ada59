"""`scan`: iterate over the whole keyspace for each pattern. The cause of the incident.

Cost per pattern, with N keys in the store and M of the user's among them: about N / COUNT round trips of
SCAN, each making the server visit COUNT keys while nobody else is served, and M / 500 of UNLINK. Server work
grows with N, however few keys match: MATCH filters after a key is visited. Index members of deleted entries stay
behind, for at most one TTL after their entries would have expired.
"""

from collections.abc import Sequence
from contextlib import aclosing

from app.cache_async import AsyncStore, together


async def invalidate(store: AsyncStore, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``, one full iteration for each, all started at once."""
    patterns = [store.keyspace.pattern(user, area) for area in areas]
    return await together(*(_sweep(store, pattern, scan_count) for pattern in patterns))


async def _sweep(store: AsyncStore, pattern: str, scan_count: int) -> int:
    deleted = 0
    async with aclosing(store.scan(pattern, scan_count)) as pages:
        async for found in pages:
            deleted += await store.unlink(found)
    return deleted
