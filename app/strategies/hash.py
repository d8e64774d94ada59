"""`hash`: all of a user's fragments are fields of one hash; delete that hash.

Cost: one round trip of one UNLINK, however many entries the user has and whatever else the server holds; with more than
64 fields the server frees the memory in the background. A read is one HGET, a put one MULTI of HSET and PEXPIREAT.
Memory: one key, one expiry and no index for each user; 13 bytes of each value hold its own expiry (see
`app.layouts.HashCache`).

Nothing is searched and nothing can be missed: a fragment of any name and release is in the hash. The price: the server
expires and evicts a user's entries together or not at all, and `areas` are not distinguished.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's hash, and so the entries in all areas."""
    return await client.unlink([client.keyspace.user_hash(user)])
