"""Prices that another team caches in the shared server, and the price changes that a program carries out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from socket import socket
from typing import Any

from lab.blind.inbox import Inbox, Order
from loadtest.resp import Server, ask, command, connect

CHANGES = "latency-lab-changes"
"""Key of a list with the times of the price changes still to be carried out, oldest first."""
PRICES = "latency-lab-prices"
INDEX = f"{PRICES}-index"
VALUE = b"p" * 48
CHUNK = 250
"""Keys that a command caches or removes, unless an order has another `batch`."""
POLL_S = 0.005


def entry(number: int) -> str:
    """Return the key of one price."""
    return f"{PRICES}:{number}"


def put_prices(line: socket, members: int) -> None:
    """Cache and index all prices, in chunks too small to make other clients wait."""
    for start in range(0, members, CHUNK):
        keys = [entry(number) for number in range(start, min(members, start + CHUNK))]
        pairs = [word for key in keys for word in (key, VALUE)]
        ask(line, command("MSET", *pairs), command("SADD", INDEX, *keys), each=1)


def array(reply: object) -> list[Any]:
    """Return a reply that the protocol defines as an array."""
    assert isinstance(reply, list)
    return reply


def remove_in_parts(line: socket, size: int = CHUNK) -> None:
    """Remove all prices page by page of their index, with `size` keys in each UNLINK."""
    cursor: Any = b"0"
    while True:
        [reply] = ask(line, command("SSCAN", INDEX, cursor, "COUNT", max(CHUNK, size)))
        cursor, page = array(reply)
        keys = array(page)
        for start in range(0, len(keys), size):
            ask(line, command("UNLINK", *keys[start : start + size]))
        if cursor == b"0":
            return


def run_price_changes(
    order: Order, inbox: Inbox, server: Server, remove: Callable[[socket], None] | None = None
) -> None:
    """Carry out price changes one after the other until a new order comes: remove all prices, and cache them again.

    A change stays at the head of the list until it is done. Without `remove` each UNLINK has as many keys as the
    order's `batch`, by default `CHUNK`.
    """
    remove = remove or partial(remove_in_parts, size=order.get("batch", CHUNK))
    with connect(server) as line:
        put_prices(line, order["members"])
        while not inbox.news:
            [oldest] = ask(line, command("LINDEX", CHANGES, 0))
            if oldest is None:
                inbox.wait(POLL_S)
                continue
            remove(line)
            put_prices(line, order["members"])
            ask(line, command("LPOP", CHANGES))
