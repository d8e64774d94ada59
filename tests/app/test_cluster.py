"""The storefront on a cluster of three nodes: where keys are, where an event goes, and what becomes of a change."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cache import CacheUnavailable
from app.cache_async import AsyncClient, connect, disconnect
from app.cluster import SLOTS_KNOWN_S
from app.fragments import AREAS
from app.settings import Settings
from app.strategies import STRATEGIES
from tests.app.servicekit import SLOTS, ServerProcess, cluster_of, eventually, free_port
from tests.app.test_layouts import cache_of, calls, invalidate

USERS = 60
EACH = 20


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """A cluster of three nodes."""
    servers = cluster_of(tmp_path_factory.mktemp("cluster"), 3)
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def on_cluster(nodes: list[ServerProcess], tmp_path: Path) -> Settings:
    """Settings on the emptied cluster; the address is that of its last node."""
    for node in nodes:
        node.client().flushall()
        node.client().config_resetstat()
    return Settings(store_url=nodes[-1].url, store_cluster=True, state_dir=tmp_path / "state")


def key_counts(nodes: list[ServerProcess], user: int) -> list[int]:
    """Return the number of a user's keys on each node."""
    return [
        len([key for key in node.client().keys("*") if f"{{{user}}}" in key or f":user:{user}:" in key])
        for node in nodes
    ]


@pytest.mark.parametrize("strategy", ["scan-tagged", "index-tagged"])
def test_an_event_removes_the_users_entries_on_their_node(
    on_cluster: Settings, nodes: list[ServerProcess], strategy: str
) -> None:
    """A user's keys are on one node; both ways delete that user's entries, filled or put, and nobody else's."""
    cache = cache_of(on_cluster, strategy)
    assert cache.put_users(range(1, USERS + 1)) == USERS * EACH
    cache.put(7, "page-extra", b"x")
    assert cache.get(7, "page-extra") == b"x"
    assert sorted(key_counts(nodes, 7)) == [0, 0, EACH + 2]
    assert cache.census() == ("", USERS * (EACH + 1) + 1)
    assert invalidate(on_cluster, strategy, 7, clock=cache.now) == EACH + 1
    assert cache.get(7, "page-extra") is None
    assert sum(len(node.client().keys("shop:*")) for node in nodes) == EACH * (USERS - 1)
    cache.close()


def test_a_search_asks_every_node_and_an_index_one(on_cluster: Settings, nodes: list[ServerProcess]) -> None:
    """SCAN is called on all nodes, three iterations on each; SSCAN on the node of the user's slot only."""
    cache = cache_of(on_cluster, "scan-tagged")
    cache.put_users(range(1, USERS + 1))
    invalidate(on_cluster, "scan-tagged", 7)
    assert all(calls(node.client()).get("scan", 0) >= 3 for node in nodes)
    invalidate(on_cluster, "index-tagged", 8)
    assert sorted("sscan" in calls(node.client()) for node in nodes) == [False, False, True]
    cache.close()


def test_without_tags_a_users_entries_are_on_every_node(
    on_cluster: Settings, nodes: list[ServerProcess]
) -> None:
    """The layout `plain` writes each entry to its own slot's node, in bulk and one by one."""
    cache = cache_of(on_cluster, "ttl")
    assert cache.put_users([7]) == EACH
    cache.put(7, "page-extra", b"x")
    assert cache.get(7, "page-extra") == b"x"
    assert min(key_counts(nodes, 7)) > 0
    assert sum(key_counts(nodes, 7)) == EACH + 1
    cache.close()


def test_layouts_whose_transactions_cross_slots_are_refused(on_cluster: Settings) -> None:
    """A put of the layout `entries` is no success, whatever node it asks, and neither is a fill."""
    cache = cache_of(on_cluster, "scan")
    with pytest.raises(CacheUnavailable):
        cache.put(5, "cart-1", b"value")
    with pytest.raises(CacheUnavailable):
        cache.put_users([5])
    cache.close()


def test_one_user_in_bulk_and_the_marker(on_cluster: Settings) -> None:
    """`put_many` writes more entries than one transaction takes; the marker is told with the number of keys."""
    cache = cache_of(on_cluster, "index-tagged")
    assert cache.put_many(9, 1200) == 1200
    cache.set_marker("fill-1")
    assert cache.census() == ("fill-1", 1202)
    assert invalidate(on_cluster, "index-tagged", 9, clock=cache.now) == 1200
    cache.close()


def test_slots_that_were_given_away_are_found_again(tmp_path: Path) -> None:
    """Reads, puts, fills, events and searches follow when all slots move to a node that came later."""
    first, second = cluster_of(tmp_path, 2)
    settings = Settings(store_url=first.url, store_cluster=True, state_dir=tmp_path / "state")
    cache = cache_of(settings, "scan-tagged")
    cache.put_users(range(1, USERS + 1))
    taker = second.client().execute_command("CLUSTER", "MYID")

    async def whole() -> None:
        raw = connect(settings)
        searching = AsyncClient(raw, settings, "scan-tagged", cache.now)
        indexed = AsyncClient(raw, settings, "index-tagged", cache.now)
        try:
            assert await STRATEGIES["scan-tagged"](searching, 7, AREAS, 100) == EACH
            for node in (first, second):
                node.client().flushall()
                pipe = node.client().pipeline(transaction=False)
                for slot in range(SLOTS // 2):
                    pipe.execute_command("CLUSTER", "SETSLOT", slot, "NODE", taker)
                pipe.execute()
            await asyncio.sleep(SLOTS_KNOWN_S)
            cache.put(3, "page-0", b"new")
            cache.put_users(range(1, USERS + 1))
            assert cache.get(3, "page-0") is not None
            assert await STRATEGIES["index-tagged"](indexed, 3, AREAS, 100) == EACH
            assert await STRATEGIES["scan-tagged"](searching, 8, AREAS, 100) == EACH
            assert len(await raw.places()) == 1
        finally:
            await disconnect(raw)

    try:
        asyncio.run(whole())
    finally:
        cache.close()
        first.stop()
        second.stop()


def test_a_cluster_that_is_away_is_an_error_and_comes_back(tmp_path: Path) -> None:
    """Nothing is raised when the client is made. Every call fails in one line until the node is there."""
    settings = Settings(
        store_url=f"redis://127.0.0.1:{free_port()}/0", store_cluster=True, state_dir=tmp_path
    )
    cache = cache_of(settings, "index-tagged")
    for call in (
        cache.ping,
        lambda: cache.put(1, "page-0", b"x"),
        lambda: cache.put_users([1]),
        cache.census,
    ):
        with pytest.raises(CacheUnavailable) as caught:
            call()
        assert "\n" not in str(caught.value)
    cache.close()


def test_a_restarted_node_is_used_again(tmp_path: Path) -> None:
    """Reads fail while it is away, and are served after."""
    [node] = cluster_of(tmp_path, 1)
    settings = Settings(store_url=node.url, store_cluster=True, state_dir=tmp_path / "state")
    cache = cache_of(settings, "index-tagged")
    try:
        cache.put(1, "page-0", b"x")
        node.stop()
        with pytest.raises(CacheUnavailable):
            cache.get(1, "page-0")
        node.start()

        def served() -> bool:
            try:
                cache.put(1, "page-0", b"x")
                return cache.get(1, "page-0") == b"x"
            except CacheUnavailable:
                return False

        eventually(served)
    finally:
        cache.close()
        node.stop()


def test_a_backfill_of_a_cluster_is_refused_in_one_line() -> None:
    """Its cursor is one server's."""
    done = subprocess.run(
        [sys.executable, "-m", "app.backfill"],
        env={**os.environ, "APP_STORE_CLUSTER": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot be backfilled" in done.stderr and len(done.stderr.splitlines()) == 1
