"""`scan`: iterate over the whole keyspace for each pattern. The cause of the incident.

Cost per pattern, with N keys on the server and M of the user's among them: about N / COUNT round trips of
SCAN, each making the server visit COUNT keys while nobody else is served, and M / 500 of UNLINK. Server work
grows with N, however few keys match: MATCH filters after a key is visited. Index members of deleted entries stay
behind, for at most one TTL after their entries would have expired.
"""

from collections.abc import Sequence
from contextlib import aclosing

from app.cache_async import AsyncClient, together
from app.cluster import Place


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``, one full iteration for each, all started at once."""
    return await search(client, [client.keyspace.pattern(user, area) for area in areas], scan_count)


async def search(client: AsyncClient, patterns: Sequence[str], scan_count: int) -> int:
    """Delete what matches, by one iteration for each pattern, all started at once; the number of keys deleted.

    On a cluster each node has an iteration for each pattern: with n nodes, n times as many, over an nth of the keys.
    """
    places = await client.places()
    return await together(
        *(_sweep(client, pattern, scan_count, place) for pattern in patterns for place in places)
    )


async def _sweep(client: AsyncClient, pattern: str, scan_count: int, place: Place | None) -> int:
    deleted = 0
    async with aclosing(client.scan(pattern, scan_count, place)) as pages:
        async for found in pages:
            deleted += await client.unlink(found)
    return deleted
