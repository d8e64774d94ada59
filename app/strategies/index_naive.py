"""`index-naive`: read the user's index sets whole, and delete everything they name at once. The cure done naively.

Cost, with M entries of the user: for each of the three time buckets in which they may be one round trip of SMEMBERS,
and, where there are any, one of MULTI; DEL; SREM; EXEC. Server work is O(M) as under `index`, but in two pieces,
however large M is: nobody else is served during either. For a user of ordinary size it is as good as `index`; one giant
set stalls everybody.

Nothing is lost, for the same reason as under `index`: entries and memberships are written and deleted together. A
server that evicts may take an index set alone, as there.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient, together


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``, those of each live bucket at once."""
    starts = tuple(f"{area}-".encode() for area in areas)
    buckets = client.keyspace.live_buckets(client.clock())
    return await together(*(_sweep(client, user, bucket, starts) for bucket in buckets))


async def _sweep(client: AsyncClient, user: int, bucket: int, starts: tuple[bytes, ...]) -> int:
    index = client.keyspace.index(user, bucket)
    members = await client.smembers(index)
    wanted = [member for member in members if member.partition(b":")[2].startswith(starts)]
    return await client.unlink_indexed(user, index, wanted, "DEL") if wanted else 0
