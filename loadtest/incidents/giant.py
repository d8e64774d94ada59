"""One user with very many cached entries, invalidated again and again by the storefront's own events.

`python -m loadtest.incidents.giant --storefront http://127.0.0.1:8000 --entries 100000` prints a JSON line for each
round (t, round, entries, fill_s, invalidation_s), and a last one that holds the `figures`:

    entries             number of the user's entries
    rounds              how many times they were cached and invalidated
    fill_s              median time that it took to cache them
    invalidation_s      median time from the event to its end (to 10 ms, because its state is asked that often)

In each round the storefront caches the user's entries in bulk (in transactions short enough to stall nobody), accepts
an event, and is asked until the event is done. Rounds begin `--every` seconds apart, or when the one before is done.
On SIGTERM, or with `--until-stdin-ends` at the end of stdin, it ends after the round under way: exit code 0, none of
its entries left. Bad arguments: 2. A storefront that refuses or is gone: 3. (--url, which all loads accept, is not
used.)
"""

from __future__ import annotations

import statistics
import sys
from time import monotonic, perf_counter, sleep, time

from loadtest.arguments import Parser, number
from loadtest.incidents.storefront import Storefront, address
from loadtest.process import Stop, run_load, say

USER = 999_999_999
"""The default user: an id beyond those that the rest of the load asks about."""
MOST_ENTRIES = 1_000_000


class Giant:
    """Fills and invalidates one user's entries, round after round."""

    def __init__(self, storefront: Storefront, user: int, entries: int) -> None:
        self._storefront, self._user, self._entries = storefront, user, entries
        self._fills: list[float] = []
        self._invalidations: list[float] = []

    def run(self, rounds: int, seconds: float, every: float, stop: Stop) -> dict[str, float]:
        """Run at least `rounds` rounds, for at least `seconds` seconds; returns the figures."""
        end = monotonic() + seconds
        while not stop.requested and (len(self._fills) < rounds or monotonic() < end):
            due = monotonic() + every
            self._round()
            while (left := due - monotonic()) > 0 and not stop.requested:
                sleep(min(left, 0.05))
        figures: dict[str, float] = {"entries": self._entries, "rounds": len(self._fills)}
        if self._fills:
            figures["fill_s"] = statistics.median(self._fills)
            figures["invalidation_s"] = statistics.median(self._invalidations)
        return figures

    def _round(self) -> None:
        began = perf_counter()
        self._storefront.ask("PUT", f"/users/{self._user}/fragments", {"count": self._entries})
        filled = perf_counter()
        self._storefront.await_end(self._user, self._storefront.send_event(self._user))
        self._fills.append(filled - began)
        self._invalidations.append(perf_counter() - filled)
        say(
            {
                "t": time(),
                "round": len(self._fills),
                "entries": self._entries,
                "fill_s": self._fills[-1],
                "invalidation_s": self._invalidations[-1],
            }
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the load; returns the exit code."""
    parser = Parser("giant", "One user with very much cached; one JSON line a round.")
    parser.add_argument(
        "--storefront", type=address, required=True, help="the storefront's base URL: http://127.0.0.1:8000"
    )
    parser.add_argument(
        "--user", type=number(1, 10**9, int), default=USER, help=f"user whose entries are cached ({USER})"
    )
    parser.add_argument(
        "--entries", type=number(1, MOST_ENTRIES, int), default=100_000, help="entries of the user (100000)"
    )
    parser.add_argument("--rounds", type=number(1, 10_000, int), default=3, help="least number of rounds (3)")
    parser.add_argument("--seconds", type=number(0, 86_400), default=0.0, help="least number of seconds (0)")
    parser.add_argument(
        "--every",
        type=number(0, 3_600),
        default=0.0,
        help="seconds from the start of one round to the next (0)",
    )
    options = parser.parse_args(arguments)

    def work(stop: Stop) -> dict[str, float]:
        giant = Giant(Storefront(*options.storefront), options.user, options.entries)
        return giant.run(options.rounds, options.seconds, options.every, stop)

    return run_load(parser.prog, work, options.until_stdin_ends)


if __name__ == "__main__":
    sys.exit(main())
