"""Keys grow while each event asks the server for KEYS: one command, during which no other client is served.

locust -f loadtest/keys_command.py --host http://127.0.0.1:8000 --headless --only-summary
"""

from __future__ import annotations

from locust import events

from loadtest.customers.scenario import Growing, attach
from loadtest.customers.users import Browse, Order, Visit

__all__ = ["Browse", "KeysCommand", "Order", "Visit"]


class KeysCommand(Growing):
    """Growth under `keys`, then the same load at the most keys."""

    strategies = ("keys",)


attach(events)
