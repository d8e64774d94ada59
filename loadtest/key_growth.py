"""Keys grow because customers come, and with the keys grows the cost of each event's search.

    locust -f loadtest/key_growth.py --host http://127.0.0.1:8000 --headless --only-summary

Every visit reads a page, and caches its twenty fragments if they are not. New customers come at a constant rate until
there are `--keys` keys; then the same customers come again. The strategy is not changed: a person may change it
meanwhile. Without `--headless` there is Locust's page on port 8089, and the load goes on until it is stopped there;
`PUT /load` changes the load.
"""

from __future__ import annotations

from locust import events

from loadtest.customers.scenario import Growing, attach
from loadtest.customers.users import Browse, Order, Visit

__all__ = ["Browse", "KeyGrowth", "Order", "Visit"]


class KeyGrowth(Growing):
    """Growth, then the same load at the most keys."""


attach(events)
