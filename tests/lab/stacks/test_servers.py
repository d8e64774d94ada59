"""The table of servers and the server observer, on every server that this machine has."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from app.fragments import Keyspace
from lab import scenarios
from lab.errors import StackError, Unfit
from lab.scenarios import catalogue
from lab.server.processes import Child, port_taken
from lab.server.server_stats import ServerObserver, Snapshot, absent_pattern
from lab.server.servers import IN_COMPOSE, SERVERS, Server, version_of
from lab.stacks.native import NativeStack
from loadtest import info
from tests.app.servicekit import free_port
from tests.lab.labkit import typed

DRAGONFLIES = {"dragonfly", "dragonfly-current"}
FOUND = [name for name, server in SERVERS.items() if server.find()]
TOLD = {
    "redis": ("8.4.0", "redis_version:8.4.0\r\nexecutable:/usr/local/bin/redis-server\r\n"),
    "valkey": ("9.1.2", "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n"),
    "keydb": ("6.3.4", "redis_version:6.3.4\r\nexecutable:/opt/bin/keydb-server\r\n"),
    "dragonfly": ("1.40.1", "redis_version:7.4.0\r\ndragonfly_version:df-v1.40.1\r\n"),
}
"""Product → its version and what its INFO says of it."""
NOT_TOLD = "nothing_version:1.0\r\nexecutable:/home/keydb/bin/nothing\r\n"


def raw(observer: ServerObserver) -> Any:
    """Return a client of the test's own."""
    return redis.Redis.from_url(observer.url, protocol=2, decode_responses=True, driver_info=None)


@pytest.fixture(scope="module", params=FOUND)
def observer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerObserver]:
    """The observer of a server started by its row of the table, for each kind of server on this machine."""
    folder, port = tmp_path_factory.mktemp(request.param), free_port()
    child = Child(
        request.param, SERVERS[request.param].command(port, str(folder)), folder / "log", cwd=folder
    )
    view = ServerObserver(f"redis://127.0.0.1:{port}/0")
    try:
        view.wait(15, child.check)
        yield view
    finally:
        view.close()
        child.stop()
    assert {path.name for path in folder.iterdir()} == {"log"}, "a server of the lab writes nothing to disk"


def test_embedded_server_is_always_there() -> None:
    """The embedded server, which comes with the packages of the lock file, is always found."""
    assert "embedded" in FOUND


def test_row_names_itself_and_says_how_to_get_it() -> None:
    """Every row is keyed by its name, says how to get the server, and excepts only claims that exist."""
    for name, server in SERVERS.items():
        assert server.name == name
        assert server.install.endswith(".")
        claims = {claim.id for scenario in catalogue().values() for claim in scenario.claims}
        assert set(server.cannot) <= claims


def test_missing_binary_is_one_line() -> None:
    """A server that is not on this machine raises a `StackError` that says how to get it."""
    ghost = Server("ghost", "Ghost", lambda: None, (), "Install it from the attic.")
    with pytest.raises(
        StackError, match=r"^there is no ghost on this machine\. Install it from the attic\.$"
    ):
        ghost.command(1234, "/")


def test_server_listens_on_this_machine_alone() -> None:
    """Every row binds its server to 127.0.0.1 and keeps it in the foreground."""
    for name, server in SERVERS.items():
        command = replace(server, find=lambda: "/binary").command(1234, "/somewhere")
        assert command[0] == "/binary"
        assert command[command.index("--bind") + 1] == "127.0.0.1"
        if not name.startswith("dragonfly"):  # which stays in the foreground unless told otherwise
            assert command[command.index("--daemonize") + 1] == "no"
        assert command[-2:] == ["--port", "1234"]
        assert command[command.index("--dir") + 1] == "/somewhere"


def test_scenario_that_needs_what_the_server_lacks_is_one_line(tmp_path: Path) -> None:
    """A scenario is refused, before anything starts, on a server that lacks a setting it needs."""
    settings = scenarios.find("eviction-cycle").server_settings
    assert {name for name, server in SERVERS.items() if server.unfit_for(settings)} == DRAGONFLIES
    assert SERVERS["dragonfly"].unfit_for({}) == ""
    in_slots = scenarios.find("one-slot").server_settings
    assert {name for name, server in SERVERS.items() if server.unfit_for(in_slots)} == {*DRAGONFLIES, "keydb"}
    assert "compose stack" in SERVERS["redis"].unfit_for(in_slots, "compose")
    answer = typed("run", "eviction-cycle", "--server", "dragonfly", cwd=tmp_path)
    assert answer.is_one_line(2), answer
    assert "eviction-cycle cannot be run on dragonfly. dragonfly has no maxmemory-policy" in answer.err


def test_dragonfly_is_given_the_memory_it_insists_on() -> None:
    """Dragonfly gets 256 MB a thread (with less it ends at once); it saves nothing and asks for no new versions."""
    command = replace(SERVERS["dragonfly"], find=lambda: "/binary").command(1234, "/somewhere")
    values = dict(word.removeprefix("--").split("=", 1) for word in command if "=" in word)
    assert int(values["maxmemory"].removesuffix("mb")) >= 256 * int(values["proactor_threads"])
    assert int(values["proactor_threads"]) >= 1
    assert (values["dbfilename"], values["version_check"]) == ("", "false")


def test_dragonflys_seconds_are_the_mean_of_its_threads() -> None:
    """Dragonfly's CPU time is the mean of its threads: its "main thread" may be any. Its µs lack leading zeros."""
    text = (
        "# Server\r\ndragonfly_version:df-v1.40.1\r\nthread_count:2\r\n"
        "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:3.250000\r\nused_cpu_user_main_thread:9.9\r\n"
    )
    told = info.fields(text)
    assert info.busy_seconds(told) == pytest.approx((1.000005 + 3.25) / 2)
    assert info.threads(told) == 2
    assert info.threads({"thread_count": "8", "redis_version": "8.0"}) == 1


def test_time_at_work_is_told_by_the_servers_own_clock() -> None:
    """Valkey tells from 9.1 on how long its main thread was at work; where nothing is told there is no figure."""
    assert info.active_seconds(info.fields("# CPU\r\nused_active_time_main_thread:12.500000\r\n")) == 12.5
    assert info.active_seconds(info.fields("# CPU\r\nused_cpu_user:1.000000\r\n")) is None


def test_seconds_of_the_main_thread_where_it_is_told_and_else_of_the_process() -> None:
    """CPU time is the main thread's, else (KeyDB) the process's, else None."""
    process = {"redis_version": "6.3.4", "used_cpu_user": "2.0", "used_cpu_sys": "1.000000"}
    main = {"used_cpu_user_main_thread": "0.500000", "used_cpu_sys_main_thread": "0.250000"}
    assert info.busy_seconds(process) == 3.0
    assert info.busy_seconds(process | main) == 0.75
    assert info.busy_seconds({"redis_version": "8.0"}) is None


def test_counters_and_keys_are_read_from_their_sections() -> None:
    """INFO gives calls and execution time of each command and the keys of all databases; other fields are ignored."""
    told = info.fields(
        b"# Commandstats\r\ncmdstat_get:calls=3,usec=12,usec_per_call=4.00,rejected_calls=0\r\n"
        b"cmdstat_config|get:calls=1,usec=7,usec_per_call=7.00\r\n"
        b"# Keyspace\r\ndb0:keys=40,expires=1,avg_ttl=0\r\ndb3:keys=2,expires=0\r\ndbsize:9\r\n"
    )
    assert info.counters(told) == {"GET": (3.0, 12.0), "CONFIG|GET": (1.0, 7.0)}
    assert info.keys(told) == 42


def test_version_of_what_is_not_there(tmp_path: Path) -> None:
    """A binary that cannot be run has the version 'unknown'."""
    assert version_of(str(tmp_path / "none")) == "unknown"
    assert "unknown" not in version_of(str(SERVERS["embedded"].find()))


def test_identity_is_product_and_version(observer: ServerObserver) -> None:
    """The server says what it is; Valkey is not taken for the Redis it also claims to be."""
    product, version = observer.identity()
    info = raw(observer).info("server")
    path = info.get("executable", "dragonfly")
    assert product == next(kind for kind in ("keydb", "redis", "valkey", "dragonfly") if kind in path)
    assert version[0].isdigit()


def test_a_product_has_the_name_of_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """INFO of each product gives the name of its row and the version; of an unknown product, 'unknown'."""
    for name, (version, text) in TOLD.items():
        assert info.product(info.fields(text)) == (name, version)
    assert set(TOLD) == {server.name for server in IN_COMPOSE} - {"dragonfly-current"}
    view = ServerObserver("redis://127.0.0.1:1/0")
    monkeypatch.setattr(view, "_ask", lambda *_: info.fields(NOT_TOLD))
    assert view.identity() == ("unknown", "unknown")


def test_snapshot_counts_calls_and_their_time(observer: ServerObserver) -> None:
    """Between two snapshots lie exactly the calls made, their time, and the keys written."""
    client = raw(observer)
    client.flushall()
    before = observer.snapshot()
    for i in range(50):
        client.set(f"k{i}", "v")
        client.get(f"k{i}")
    after = observer.snapshot()
    assert after.keys - before.keys == 50
    for command in ("GET", "SET"):
        calls, usec = (
            after.commands[command][i] - before.commands.get(command, (0.0, 0.0))[i] for i in (0, 1)
        )
        assert calls == 50
        assert usec >= 0
    assert after.at > before.at
    assert after.run_id == before.run_id != ""
    assert after.main_thread_s is not None
    assert before.main_thread_s is not None
    assert after.main_thread_s >= before.main_thread_s


def test_observer_never_scans_while_it_observes(observer: ServerObserver) -> None:
    """Observing does not disturb the server: the observer sends no SCAN, KEYS or FLUSH, and writes nothing."""
    raw(observer).config_resetstat()
    for _ in range(3):
        observer.snapshot()
        observer.keys_everywhere()
        observer.slowlog()
        observer.identity()
    seen = {name.split("|")[0] for name in observer.snapshot().commands}
    assert not seen & {"SCAN", "KEYS", "FLUSHALL", "FLUSHDB", "UNLINK", "DEL", "SET"}


def test_slow_log_tells_command_and_duration(observer: ServerObserver) -> None:
    """An entry comes back as a command in capitals and its µs; values with spaces or bytes do not confuse it."""
    client = raw(observer)
    old = observer.slowlog_settings()
    client.slowlog_reset()
    observer.configure_slowlog(0)
    client.set("a key", b"\xff two words")
    client.get("another key")
    observer.configure_slowlog(*old)
    entries = observer.slowlog()
    assert {"SET", "GET"} <= {command for _, _, command, _ in entries}
    assert all(duration >= 0 and abs(at - time.time()) < 3600 for _, at, _, duration in entries)
    assert len({identity for identity, *_ in entries}) == len(entries)
    assert observer.slowlog_settings() == old


def test_a_replica_follows_and_has_its_primarys_keys(observer: ServerObserver, tmp_path: Path) -> None:
    """A server told to follow another gets its keys; a primary that is not there raises a `StackError`."""
    port = free_port()
    kind = next(name for name in FOUND if observer.identity()[0] in (name, "valkey"))
    child = Child("replica", SERVERS[kind].command(port, str(tmp_path)), tmp_path / "log", cwd=tmp_path)
    replica = ServerObserver(f"redis://127.0.0.1:{port}/0")
    try:
        replica.wait(15, child.check)
        raw(observer).set("followed", "there")
        replica.follow("127.0.0.1", urlsplit(observer.url).port or 0, 20, child.check)
        assert raw(replica).get("followed") == "there"
        with pytest.raises(StackError, match="does not reach its primary"):
            replica.follow("127.0.0.1", free_port(), 0.5, child.check)
    finally:
        raw(observer).delete("followed")
        replica.close()
        child.stop()


def test_a_new_server_in_cluster_mode_gets_all_slots_and_searches_one(tmp_path: Path) -> None:
    """The embedded server then serves, and visits one slot for a pattern of one; the trial leaves no key behind."""
    port = free_port()
    command = [*SERVERS["embedded"].command(port, str(tmp_path)), "--cluster-enabled", "yes"]
    child = Child("server", [*command, "--cluster-port", str(free_port())], tmp_path / "server.log")
    server = ServerObserver(f"redis://127.0.0.1:{port}/0")
    try:
        server.wait(10, child.check)
        server.take_all_slots(10, child.check)
        assert server.searches_one_slot()
        assert server.keys_everywhere() == 0
    finally:
        server.close()
        child.stop()


def test_a_server_without_cluster_mode_searches_all(observer: ServerObserver) -> None:
    """The trial tells so, and leaves no key behind; such a server has no slots to take."""
    raw(observer).flushall()
    if observer.identity()[0] != "dragonfly":  # whose COUNT is of keys that match
        assert not observer.searches_one_slot()
    assert observer.keys_everywhere() == 0
    with pytest.raises(StackError, match="CLUSTER ADDSLOTSRANGE"):
        observer.take_all_slots(1)


def test_a_release_that_searches_all_slots_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """one-slot is refused there before anything is measured, and the server is ended."""
    monkeypatch.setattr(ServerObserver, "searches_one_slot", lambda _: False)
    stack = NativeStack(scenarios.find("one-slot"), SERVERS["embedded"], tmp_path, 1)
    try:
        with pytest.raises(Unfit, match=r"valkey \S+ searches all slots, whatever the pattern; one-slot"):
            stack.up(lambda _: None)
    finally:
        stack.down()
    assert not port_taken(stack.server_port)


def test_the_measured_search_has_the_storefronts_pattern() -> None:
    """Where the star stands changes what a visited key costs, and with it the planned event rate."""
    assert absent_pattern("shop") == Keyspace("shop", 60).pattern(10**9, "page")


def test_changed_settings_get_their_values_back(observer: ServerObserver) -> None:
    """Of all settings, those that were changed are restored, and no other is touched."""
    before = observer.settings(["*"])
    name = next(name for name in before if name.replace("_", "-") == "slowlog-max-len")
    observer.configure({name: "77"})
    assert observer.restore(before)[name] == before[name]
    assert observer.settings(["*"])[name] == before[name] and observer.restore(before) == {}


def test_only_own_keys_are_removed(observer: ServerObserver) -> None:
    """`remove_own` deletes all keys under the given prefixes and no other."""
    client = raw(observer)
    client.flushall()
    own = [f"mine:{i}" for i in range(5000)] + [f"mine-{i}" for i in range(10)]
    foreign = ["mine", "mines:1", "yours:mine:1", "Mine:1", "min*", "other"]
    client.mset(dict.fromkeys(own + foreign, "v"))
    assert observer.remove_own(("mine:", "mine-")) == len(own)
    assert sorted(client.keys()) == sorted(foreign)


@pytest.mark.alone
def test_scan_costs_more_with_more_keys(observer: ServerObserver) -> None:
    """The execution time of one full SCAN grows with the keys: ten times as many cost at least three times as much."""
    client = raw(observer)
    client.flushall()
    client.mset({f"a{i}": "v" for i in range(2000)})
    few = observer.scan_cost_us("nothing:*", 1_000_000, 0.1)
    client.mset({f"a{i}": "v" for i in range(20_000)})
    assert observer.scan_cost_us("nothing:*", 1_000_000, 0.1) > 3 * few > 0


@pytest.mark.alone
def test_a_walk_without_execution_time_is_seen_by_its_cpu_time(
    observer: ServerObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SCAN's own time leaves out most of the work, as KeyDB's does, the server's CPU time counts."""
    client, right = raw(observer), observer.snapshot
    client.flushall()
    client.mset({f"a{i}": "v" for i in range(20_000)})
    whole = observer.scan_cost_us("nothing:*", 1_000_000, 0.2)

    def snapshot_without_scan_time() -> Snapshot:
        seen = right()
        calls, _ = seen.commands.get("SCAN", (0.0, 0.0))
        return replace(seen, commands=seen.commands | {"SCAN": (calls, calls)})

    monkeypatch.setattr(observer, "snapshot", snapshot_without_scan_time)
    assert whole / 2 < observer.scan_cost_us("nothing:*", 1_000_000, 0.2) < whole * 4


def test_ping_gives_one_time_each(observer: ServerObserver) -> None:
    """`ping_us` returns as many round trips as asked for, each longer than 0."""
    times = observer.ping_us(20)
    assert len(times) == 20
    assert min(times) > 0


def test_nobody_there_is_one_line() -> None:
    """Every question to a port without a server raises a `StackError` of one line with the address."""
    port = free_port()
    view = ServerObserver(f"redis://127.0.0.1:{port}/0", timeout_s=1)
    for ask in (lambda: view.wait(0.1), view.keys_everywhere, view.snapshot, view.identity, view.slowlog):
        with pytest.raises(StackError, match=str(port)) as caught:
            ask()
        assert "\n" not in str(caught.value)
    view.close()
