"""The users that carry the load. Each waits for its turn, sends a request, and waits for its next turn.

The weights are shares of all users: enough of each kind for its usual rate through a stall of seconds. Their sum, 13,
is a prime number: Locust deals users to its workers in turn, and so every worker gets users of every kind.
"""

from __future__ import annotations

from geventhttpclient.client import HTTPClientPool
from locust import FastHttpUser, task

from loadtest.customers.load import EVENTS_NAME, READS_NAME, VISITS_NAME, Load, seconds_to_answer

FRAGMENT, PAGE, EVENT = "/users/[id]/fragments/[name]", "/users/[id]/page", "/users/[id]/events"
KINDS = {FRAGMENT: READS_NAME, PAGE: VISITS_NAME, EVENT: EVENTS_NAME}
"""Name of a request in Locust's statistics → its kind in `/load` and `/metrics`."""

load = Load.from_environment()
patience = seconds_to_answer()


class Customer(FastHttpUser):
    """A customer of any kind: all share warm connections."""

    abstract = True
    client_pool = HTTPClientPool(concurrency=1000, connection_timeout=patience, network_timeout=patience)

    def on_start(self) -> None:
        self.wait()  # type: ignore[no-untyped-call] # Locust has no types here


class Visit(Customer):
    """A customer who opens the page."""

    weight = 6
    wait_time = load.visits.next_turn

    @task
    def open_page(self) -> None:
        self.client.get(f"/users/{load.next_customer()}/page", name=PAGE)


class Browse(Customer):
    """A customer who looks at a single fragment of a page."""

    weight = 4
    wait_time = load.reads.next_turn

    @task
    def read_fragment(self) -> None:
        self.client.get(f"/users/{load.random_user()}/fragments/{load.random_fragment()}", name=FRAGMENT)


class Order(Customer):
    """A customer who orders, and so makes everything cached for them stale."""

    weight = 3
    wait_time = load.events.next_turn

    @task
    def order(self) -> None:
        self.client.post(
            f"/users/{load.random_customer()}/events", json={"type": load.random_event_type()}, name=EVENT
        )
