"""`index-tagged`: as `index`, in the layout `tagged`: the user's index sets are in the user's slot.

So it can be used in cluster mode, where an event goes to the one node that has the slot, whatever the other nodes do.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient
from app.strategies import index


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``; the live buckets are swept at once."""
    return await index.invalidate(client, user, areas, scan_count)
