"""Ways to invalidate everything cached for a user. Adding one is a module here and its name in
`app.settings`; one that wants its entries written in another way has a layout in `app.layouts` too.
"""

from collections.abc import Awaitable, Callable, Sequence

from app.cache_async import AsyncStore
from app.settings import STRATEGY_NAMES
from app.strategies import exact, generation, hash, index, index_naive, keys, scan, ttl

Strategy = Callable[[AsyncStore, int, Sequence[str], int], Awaitable[int]]
"""(store, user, areas, scan_count) -> number of keys deleted."""

STRATEGIES: dict[str, Strategy] = {
    "scan": scan.invalidate,
    "keys": keys.invalidate,
    "exact": exact.invalidate,
    "index": index.invalidate,
    "index-naive": index_naive.invalidate,
    "hash": hash.invalidate,
    "generation": generation.invalidate,
    "ttl": ttl.invalidate,
}
assert tuple(STRATEGIES) == STRATEGY_NAMES
