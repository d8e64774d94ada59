"""Customers of the storefront.

    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000                    # web UI on port 8089
    locust -f loadtest/locustfile.py --host http://127.0.0.1:8000 --headless --run-time 30s

Rates of all customers together: LOADTEST_READS_PER_SECOND (50), LOADTEST_EVENTS_PER_SECOND (10). Number of customers:
LOADTEST_USERS (10000). Seconds that a customer waits for an answer: LOADTEST_TIMEOUT_SECONDS (10). How the load
changes over time: LOADTEST_SHAPE. While it runs: `GET`/`PUT /load` on the web UI, and `GET /metrics` for Prometheus.
More than one process can carry the load (`--processes N`, or `--master` and any number of `--worker --master-host
HOST`, also on other machines: distributed.md): the rates stay those of the whole.
"""

from __future__ import annotations

from geventhttpclient.client import HTTPClientPool
from locust import FastHttpUser, events, task
from locust.runners import STATE_RUNNING, STATE_SPAWNING
from locust.user.task import LOCUST_STATE_RUNNING

from loadtest.customers.load import Load, seconds_to_answer
from loadtest.customers.routes import Controls

load = Load.from_environment()

patience = seconds_to_answer()


class Customer(FastHttpUser):
    """Waits for its turn, sends a request, waits for its next turn. All customers share warm connections."""

    abstract = True
    client_pool = HTTPClientPool(concurrency=1000, connection_timeout=patience, network_timeout=patience)

    def on_start(self) -> None:
        self.wait()  # type: ignore[no-untyped-call] # Locust has no types here

    def stop(self, force: bool = False) -> bool:
        """End this user. One who moves to another worker ends after its request, which was sent and counts."""
        runner = self.environment.runner
        goes_on = runner is not None and runner.state in (STATE_SPAWNING, STATE_RUNNING)
        if goes_on and self._state == LOCUST_STATE_RUNNING:
            self._group.discard(self._greenlet)  # Locust neither counts it any more nor stops it again
            force = False
        return bool(super().stop(force))


class Browse(Customer):
    """A customer who looks at a fragment of a page."""

    weight = 2
    wait_time = load.reads.next_turn

    @task
    def read_fragment(self) -> None:
        self.client.get(
            f"/users/{load.random_user()}/fragments/{load.random_fragment()}",
            name="/users/[id]/fragments/[name]",
        )


class Order(Customer):
    """A customer who orders, and so makes everything cached for them stale."""

    weight = 1
    wait_time = load.events.next_turn

    @task
    def order(self) -> None:
        self.client.post(
            f"/users/{load.random_user()}/events",
            json={"type": load.random_event_type()},
            name="/users/[id]/events",
        )


Controls(load, reads=Browse, events=Order).attach(events)
