"""`scan-tagged`: as `slot`, but with a wildcard before the hash tag, which makes the server visit the whole keyspace.

The pattern matches the same keys. But what the wildcard stands for could have a hash tag of its own, so the server
cannot know the slot: the cost is that of `scan`, in cluster mode as well.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient
from app.strategies import scan


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``, one full iteration for each, all started at once."""
    patterns = [client.keyspace.pattern(user, area).replace(":{", ":*{", 1) for area in areas]
    return await scan.search(client, patterns, scan_count)
