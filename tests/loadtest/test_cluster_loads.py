"""The two loads of `shards` on a real cluster of three nodes: where keys are, and pages beside a slow node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pytest

from app.settings import Settings
from loadtest.cluster import Nodes
from loadtest.incidents.spread import Half, Page, Plan, Reader, parts_of
from loadtest.incidents.whereabouts import user_of
from loadtest.resp import LoadFailed, Server, command
from tests.app.servicekit import ROOT, ServerProcess, cluster_of
from tests.app.test_layouts import cache_of

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


def run(module: str, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a load to its end."""
    return subprocess.run(
        [sys.executable, "-m", f"loadtest.incidents.{module}", *words],
        cwd=ROOT,
        env={**os.environ, "PROBE_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """The figures of a load that ended well."""
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["figures"]
    return found


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
def test_whereabouts(nodes: list[ServerProcess], tmp_path: Path, strategy: str, keys: int, most: int) -> None:
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


def test_whereabouts_without_keys_is_one_line(nodes: list[ServerProcess]) -> None:
    """Nothing to judge is no success."""
    done = run("whereabouts", nodes[0].url)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "no user" in done.stderr


def test_loads_need_a_cluster(server: ServerProcess) -> None:
    """A server without cluster mode is told in one line."""
    for module in ("whereabouts", "spread"):
        done = run(module, server.url)
        assert done.returncode == 3
        assert len(done.stderr.splitlines()) == 1


def plan(**changes: float) -> Plan:
    """A small plan."""
    usual = {
        "entries": EACH, "users": 30, "rate": 100.0, "seconds": 1.0, "searches": 0, "count": 1000,
        "slow_times": 3.0, "slow_ms": 4.0,
    }  # fmt: skip
    return Plan(prefix="mine", **{**usual, **changes})  # type: ignore[arg-type]


def test_a_page_asks_one_node_with_tags_and_all_without(nodes: list[ServerProcess]) -> None:
    """Every entry is asked of the node that has it."""
    seen = Nodes(Server.from_url(nodes[0].url))
    for user in range(1, 31):
        assert len(parts_of(plan(), seen, "tagged", user)) == 1
        parts = parts_of(plan(), seen, "spread", user)
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


def test_spread_without_searches_has_no_slow_pages_to_speak_of(nodes: list[ServerProcess]) -> None:
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


def test_spread_with_a_busy_node_searches_the_last_one_only(nodes: list[ServerProcess]) -> None:
    """The last node executes SCAN again and again, the others none; the pages are read all the same."""
    raws = [node.client() for node in nodes]
    for raw in raws:
        raw.config_resetstat()
    done = run("spread", nodes[0].url, "--seconds", "1", "--users", "60", "--searches", "2")
    assert figures(done)["pages"] == 30
    scans = [raw.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"] for raw in raws]
    assert scans[0] == scans[1] == 0
    assert scans[2] > 10


@pytest.mark.parametrize("words", [["--rate", "0"], ["--searches", "-1"], ["--prefix", "a b"]])
def test_bad_arguments_are_one_line(words: list[str]) -> None:
    """The exit code is 2."""
    done = run("spread", "redis://127.0.0.1:1", *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
