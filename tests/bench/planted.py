"""Processes of the scene with planted bugs: the fault matrix must find them. `python -m tests.bench.planted NAME`.

`forgetful`: an invalidator that marks events of some users as handled, and does nothing for them. `stubborn`: a
storefront that keeps what it found in the cache, and serves that once more (of some other users). It counts reads, and
no time, so that it serves as many old entries on a busy machine as on an idle one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

ONE_IN, KEPT_ONE_IN = 10, 6
FIRST_USER = 1_000_000


def is_forgotten(user: int) -> bool:
    """True for users whose events the invalidator loses: their entries were cached before the load."""
    return user % ONE_IN == 0


def is_kept(user: int) -> bool:
    """True for users whose entries the storefront keeps: of those that are cached before the load and read after it."""
    return user % KEPT_ONE_IN == FIRST_USER % KEPT_ONE_IN and not is_forgotten(user)


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
    kept: dict[tuple[int, str], bytes] = {}

    def get(self: Cache, user: int, name: str) -> bytes | None:
        known = kept.pop((user, name), None)
        if known is not None:
            return known
        value = honest(self, user, name)
        if value is not None and is_kept(user):
            kept[user, name] = value
        return value

    Cache.get = get  # type: ignore[method-assign]
    from app.web import application

    return application


if __name__ == "__main__":
    if sys.argv[1:] == ["forgetful"]:
        forgetful()
    conf = "app/gunicorn_conf.py"
    os.execv(sys.executable, [sys.executable, "-m", "gunicorn", "-c", conf, "tests.bench.planted:stubborn()"])
