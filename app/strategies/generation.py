"""`generation`: the keys of a user's entries contain a number; give the user the next number. Nothing is deleted.

Cost: one round trip of one INCRBY (and its PEXPIREAT), however many entries the user has and whatever else the server
holds. Reads pay for it: each reads the number first, which is a second round trip (see `app.layouts.GenerationCache`).
Memory pays too: invalidated entries stay until their TTL ends, so there are as many copies of a user's entries as there
were events and refills within one TTL; and each user has one more small key, the number.

Only this strategy never serves a value computed before an event and put after it: the put goes under the number that
the read found before the event.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Begin the user's next generation in all areas; returns 0, because nothing is deleted."""
    await client.renew(user)
    return 0
