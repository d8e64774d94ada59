"""`slot`: iterate over one slot for each pattern, since the user's hash tag stands before the pattern's first wildcard.

Needs a server in cluster mode, of Redis 8 or Valkey 8 at least (Redis #12536): it works out the slot from the pattern,
and visits no other key. Cost per pattern, with S keys in the user's slot: about S / COUNT round trips of SCAN, and as
for `scan` those of UNLINK. A server has 16,384 slots, so S is N / 16,384 on average. But a user may share the slot with
a user of very many entries: then each search visits these, too. On any other server, and on one that is not in cluster
mode, this is `scan`: the same replies, and all N keys visited. Index members of deleted entries stay behind, as under
`scan`.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient
from app.strategies import scan


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``, as `scan` does: the layout's patterns make the difference."""
    return await scan.invalidate(client, user, areas, scan_count)
