"""Checks of somebody else's server before a run writes anything: rights, role, cluster, memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.server.address import Route
from lab.stacks import rights
from tests.app.servicekit import ServerProcess, eventually, free_port

SERVERS = [ServerProcess.valkey(), ServerProcess.redis()]


@pytest.fixture(params=[path for path in SERVERS if path], ids=lambda path: path.rpartition("/")[2])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Somebody else's server, with a key of theirs."""
    theirs = ServerProcess(request.param).start()
    theirs.client().set("theirs", "1")
    theirs.client().config_resetstat()
    yield theirs
    theirs.stop()


def look(server: ServerProcess, user: str = "", needed: float = 1e6) -> str:
    """Check the server as this user; return the sentence on its memory."""
    signed = f"{user}:secret@" if user else ""
    url = f"redis://{signed}127.0.0.1:{server.port}/0"
    return rights.check_server(Route(url, f"127.0.0.1:{server.port}"), needed, "10 keys", most_keys=1)


def let(server: ServerProcess, acl: str) -> None:
    """Create the user that the printed ACL line describes."""
    words = acl.replace(">PASSWORD", ">secret").split()
    server.client().execute_command(*words)


def test_nothing_is_written_and_nothing_else_is_asked(server: ServerProcess) -> None:
    """The commands of the check are queued by MULTI, and none of them is carried out."""
    assert look(server) == ""
    client = server.client()
    assert client.keys("*") == ["theirs"]
    done = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert done <= {"info", "multi", "dbsize", "keys", "config|resetstat"}  # the last two are this test's


def test_the_least_rights_that_are_printed_suffice_and_each_is_needed(server: ServerProcess) -> None:
    """The printed rights suffice; without any one of them, one line names it and repeats the whole list."""
    let(server, rights.ACL)
    assert look(server, "lab") == ""
    for words in (("MULTI",), *rights.NEEDED):
        name = rights._name(words)
        server.client().execute_command("ACL", "SETUSER", "lab", f"-{name}")
        with pytest.raises(UsageError, match="may not run") as caught:
            look(server, "lab")
        said = str(caught.value)
        assert f"may not run {name}." in said and rights.ACL in said and "\n" not in said
        server.client().execute_command("ACL", "SETUSER", "lab", f"+{name}")


def test_keys_of_its_own_are_a_right_too(server: ServerProcess) -> None:
    """A user who may write only under another prefix is refused at once."""
    let(server, rights.ACL.replace("~latency-lab*", "~other:*"))
    with pytest.raises(UsageError, match="may not run get, mget, set"):
        look(server, "lab")


def test_a_command_that_was_taken_away_is_named() -> None:
    """A command disabled by `rename-command`, as on managed servers, is named in the refusal."""
    server = ServerProcess(ServerProcess.valkey(), "--rename-command", "KEYS", "").start()
    try:
        with pytest.raises(UsageError, match="refuses keys: ERR unknown command"):
            look(server)
    finally:
        server.stop()


def test_a_replica_is_refused(server: ServerProcess) -> None:
    """A replica is refused by the check, before the first write."""
    server.client().replicaof("127.0.0.1", free_port())
    eventually(lambda: server.client().info("replication")["role"] == "slave")
    with pytest.raises(UsageError, match="is a replica"):
        look(server)


def test_a_node_of_a_cluster_is_refused(tmp_path: Path) -> None:
    """A node of a cluster is refused: it would accept only a part of the keys."""
    nodes = ("--cluster-enabled", "yes", "--cluster-config-file", str(tmp_path / "nodes.conf"))
    server = ServerProcess(ServerProcess.valkey(), *nodes, "--cluster-port", str(free_port())).start()
    try:
        with pytest.raises(UsageError, match="is a node of a cluster"):
            look(server)
    finally:
        server.stop()


def test_too_little_memory_is_refused_and_enough_is_told(server: ServerProcess) -> None:
    """Too little memory is refused: the server would evict the owner's keys or refuse the run's. Enough is reported."""
    client = server.client()
    client.config_set("maxmemory", 50_000_000)
    used = int(client.info("memory")["used_memory"])
    assert "left of maxmemory on 127.0.0.1" in look(server, needed=40e6)
    with pytest.raises(
        UsageError, match=r"The server would evict your keys, or refuse the lab's\. Choose fewer with --keys"
    ):
        look(server, needed=50e6 - used + 1e5)


def test_a_database_with_many_keys_of_others_is_refused(server: ServerProcess) -> None:
    """Searches visit the keys of others in the same database, so a run does not begin; other databases do not count."""
    server.client().set("second", "1")
    with pytest.raises(UsageError, match=r"holds 2 keys in this database\. .* URL with /N"):
        look(server)
    server.client().move("second", 1)
    assert look(server) == ""
