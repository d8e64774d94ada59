"""The layout `tagged`: a user's keys are in one slot, and in cluster mode `slot` visits nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cache import CacheUnavailable
from app.fragments import TaggedKeyspace
from app.settings import Settings
from tests.app.servicekit import ServerProcess, in_cluster_mode
from tests.app.test_layouts import cache_of, calls, invalidate

USERS = 60
MANY_PAGES = USERS * 21 // 100
"""Calls of SCAN that an iteration over the whole keyspace takes; `invalidate` asks with a COUNT of 100."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server in cluster mode: one node that has all slots."""
    server = in_cluster_mode(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def on_cluster(cluster: ServerProcess, tmp_path: Path) -> Settings:
    """Settings on the server in cluster mode."""
    return Settings(store_url=cluster.url, state_dir=tmp_path / "state")


def test_names_are_read_back() -> None:
    """An entry's key gives its user and index member, and the member gives the key; other keys give nothing."""
    names = TaggedKeyspace("shop", 60).at(3)
    key = names.entry(77, "page-3")
    assert key == "shop-e3:{77}:r1:page-3"
    assert names.parse_entry(key) == (77, "r1:page-3")
    assert names.entry_of(77, b"r1:page-3") == key
    for other in (
        names.index(77, 5),
        "shop-e3:{077}:r1:page-3",
        "shop-e3:{77}:r1:pages",
        "shop-e3:77:r1:page-3",
    ):
        assert names.parse_entry(other) is None, other


@pytest.mark.parametrize(("strategy", "iterations"), [("slot", 1), ("scan-tagged", MANY_PAGES)])
def test_in_cluster_mode_the_place_of_the_tag_decides(
    on_cluster: Settings, cluster: ServerProcess, strategy: str, iterations: int
) -> None:
    """Both delete the user's entries and nobody else's. With the tag first an iteration takes one call."""
    cache = cache_of(on_cluster, strategy)
    cache.put_users(range(1, USERS + 1))
    cache.put(7, "page-extra", "x")
    raw = cluster.client()
    raw.config_resetstat()
    assert invalidate(on_cluster, strategy, 7) == 21
    assert calls(raw)["scan"] in ([3] if iterations == 1 else range(3 * iterations, 6 * iterations))
    assert len(raw.keys("shop:*")) == 20 * (USERS - 1)
    assert invalidate(on_cluster, strategy, 7) == 0
    cache.close()


def test_without_cluster_mode_slot_searches_all(settings: Settings, server: ServerProcess) -> None:
    """The same entries are deleted, and the whole keyspace is visited for them."""
    cache = cache_of(settings, "slot")
    cache.put_users(range(1, USERS + 1))
    raw = server.client()
    raw.config_resetstat()
    assert invalidate(settings, "slot", 7) == 20
    assert calls(raw)["scan"] >= 3 * MANY_PAGES
    cache.close()


@pytest.mark.parametrize("strategy", ["slot", "hash", "ttl"])
def test_layouts_that_fit_cluster_mode(on_cluster: Settings, strategy: str) -> None:
    """A put whose keys are in one slot is carried out, and read back."""
    cache = cache_of(on_cluster, strategy)
    cache.put(5, "cart-1", b"value")
    assert cache.get(5, "cart-1") == b"value"
    cache.close()


@pytest.mark.parametrize("strategy", ["scan", "generation"])
def test_layouts_that_do_not_fit_cluster_mode(on_cluster: Settings, strategy: str) -> None:
    """A put whose transaction crosses slots is refused."""
    cache = cache_of(on_cluster, strategy)
    with pytest.raises(CacheUnavailable, match="same slot"):
        cache.put(5, "cart-1", b"value")
    cache.close()
