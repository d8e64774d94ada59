"""A pod is killed, a release upgraded, the node drained: no accepted event is lost. A server restarted comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.compose.stack import until
from tests.kubernetes import configs
from tests.kubernetes.groups import ONE, ROOM, SERVER, TWO, VALUES
from tests.kubernetes.kube import Customers, Kube

KEYS, COUNT = 20_000, 100
"""Keys on the server, and of each SCAN: events then take so long that many are under way whenever something happens."""
READERS = 30
DONE_S = 120
RECOVERS_S = 90
Settings = Callable[[str, dict[str, object]], object]


@pytest.fixture
def slow(releases: Kube) -> Iterator[Settings]:
    """A storefront whose events are slow; at the end they are quick, and the server is left to its keys."""

    def put(what: str, body: dict[str, object]) -> object:
        return releases.json(ONE, "web-redis", 9101, f"/settings/{what}", body, "PUT")

    put("warming", {"target_keys": KEYS})
    until(
        lambda: releases.json(ONE, "web-redis", 9101, "/settings/warming")["keys"] >= KEYS,
        f"{KEYS:,} keys",
        120,
    )
    put("invalidation", {"strategy": "scan", "scan_count": COUNT})
    yield put
    put("invalidation", {"strategy": "index"})
    put("warming", {"target_keys": 0})


def all_done(customers: Customers, settings: Settings) -> None:
    """Let events be quick, and wait until every accepted one is done."""
    until(lambda: settings("invalidation", {"strategy": "index"}), "the storefront answers", DONE_S)
    until(lambda: not customers.pending(), f"{len(customers.accepted)} accepted events done", DONE_S, every=2)
    print(f"{len(customers.accepted)} events accepted, {customers.refused} refused, all accepted ones done")


def something_to_lose(customers: Customers) -> None:
    """Wait until many events are accepted, and some are not done."""
    customers.wait(60)
    assert len(customers.pending()) > 5, "nothing is under way: this would prove nothing"


def test_a_killed_pod_loses_no_event(releases: Kube, slow: Settings) -> None:
    """All processes of a storefront are killed at once; its accepted events are done, and done to the server."""
    first = 900_000_000
    users = range(first + 1, first + 1 + READERS)

    def read(user: int) -> str:
        return releases.ask(ONE, "web-redis", 8000, f"/users/{user}/fragments/page-1")[1]["Cache-Status"]

    for user in users:
        read(user)
    assert {read(user) for user in users} == {"shop; hit"}
    with Customers(releases, ONE, "redis", first) as customers:
        something_to_lose(customers)
        releases.kill(ONE, "storefront-redis")
        customers.wait(40, DONE_S)
    all_done(customers, slow)
    accepted = set(customers.accepted.values())
    assert {read(user) for user in users if user in accepted} == {"shop; fwd=miss"}


def test_an_upgrade_loses_no_event(releases: Kube, slow: Settings) -> None:
    """`helm upgrade` replaces the storefront's pod while events arrive."""
    before = releases.pod(ONE, "storefront-redis")["metadata"]["uid"]
    with Customers(releases, ONE, "redis", 910_000_000) as customers:
        something_to_lose(customers)
        releases.helm("upgrade", ONE, *VALUES[ONE], "--set", "resources.web.memory=208")
        releases.wait_ready(ONE)
        customers.wait(40, DONE_S)
    assert releases.pod(ONE, "storefront-redis")["metadata"]["uid"] != before
    all_done(customers, slow)


def pending(kube: Kube, namespace: str) -> bool:
    """True while every pod of a namespace waits for a node."""
    return {pod["status"]["phase"] for pod in kube.get("pods", namespace)} == {"Pending"}


def test_a_drained_node_loses_no_event(releases: Kube, slow: Settings) -> None:
    """The node is drained, all pods wait for one, it comes back: what was accepted before and after is done."""
    try:
        with Customers(releases, ONE, "redis", 920_000_000) as customers:
            something_to_lose(customers)
            words = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=150s"]
            releases("drain", configs.NODE_NAME, *words, seconds=180)
            for group in SERVER:
                until(partial(pending, releases, group), f"every pod of {group} pending")
            releases("uncordon", configs.NODE_NAME)
            for name in (ROOM, ONE, TWO):
                releases.wait_ready(name)
            customers.wait(40, DONE_S)
    finally:
        releases("uncordon", configs.NODE_NAME)
    all_done(customers, slow)


def test_a_server_that_is_told_to_end_comes_back(releases: Kube) -> None:
    """The console restarts a server by SHUTDOWN: its container starts again in the same pod, and requests reach it.

    The console holds the number of keys from then on, so the tests that set it come before.
    """
    before = releases.pod(ONE, "redis")
    status, _, said = releases.ask(ONE, "control", 8080, "/api/servers/redis/restart", {})
    assert status == 200, said

    def back() -> bool:
        pod = releases.pod(ONE, "redis")
        [container] = pod["status"]["containerStatuses"]
        again = container["restartCount"] > before["status"]["containerStatuses"][0]["restartCount"]
        return pod["metadata"]["uid"] == before["metadata"]["uid"] and again and bool(container["ready"])

    until(back, "the server back in its pod", RECOVERS_S)
    until(partial(releases.json, ONE, "web-redis", 9101, "/readyz"), "the storefront ready", RECOVERS_S)
