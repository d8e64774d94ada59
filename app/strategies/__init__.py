"""Ways to invalidate everything cached for a user. Adding one is a module here and its name in
`app.settings`.
"""

from collections.abc import Awaitable, Callable, Sequence

from app.cache_async import AsyncStore
from app.settings import STRATEGY_NAMES
from app.strategies import exact, index, keys, scan

Strategy = Callable[[AsyncStore, int, Sequence[str], int], Awaitable[int]]
"""(store, user, areas, scan_count) -> number of entries deleted."""

STRATEGIES: dict[str, Strategy] = {
    "scan": scan.invalidate,
    "keys": keys.invalidate,
    "exact": exact.invalidate,
    "index": index.invalidate,
}
assert tuple(STRATEGIES) == STRATEGY_NAMES
