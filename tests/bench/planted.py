"""Processes of the scene with planted bugs: the fault matrix must find them. `python -m tests.bench.planted NAME`.

`forgetful`: an invalidator that marks events of some users as handled, and does nothing for them. `stubborn`: a
storefront that keeps what it found in the cache for a while, and serves that (of some other users).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

ONE_IN = 10
KEPT_S = 1.6


def is_forgotten(user: int) -> bool:
    """True for users whose events the invalidator loses: their entries were cached before the load."""
    return user % ONE_IN == 0


def is_kept(user: int) -> bool:
    """True for users whose entries the storefront keeps: those whose events come early enough that it ends in time."""
    return user % 1_000 < 30 and not is_forgotten(user)


def forgetful() -> None:
    """An invalidator that loses events."""
    from app import invalidator
    from app.strategies import STRATEGIES

    honest = dict(STRATEGIES)

    def forgets(name: str) -> Any:
        async def invalidate(server: Any, user: int, areas: Sequence[str], scan_count: int) -> int:
            return 0 if is_forgotten(user) else await honest[name](server, user, areas, scan_count)

        return invalidate

    STRATEGIES.update({name: forgets(name) for name in honest})
    invalidator.main()


def stubborn() -> Any:
    """The storefront, which keeps what it found. For gunicorn: it changes `Cache` in the process that calls it."""
    from app.cache import Cache

    honest = Cache.get
    kept: dict[tuple[int, str], tuple[float, bytes]] = {}

    def get(self: Cache, user: int, name: str) -> bytes | None:
        known = kept.get((user, name))
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        value = honest(self, user, name)
        if value is not None and is_kept(user):
            kept[user, name] = time.monotonic() + KEPT_S, value
        return value

    Cache.get = get  # type: ignore[method-assign]
    from app.web import application

    return application


if __name__ == "__main__":
    if sys.argv[1:] == ["forgetful"]:
        forgetful()
    conf = "app/gunicorn_conf.py"
    os.execv(sys.executable, [sys.executable, "-m", "gunicorn", "-c", conf, "tests.bench.planted:stubborn()"])
