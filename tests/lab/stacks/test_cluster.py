"""The lab's cluster on the real embedded server: slots, quotas, counters, probes, and more nodes than before."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import redis

from lab import scenarios
from lab.errors import StackError, UsageError
from lab.runner import run as runs
from lab.runner.run import Request, conduct
from lab.scenarios.model import ProbeSpec
from lab.server.processes import port_taken
from lab.server.server_stats import ServerObserver
from lab.server.servers import SERVERS
from lab.stacks import quota
from lab.stacks.cluster import ClusterStack, slots_of
from lab.stacks.quota import GROUPS, Quota, why_none
from loadtest.cluster import SLOTS, slot_of, tag_in
from loadtest.cluster import Nodes as Seen
from loadtest.resp import Server as Address

SHARDS = scenarios.find("shards")
NO_QUOTA = why_none(SHARDS.node_share)
needs_quota = pytest.mark.skipif(bool(NO_QUOTA), reason=NO_QUOTA)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_every_slot_has_one_node(count: int) -> None:
    """The nodes' ranges follow one another from the first slot to the last, and differ by one slot at most."""
    ranges = [slots_of(number, count) for number in range(count)]
    assert [slot for first, last in ranges for slot in range(first, last + 1)] == list(range(SLOTS))
    lengths = {last - first + 1 for first, last in ranges}
    assert max(lengths) - min(lengths) <= 1


def test_a_tag_decides_on_the_slot() -> None:
    """Of a key with a hash tag only the tag counts; an empty or open one is none. `tag_in` finds one in a range."""
    assert slot_of("shop:{77}:r1:page-0") == slot_of("77") == slot_of("other{77}{78}")
    assert slot_of("a{}b") != slot_of("")
    assert slot_of("123456789") == 12739  # the example of the specification
    assert slot_of("a{b") == slot_of("a{b")
    for first, last in (slots_of(number, 3) for number in range(3)):
        assert first <= slot_of(tag_in(first, last)) <= last


@pytest.fixture
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterStack]:
    """A stack that is taken down whatever happens; on the embedded server, if the test names no other."""
    made = ClusterStack(SHARDS, SERVERS[getattr(request, "param", "embedded")], tmp_path, 1)
    with contextlib.ExitStack() as last:
        last.callback(made.down)
        yield made


def groups() -> list[Path]:
    """Return the control groups of this process."""
    return sorted(GROUPS.glob(f"**/latency-lab-{os.getpid()}*"))


@needs_quota
@pytest.mark.parametrize(
    "stack", [name for name in ("embedded", "redis") if SERVERS[name].find()], indirect=True
)
def test_nodes_come_up_held_and_grow_from_one_to_three(stack: ClusterStack) -> None:
    """One node has all slots, then three share them. Counts are those of all; each is in a quota of its own."""
    with pytest.raises(StackError):  # so a recorder writes a gap
        stack.server.snapshot()
    stack._start_server()
    stack.server.configure_slowlog(10_000)
    assert stack.server.snapshot().keys == 0
    counted = {name.removeprefix("node_1_") for name in stack.server.snapshot().figures}
    assert counted == {"busy_s", "scans", "scan_us", "periods", "held"}
    stack.empty(3)
    address = Address.from_url(stack.server_url)
    seen = Seen(address)
    assert seen.servers[0] == address
    assert len(seen.servers) == 3
    client = redis.cluster.RedisCluster.from_url(stack.server_url)
    for user in range(60):
        for name in ("a", "b"):
            client.set(f"shop:{{{user}}}:{name}", "v")
    owners = {seen.node_of(f"shop:{{{user}}}:a") for user in range(60)}
    assert owners == {0, 1, 2}
    found = stack.server.snapshot()
    assert found.keys == stack.server.keys_everywhere() == 120
    assert found.commands["SET"][0] == 120
    assert found.main_thread_s is not None
    each = [found.figures[f"node_{number}_busy_s"] for number in (1, 2, 3)]
    assert found.main_thread_s == pytest.approx(sum(each) / 3)
    assert len(groups()) == 3
    pids = [child.pid for child in stack._nodes.children]
    assert [int((group / "cgroup.procs").read_text().split()[0]) for group in groups()] == pids
    spent, _ = stack.meter().sample()
    assert set(spent) - {"lab"} == {"store"} == set(stack.memory_mb()) - {"lab"}
    assert stack.memory_mb()["store"] > 3.0
    client.close()


@pytest.mark.alone
@needs_quota
def test_a_busy_node_is_held_and_the_throttling_counted(stack: ClusterStack) -> None:
    """Node 2 of three walks over its keys for half a second: it is busy most of that, and held in its periods."""
    stack._shards = 3
    stack._start_server()
    seen = Seen(Address.from_url(stack.server_url))
    tag = tag_in(*slots_of(1, 3))
    node = redis.Redis(port=seen.servers[1].port)
    pipe = node.pipeline(transaction=False)
    for number in range(5000):
        pipe.set(f"{{{tag}}}{number}", "v")
    pipe.execute()
    before, end = stack.server.snapshot(), time.monotonic() + 0.5
    while time.monotonic() < end:
        cursor = None
        while cursor != 0:
            cursor, _ = cast(Any, node.scan(cursor or 0, match="none*", count=5000))
    after = stack.server.snapshot()
    grew = {name: after.figures[name] - before.figures[name] for name in after.figures}
    assert grew["node_2_busy_s"] > 5 * max(grew["node_1_busy_s"], grew["node_3_busy_s"])
    assert grew["node_2_busy_s"] < 1.5 * (after.at - before.at)
    assert grew["node_2_scans"] > 0
    assert grew["node_2_scan_us"] > 0
    assert grew["node_1_scans"] == grew["node_3_scans"] == 0
    assert 0 < grew["node_2_held"] <= grew["node_2_periods"]
    node.close()


@needs_quota
def test_each_probe_asks_its_own_node(stack: ClusterStack) -> None:
    """Probes begin before there are three nodes. Then each gets replies without an error: its node has its keys."""
    stack._start_server()
    probes = [stack.start_probe(spec, 100.0) for spec in (ProbeSpec("main"), ProbeSpec("node-3", node=3))]
    stack.empty(3)
    end = time.monotonic() + 20
    for probe in probes:
        for raw in probe.lines():
            told = json.loads(raw)
            if told["received"] > 0 and not told["errors"]:
                break
            assert time.monotonic() < end, told
    seen = [ServerObserver(stack._nodes.url(number)) for number in range(3)]
    assert [node.keys_everywhere() for node in seen] == [100, 0, 100]
    for node in seen:
        node.close()
    with pytest.raises(StackError, match="node 4 of 3"):
        stack.start_probe(ProbeSpec("node-4", node=4), 1.0)


@needs_quota
def test_the_storefront_follows_the_nodes(stack: ClusterStack) -> None:
    """Filled by the warmer and invalidated on one node, and after a restart on three: the search asks all of them."""
    stack.up(lambda _: None)
    for shards in (1, 3):
        if shards > 1:
            stack.empty(shards)
        stack.web.use("scan-tagged", 1000)
        stack.web.warm(2000, restart=shards > 1, seconds=60, check=stack.check)
        assert stack.server.snapshot().keys == pytest.approx(2100, abs=120)
        before, done = stack.server.snapshot(), stack.observe().finished
        stack.web.ask("POST", "/users/7/events", {"type": "order"})
        end = time.monotonic() + 20
        while stack.observe().finished == done:
            assert time.monotonic() < end
            time.sleep(0.05)
        after = stack.server.snapshot()
        asked = [
            after.figures[f"node_{node}_scans"] - before.figures[f"node_{node}_scans"]
            for node in range(1, shards + 1)
        ]
        assert min(asked) >= 3
        assert after.keys == before.keys - 20
        assert stack.server.refusal() is None
    stack.web.use("index-tagged", 1000)
    stack.check()


@needs_quota
def test_down_leaves_nothing(tmp_path: Path) -> None:
    """All nodes have ended, and no control group is left, also where the start broke half-way."""
    stack = ClusterStack(SHARDS, SERVERS["embedded"], tmp_path, 1)
    stack._start_server()
    pids = [child.pid for child in stack._nodes.children]
    stack.down()
    assert groups() == []
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not port_taken(stack.server_port)

    broken = ClusterStack(SHARDS, SERVERS["embedded"], tmp_path, 1)
    broken._nodes._command = lambda *_: ["false"]  # type: ignore[method-assign]
    with pytest.raises(StackError):
        broken._start_server()
    broken.down()
    assert groups() == []


def display() -> Any:
    """Return a display that shows nothing."""
    return cast(Any, SimpleNamespace(say=lambda _: None))


def request(tmp_path: Path, **changes: Any) -> Request:
    """Return a request for a run of `shards`."""
    return dataclasses.replace(Request(SHARDS, None, "quick", None, 1, tmp_path / "out"), **changes)


def test_without_a_quota_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line and exit code 3, before a folder is made: control groups are not Linux's, or belong to somebody else."""
    monkeypatch.setattr(quota, "GROUPS", tmp_path / "none")
    with pytest.raises(
        StackError, match=r"shards cannot be run here: no CPU quota .* Linux and root"
    ) as caught:
        conduct(request(tmp_path), display())
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert runs.cannot_hold(scenarios.find("key-growth")) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stack": "compose"}, "cluster-enabled"),
        ({"route": SimpleNamespace(url="redis://localhost", shown="", words=[])}, "--url"),
        ({"server": "dragonfly"}, "cluster-enabled"),
    ],
)
def test_it_is_refused_elsewhere_in_one_line(
    tmp_path: Path, changes: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the compose stack, on somebody else's server, and on servers without such a cluster. Nothing is made."""
    monkeypatch.setattr(SERVERS["embedded"].__class__, "require", lambda _: "/bin/true")
    with pytest.raises(UsageError, match=told) as caught:
        conduct(request(tmp_path, **changes), display())
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_group_is_removed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control groups of version 2 get quota and period in one file. An empty group of a killed process is replaced."""
    monkeypatch.setattr(quota, "GROUPS", tmp_path)
    (tmp_path / f"latency-lab-{os.getpid()}-one").mkdir()
    group = Quota(0.25, "one")
    [folder] = tmp_path.iterdir()
    assert (folder / "cpu.max").read_text() == "1250 5000"
    (folder / "cpu.stat").write_text("usage_usec 3\nnr_periods 40\nnr_throttled 30\n")
    assert group.periods() == (40, 30)
    for file in folder.iterdir():
        file.unlink()
    group.close()
    assert list(tmp_path.iterdir()) == []
