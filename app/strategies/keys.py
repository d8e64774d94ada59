"""`keys`: one KEYS call for each pattern.

Cost per pattern, with N keys on the server and M of the user's among them: one round trip of KEYS, during
which the server visits all N keys and serves nobody, and M / 500 of UNLINK. Same total work as `scan` with a
huge COUNT, in one stall. Index members of deleted entries stay behind, for at most one TTL after their entries would
have expired.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient, together


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``, one KEYS call for each, all started at once."""
    patterns = [client.keyspace.pattern(user, area) for area in areas]
    return await together(*(_sweep(client, pattern) for pattern in patterns))


async def _sweep(client: AsyncClient, pattern: str) -> int:
    found = await client.keys(pattern)
    return await client.unlink(found) if found else 0
