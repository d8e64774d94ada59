"""Customers of the storefront, at rates that a person or a program sets. The keys do not grow by themselves.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000                    # web UI on port 8089
    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --headless --run-time 30s

Rates of all customers together: LOADTEST_READS_PER_SECOND (50), LOADTEST_EVENTS_PER_SECOND (10). Number of customers:
LOADTEST_USERS (10000). Seconds that a customer waits for an answer: LOADTEST_TIMEOUT_SECONDS (10). How the load
changes over time: LOADTEST_SHAPE. While it runs: `GET`/`PUT /load` on the web UI, and `GET /metrics` for Prometheus.
Several processes can carry the load (`--processes N`, or `--master` and `--worker`): the rates stay those of the whole.
"""

from __future__ import annotations

from locust import events

from loadtest.customers.routes import Controls
from loadtest.customers.users import Browse, Order, Visit, load

__all__ = ["Browse", "Order", "Visit"]

Controls(load).attach(events)
