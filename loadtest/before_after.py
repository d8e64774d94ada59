"""The cure: keys grow under `scan`; then, with the same keys and the same load, events use the `index`.

locust -f loadtest/before_after.py --host http://127.0.0.1:8000 --headless --only-summary
"""

from __future__ import annotations

from locust import events

from loadtest.customers.scenario import Growing, attach
from loadtest.customers.users import Browse, Order, Visit

__all__ = ["BeforeAfter", "Browse", "Order", "Visit"]


class BeforeAfter(Growing):
    """Growth under `scan`, and as long under each strategy at the most keys."""

    strategies = ("scan", "index")


attach(events)
