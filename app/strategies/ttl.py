"""`ttl`: do nothing. What is cached is served until its TTL ends, whatever happened meanwhile.

Cost: none, at an event; and a put is a single SET, because there is nothing to keep true beside it (see
`app.layouts.PlainCache`). The price is age: every event waits for up to one TTL until everybody sees it. Right for what
may be old, for data that nothing changes, and as the yardstick of what the other strategies cost.
"""

from collections.abc import Sequence

from app.cache_async import AsyncStore


async def invalidate(store: AsyncStore, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Leave everything where it is; returns 0."""
    return 0
