"""`index`: read the user's own index sets and delete exactly the entries they name. The cure.

Cost, with M entries of the user: for each of the three time buckets in which they may be, M / 500 round trips of SSCAN
and, where there are any, as many of MULTI; UNLINK; SREM; EXEC. Usually four or five round trips in all, three of them
at once. Server work is O(M), whatever else the server holds, and never more than 500 members in a row, so one giant set
stalls nobody.

Why nothing is lost: an entry and its membership are written together (`Cache.put` in `app.cache`) and deleted together,
so whatever is cached is indexed at every moment. SSCAN returns each member that is there from beginning to end. A put
between SSCAN and the transaction loses both entry and membership (it is deleted as an older one would be); a put after
it keeps both. A clock that is set back by more than one TTL hides what was put before: empty the server then.

What may be lost: a server that evicts takes index sets as well as entries. Entries whose set is gone are found by no
event, and are served until their TTL ends. So use it with the maxmemory-policy `noeviction` or with `volatile-ttl`,
which takes the entries first, since their sets expire later (tests/app/test_evicting.py). Where another policy must
stay, use `hash` or `generation`.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient, together

CHUNK = 500
"""Members per SSCAN. A set small enough for the server's compact encoding comes whole, whatever COUNT says.
"""


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Delete the user's entries in ``areas``; the live buckets are swept at once."""
    starts = tuple(f"{area}-".encode() for area in areas)
    buckets = client.keyspace.live_buckets(client.clock())
    return await together(*(_sweep(client, user, bucket, starts) for bucket in buckets))


async def _sweep(client: AsyncClient, user: int, bucket: int, starts: tuple[bytes, ...]) -> int:
    index = client.keyspace.index(user, bucket)
    cursor, deleted = 0, 0
    while True:
        cursor, members = await client.sscan(index, cursor, CHUNK)
        wanted = [member for member in members if member.partition(b":")[2].startswith(starts)]
        for start in range(0, len(wanted), CHUNK):
            deleted += await client.unlink_indexed(user, index, wanted[start : start + CHUNK])
        if cursor == 0:
            return deleted
