"""The race of cache-aside, provoked: a value computed before an event and put after it, and served to the next read.

A read that finds nothing computes the value and then puts it. An event that is carried out meanwhile cannot delete an
entry that does not exist yet. A storefront computes a fragment for as long as `miss_cost_ms` in the request says, so
the race is made as follows, through its HTTP interface only: reads of fragments that are not cached; an event while
they are computed; when the event is done and the reads are answered, the same reads again. A hit serves a raced value.

What the moments do not prove counts as no try. The computing had begun at the latest `miss_cost_ms` before the answer
came: that must be before the event was sent. It ended at the earliest `miss_cost_ms` after the request was sent: that
must be after the event was known to be done. (And a storefront that answers sooner does not compute for that long.)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import monotonic, sleep

from loadtest.incidents.storefront import Storefront

HEAD_START_S, SPARE_S = 0.02, 0.04
"""Between the reads and the event: the time in which they reach the storefront. And how much longer they compute."""
LONGEST_S = 10.0
"""A storefront computes for that long at most."""


@dataclass
class Races:
    """Counts of values computed across an event (`tries`), and of those that the next read got (`served`).

    `event_s`: how long an event took before. `patience`: a factor to all times, larger where the machine is slow.
    """

    event_s: float
    patience: float = 1.0
    tries: int = 0
    served: int = 0

    @property
    def computing_ms(self) -> int:
        """The time to compute, so that an event is done meanwhile."""
        seconds = self.patience * (HEAD_START_S + 1.25 * self.event_s + SPARE_S)
        return round(1e3 * min(LONGEST_S, seconds))


def provoke(front: Storefront, user: int, names: Sequence[str], races: Races) -> None:
    """Send an event of a user while `names`, which are not cached, are computed; count the races.

    Raises `LoadFailed` or `ConnectionLost` as the storefront's client does.
    """
    cost_ms = races.computing_ms
    with ExitStack() as stack:
        lines = [stack.enter_context(closing(front.another())) for _ in names]
        pool = stack.enter_context(ThreadPoolExecutor(len(names)))
        reads = [
            pool.submit(_read, line, user, name, cost_ms) for line, name in zip(lines, names, strict=True)
        ]
        sleep(races.patience * HEAD_START_S)
        sent = monotonic()
        front.await_end(user, front.send_event(user))
        done = monotonic()
        for name, read in zip(names, reads, strict=True):
            asked_at, answered, missed = read.result()
            begun, ended = answered - cost_ms / 1e3, asked_at + cost_ms / 1e3
            if missed and begun < sent and done < ended <= answered:
                races.tries += 1
                races.served += front.cached(user, name)


def _read(line: Storefront, user: int, name: str, cost_ms: int) -> tuple[float, float, bool]:
    """Return when a fragment was requested, when the answer came, and True if it was computed for it."""
    asked_at = monotonic()
    hit = line.cached(user, name, cost_ms)
    return asked_at, monotonic(), not hit
