"""Bugs of each kind that `bench.history` looks for: does it find them? `python -m tests.bench.plants NAME ...`.

Each is a process of `bench.history_load` in which the bug is planted first.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.cache import Cache
from app.cache_async import AsyncClient
from app.fragments import Keyspace
from app.invalidator import Invalidator
from app.layouts import KINDS, GenerationCache
from app.state import Event, Invalidation
from app.strategies import STRATEGIES, Strategy
from bench import history_load

ONE_IN = 10
REMEMBERED_S = 10.0

_carry_out = Invalidator._attempt


async def _drop_some(self: Invalidator, event: Event, mode: Invalidation, attempt: int) -> None:
    if event.id % ONE_IN:
        await _carry_out(self, event, mode, attempt)


def _forgetful(strategy: Strategy) -> Strategy:
    async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
        return await strategy(client, user, areas[1:], scan_count)

    return invalidate


class UnindexedCache(Cache):
    """Takes some entries out of the index again."""

    def put(self, user: int, name: str, value: bytes | str, since: int = 0) -> None:
        """Cache a fragment."""
        super().put(user, name, value, since)
        if random.randrange(ONE_IN) == 0:
            index = self.keyspace.index(user, self.keyspace.bucket(self.now()))
            self._timed("SREM", self._client.execute_command, "SREM", index, self.keyspace.member(name))


_numbers: dict[tuple[str, int], tuple[float, int]] = {}


class RememberingCache(GenerationCache):
    """Remembers each user's generation for a while, to save the second round trip."""

    def _learn(self, user: int) -> tuple[int, bool]:
        key = self.keyspace.prefix, user
        at, number = _numbers.get(key, (0.0, 0))
        if time.monotonic() - at < REMEMBERED_S:
            return number, False
        learned = super()._learn(user)
        _numbers[key] = time.monotonic(), learned[0]
        return learned


def _first_epoch(self: Keyspace, _epoch: int) -> Keyspace:
    return self


def _drop_events() -> None:
    Invalidator._attempt = _drop_some  # type: ignore[method-assign]


def _know_no_epochs() -> None:
    Keyspace.at = _first_epoch  # type: ignore[method-assign, assignment]


def _forget_areas() -> None:
    for name, strategy in list(STRATEGIES.items()):
        STRATEGIES[name] = _forgetful(strategy)


class Plant(NamedTuple):
    """A bug: the kind of accusation that it must bring, strategies under which it acts, and what plants it for good."""

    kind: str
    under: tuple[str, ...]
    plant: Callable[[], None]


PLANTS = {
    "lost-event": Plant("lost event", ("index", "generation"), _drop_events),
    "forgotten-area": Plant("stale read", ("index", "scan"), _forget_areas),
    "lost-index-entry": Plant("lost index entry", ("index",), lambda: KINDS.update(entries=UnindexedCache)),
    "old-generation": Plant("old epoch", ("generation",), lambda: KINDS.update(generation=RememberingCache)),
    "one-epoch": Plant("old epoch", ("switch",), _know_no_epochs),
}


if __name__ == "__main__":
    PLANTS[sys.argv[1]].plant()
    history_load.main(sys.argv[2:])
