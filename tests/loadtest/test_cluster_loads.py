"""The two loads of `shards` on a real cluster of three nodes: where keys are, and pages beside a slow node."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from app.settings import Settings
from loadtest.cluster import Nodes
from loadtest.incidents.spread import Half, Page, Plan, Reader, parts_of
from loadtest.incidents.whereabouts import user_of
from loadtest.resp import LoadFailed, Server, command
from tests.app.servicekit import ServerProcess, cluster_of
from tests.app.test_layouts import cache_of
from tests.loadtest.conftest import figures, refused

USERS, EACH = 90, 20


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """A cluster of three nodes."""
    servers = cluster_of(tmp_path_factory.mktemp("cluster"), 3)
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def emptied(nodes: list[ServerProcess]) -> None:
    """Each test begins with an empty cluster."""
    for node in nodes:
        node.client().flushall()


@pytest.fixture
def run(load: Callable[..., subprocess.Popen[str]]) -> Callable[..., subprocess.Popen[str]]:
    """Start a load with a server."""
    return lambda module, url, *words: load(module, *words, PROBE_URL=url)


@pytest.mark.parametrize(
    ("key", "user"),
    [
        ("shop:{77}:r1:page-0", 77),
        ("shop-e3:{77}:r1:page-0", 77),
        ("shop-index:{77}:5", 77),
        ("shop:user:77:page-0:r1", 77),
        ("shop-index:77:5", 77),
        ("shop-hash:77", 77),
        ("shop-warmed", None),
        ("shop:other", None),
    ],
)
def test_a_key_names_its_user_in_every_layout(key: str, user: int | None) -> None:
    """Keys of no user are not counted."""
    assert user_of(key) == user


@pytest.mark.parametrize(("strategy", "keys", "most"), [("index-tagged", EACH + 1, 1), ("ttl", EACH, 3)])
def test_whereabouts(
    nodes: list[ServerProcess], tmp_path: Path, run: Any, strategy: str, keys: int, most: int
) -> None:
    """With tags all keys of a user are on one node and in one slot; without, on all three."""
    settings = Settings(store_url=nodes[0].url, store_cluster=True, state_dir=tmp_path / "state")
    cache = cache_of(settings, strategy)
    cache.put_users(range(1, USERS + 1))
    cache.put(10**6, "page-0", b"a user with one key does not count")
    cache.close()
    found = figures(run("whereabouts", nodes[1].url, "--storefront", "shop", "--least", str(EACH)))
    assert found["users"] == USERS
    assert found["keys_per_user"] == keys
    assert found["nodes"] == found["nodes_with_keys"] == 3
    assert found["nodes_per_user_most"] == most
    assert (found["slots_per_user_most"] == 1) is (most == 1)


def test_whereabouts_without_keys_is_one_line(nodes: list[ServerProcess], run: Any) -> None:
    """Nothing to judge is no success."""
    assert "no user" in refused(run("whereabouts", nodes[0].url))


def test_loads_need_a_cluster(server: ServerProcess, run: Any) -> None:
    """A server without cluster mode is told in one line."""
    for module in ("whereabouts", "spread"):
        assert refused(run(module, server.url))


def test_a_page_asks_one_node_with_tags_and_all_without(nodes: list[ServerProcess]) -> None:
    """Every entry is asked of the node that has it."""
    known = Server.from_url(nodes[0].url)
    seen, plan = Nodes(known), Plan(server=known, entries=EACH)
    for user in range(1, 31):
        assert len(parts_of(plan, seen, "tagged", user)) == 1
        parts = parts_of(plan, seen, "spread", user)
        assert len(parts) == 3
        assert sum(map(len, parts.values())) == EACH


def test_a_missing_entry_ends_the_load(nodes: list[ServerProcess]) -> None:
    """A page whose entry is not there would be measured too short."""
    reader = Reader(Nodes(Server.from_url(nodes[0].url)).servers)
    reader.begin(Page("tagged", perf_counter(), 1), {0: command("GET", "{0}none")}, {0: 1})
    with pytest.raises(LoadFailed):
        for _ in range(50):
            reader.wait(0.1, Half())
    reader.close()


def test_spread_without_searches_has_no_slow_pages_to_speak_of(nodes: list[ServerProcess], run: Any) -> None:
    """Both halves have their pages, each kind asks as many nodes as it should, and no key is left behind."""
    done = run(
        "spread", nodes[0].url, "--seconds", "1", "--users", "60", "--searches", "0", "--slow-ms", "2000"
    )
    found = figures(done)
    assert found["nodes"] == 3
    assert found["pages"] == 30
    assert found["tagged_nodes"] == 1
    assert found["spread_nodes"] > 2.9
    assert 0.1 < found["users_on_the_slow_node"] < 0.6
    assert found["tagged_slow_share"] == found["spread_slow_share"] == 0.0
    assert found["spread_p50_ms"] <= found["spread_p99_ms"]
    assert sum(node.client().dbsize() for node in nodes) == 0


def test_spread_with_a_busy_node_searches_the_last_one_only(nodes: list[ServerProcess], run: Any) -> None:
    """The last node executes SCAN again and again, the others none; the pages are read all the same."""
    raws = [node.client() for node in nodes]
    for raw in raws:
        raw.config_resetstat()
    done = run("spread", nodes[0].url, "--seconds", "1", "--users", "60", "--searches", "2")
    assert figures(done)["pages"] == 30
    scans = [raw.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"] for raw in raws]
    assert scans[0] == scans[1] == 0
    assert scans[2] > 10
