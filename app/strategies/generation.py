"""`generation`: the keys of a user's entries hold a number; give the user the next number. Nothing is deleted.

Cost: one round trip of one INCRBY (and its PEXPIREAT), whatever the user has and whatever else the store holds. Reads
pay for it: each learns the number first, which is a second round trip (see `app.layouts.GenerationCache`). So does
memory: what was invalidated stays until its TTL ends, so there are as many copies of a user's entries as there were
events and refills within one TTL; and each user has one more small key, the number.

What only this strategy does: a value computed before an event and put after it goes to the number that the read had
learned, and is never served.
"""

from collections.abc import Sequence

from app.cache_async import AsyncStore


async def invalidate(store: AsyncStore, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Begin the user's next generation in all areas; returns 0, for nothing is deleted."""
    await store.renew(user)
    return 0
