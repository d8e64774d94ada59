"""Strategies that invalidate everything cached for a user: a module each, and a row in `STRATEGY_ROWS`."""

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module

from app.cache_async import AsyncClient
from app.settings import STRATEGY_ROWS

Strategy = Callable[[AsyncClient, int, Sequence[str], int], Awaitable[int]]
"""(client, user, areas, scan_count) -> number of keys deleted."""

STRATEGIES: dict[str, Strategy] = {
    name: import_module(f"{__name__}.{name.replace('-', '_')}").invalidate for name in STRATEGY_ROWS
}
