"""A user with very many cached entries, invalidated again and again by the storefront's own events.

`python -m loadtest.incidents.giant --storefront http://127.0.0.1:8000 --entries 100000` prints a JSON line for each
round (t, round, entries, fill_s, invalidation_s), and a last one that holds the `figures`:

    entries             number of the user's entries
    rounds              how many times they were cached and invalidated
    fill_s              median time that it took to cache them
    invalidation_s      median time from the event to its end (to 10 ms, because its state is asked that often)

In each round the storefront caches the user's entries in bulk (in transactions short enough to stall nobody), accepts
an event, and is asked until the event is done. Rounds begin `--every` seconds apart, or when the one before is done.
When its end is requested, it finishes the round under way, and leaves none of its entries.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from time import monotonic, perf_counter, time

from loadtest.arguments import number, option
from loadtest.incidents.storefront import Storefront, StorefrontPlan
from loadtest.process import Stop, run_load, say

USER = 999_999_999
"""The default user: an id beyond those that the rest of the load asks about."""
MOST_ENTRIES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Plan(StorefrontPlan):
    """The options of the load: user, entries, rounds."""

    url: str = option("accepted, as by all loads, and not used", default="")
    user: int = option("user whose entries are cached", number(1, 10**9, int), USER)
    entries: int = option("entries of the user", number(1, MOST_ENTRIES, int), 100_000)
    rounds: int = option("least number of rounds", number(1, 10_000, int), 3)
    seconds: float = option("least number of seconds", number(0, 86_400), 0.0)
    every: float = option("seconds from the start of one round to the next", number(0, 3_600), 0.0)


class Giant:
    """Fills and invalidates one user's entries, round after round."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._storefront = Storefront(*plan.storefront)
        self._fills: list[float] = []
        self._invalidations: list[float] = []

    def run(self, stop: Stop) -> dict[str, float]:
        """Run at least as many rounds as planned, for at least as many seconds; returns the figures."""
        plan = self._plan
        end = monotonic() + plan.seconds
        while not stop.requested and (len(self._fills) < plan.rounds or monotonic() < end):
            due = monotonic() + plan.every
            self._round()
            stop.wait(due - monotonic())
        figures: dict[str, float] = {"entries": plan.entries, "rounds": len(self._fills)}
        if self._fills:
            figures["fill_s"] = statistics.median(self._fills)
            figures["invalidation_s"] = statistics.median(self._invalidations)
        return figures

    def _round(self) -> None:
        began = perf_counter()
        self._storefront.ask("PUT", f"/users/{self._plan.user}/fragments", {"count": self._plan.entries})
        filled = perf_counter()
        self._storefront.await_end(self._plan.user, self._storefront.send_event(self._plan.user))
        self._fills.append(filled - began)
        self._invalidations.append(perf_counter() - filled)
        say(
            {
                "t": time(),
                "round": len(self._fills),
                "entries": self._plan.entries,
                "fill_s": self._fills[-1],
                "invalidation_s": self._invalidations[-1],
            }
        )


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Run the rounds; returns the figures. Raises `LoadFailed`, `ConnectionLost`."""
    return Giant(plan).run(stop)


if __name__ == "__main__":
    sys.exit(run_load("giant", __doc__, Plan, work))
