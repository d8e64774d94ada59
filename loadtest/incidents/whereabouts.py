"""On how many nodes of a cluster are the keys of one user? Reads the names of all keys from every node, once.

`python -m loadtest.incidents.whereabouts --url redis://127.0.0.1:7001 --storefront shop` finds the other nodes by
itself. It counts the storefront's keys that belong to a user: entries, index sets, hashes, numbers.

The one line of output holds the `figures`:

    nodes                  nodes of the cluster that have slots
    nodes_with_keys        nodes that have such keys
    users                  users that have at least --least keys
    keys_per_user          the mean number of their keys
    nodes_per_user_most    nodes that have keys of a user: the most of all these users
    nodes_per_user_least   the least
    slots_per_user_most    slots that have keys of a user, the most
"""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.cluster import Nodes, slot_of
from loadtest.process import Stop, run_load
from loadtest.resp import LoadFailed, ask, command, connect

USER = re.compile(r":\{(\d+)\}:|:user:(\d+):|-(?:index|hash|generation):(\d+)(?::|$)")
"""Matches the user's id in a key of any layout of the storefront."""


def user_of(key: str) -> int | None:
    """The user whose key it is; None for any other key."""
    found = USER.search(key)
    return int(next(group for group in found.groups() if group)) if found else None


def keys_on(line: socket.socket, prefix: str, count: int) -> Iterator[str]:
    """The names of all keys of a node that begin with the prefix."""
    cursor = b"0"
    while True:
        (page,) = ask(line, command("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", count))
        if not isinstance(page, list):
            raise LoadFailed(f"SCAN is answered by {page!r:.60}")
        cursor = page[0]
        yield from (key.decode(errors="replace") for key in page[1])
        if cursor == b"0":
            return


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """Whose keys to count, and how to read them."""

    storefront: str = option("beginning of the keys", word, "shop")
    least: int = option("fewest keys of a user who counts", number(1, 1000, int), 20)
    count: int = option("COUNT of each SCAN", number(1, 10**6, int), 2000)


def look(plan: Plan, _: Stop) -> dict[str, float]:
    """Read all names, and count."""
    nodes = Nodes(plan.server)
    places: dict[int, set[int]] = defaultdict(set)
    slots: dict[int, set[int]] = defaultdict(set)
    keys: dict[int, int] = defaultdict(int)
    seen: dict[int, set[str]] = defaultdict(set)
    for number_, server in enumerate(nodes.servers):
        with contextlib.closing(connect(server)) as line:
            for key in keys_on(line, plan.storefront, plan.count):
                user = user_of(key)
                if user is None or key in seen[user]:  # SCAN may return a key more than once
                    continue
                seen[user].add(key)
                keys[user] += 1
                places[user].add(number_)
                slots[user].add(slot_of(key))
    whole = [user for user in keys if keys[user] >= plan.least]
    if not whole:
        raise LoadFailed(f"no user of {plan.storefront} has {plan.least} keys")
    return {
        "nodes": float(len(nodes.servers)),
        "nodes_with_keys": float(len(set().union(*places.values()))),
        "users": float(len(whole)),
        "keys_per_user": sum(keys[user] for user in whole) / len(whole),
        "nodes_per_user_most": float(max(len(places[user]) for user in whole)),
        "nodes_per_user_least": float(min(len(places[user]) for user in whole)),
        "slots_per_user_most": float(max(len(slots[user]) for user in whole)),
    }


if __name__ == "__main__":
    sys.exit(run_load("whereabouts", __doc__, Plan, look))
