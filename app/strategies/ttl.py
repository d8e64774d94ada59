"""`ttl`: do nothing. What is cached is served until its TTL ends, whatever happened meanwhile.

Cost: an event costs nothing, and a put is a single SET, because no index must match it (see `app.layouts.PlainCache`).
The price is age: up to one TTL passes until everybody sees an event. Right for data that may be old, for data that
never changes, and as the yardstick of what the other strategies cost.
"""

from collections.abc import Sequence

from app.cache_async import AsyncClient


async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
    """Leave everything where it is; returns 0."""
    return 0
