"""`exact`: delete the user's entries by name, from the list of the names that a page is made of. Nothing is searched.

Cost, with M names on the list (the user's usual fragments): M / 500 round trips of UNLINK. Server work is O(M),
whether the entries are cached or not and whatever else the server holds. Nothing is read, and no data accumulates.

What it cannot delete: an entry whose name is not on the list (a fragment added since, or for some users only) and an
entry of another release, which has its own keys. Both stay until their TTL ends. So the list must be complete wherever
events are handled, and a release must wait one TTL, or delete its predecessor's names too. Index members of deleted
entries stay behind, for at most one TTL after their entries would have expired.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's usual fragments in ``areas``, of this release."""
    starts = tuple(f"{area}-" for area in areas)
    return await client.unlink(
        [client.keyspace.entry(user, name) for name in client.names if name.startswith(starts)]
    )
