"""A customer with very many fragments, whose index is read and deleted as a whole while others read their pages.

    locust -f loadtest/giant_index.py --host http://127.0.0.1:8000 --headless --only-summary

Every `--giant-every-seconds` the storefront caches `--giant-fragments` fragments of that customer, and gets an event.
Under `index-naive` the server serves no other request while it deletes them; under `index` it deletes them in pieces.
"""

from __future__ import annotations

import json
import logging
import statistics
from time import monotonic
from typing import Any

import gevent  # type: ignore[import-untyped] # no type information in the package
from locust import events

from loadtest.arguments import number
from loadtest.customers.scenario import Growing, add_argument, attach
from loadtest.customers.shop import NoAnswer
from loadtest.customers.users import Browse, Order, Visit

__all__ = ["Browse", "GiantIndex", "Order", "Visit"]
GIANT = 999_999_999
"""A customer beyond those who visit."""


class GiantIndex(Growing):
    """Growth under `index-naive`, then the same load under each strategy, with the giant's events throughout."""

    strategies = ("index-naive", "index")

    def run_beside(self) -> None:
        self.took: dict[str, list[float]] = {}
        options: Any = self.runner and self.runner.environment.parsed_options
        pause = 0.0
        while not self.over.wait(pause):
            began = monotonic()
            try:
                self.shop.ask("PUT", f"/users/{GIANT}/fragments", {"count": options.giant_fragments})
                strategy, sent = self.strategy, monotonic()
                self._invalidate()
                self.took.setdefault(strategy, []).append(monotonic() - sent)
            except (NoAnswer, ValueError, KeyError) as error:
                logging.getLogger(__name__).warning("the giant: %s", error)
            pause = max(0.0, began + options.giant_every_seconds - monotonic())

    def _invalidate(self) -> None:
        event = json.loads(self.shop.ask("POST", f"/users/{GIANT}/events", {"type": "order"}))["event"]
        while json.loads(self.shop.ask("GET", f"/users/{GIANT}/events/{event}"))["state"] != "done":
            gevent.sleep(0.02)

    def remarks(self) -> list[str]:
        return [
            f"the giant's events under {strategy}: {len(took)}, done after {statistics.median(took):.2f} s (median)"
            for strategy, took in self.took.items()
        ]


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator] # Locust has no types here
def add_arguments(parser: Any) -> None:
    """The giant's size and pace."""
    add_argument(parser, "giant-fragments", number(1, 1_000_000, int), 100_000,
                 "fragments of the customer with very many")  # fmt: skip
    add_argument(parser, "giant-every-seconds", number(0.1, 3600), 5.0,
                 "seconds from one event of that customer to the next")  # fmt: skip


attach(events)
