"""A server that refuses writes, drops connections or shuts down in the middle of a run: exit code 3, samples kept.

Real runs, each broken off after its first phase.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from lab.server.server_stats import ServerObserver
from lab.server.servers import SERVERS
from tests.app.servicekit import ServerProcess, eventually, free_port
from tests.lab.labkit import Running
from tests.lab.runner.test_native import assert_nothing_left, assert_one_complaint, assert_partial, phases

SERVER_NAMES = [name for name in ("embedded", "redis") if SERVERS[name].find()]


def out_of_memory(client: Any, _folder: Path) -> None:
    """Leave the server no memory for another byte, and forbid eviction."""
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)


def read_only(client: Any, _folder: Path) -> None:
    """Make the server a replica of a primary that is not there."""
    client.replicaof("127.0.0.1", free_port())


def cannot_save(client: Any, folder: Path) -> None:
    """Let the server's snapshot fail, by a folder in the file's place; by its settings it then refuses writes."""
    (folder / "dump.rdb" / "in the way").mkdir(parents=True)
    client.config_set("save", "3600 1")
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")


REFUSALS: dict[str, Callable[[Any, Path], None]] = {
    "OOM": out_of_memory,
    "READONLY": read_only,
    "MISCONF": cannot_save,
}


def connected(run: Running) -> Any:
    """Return a client of the server that this run has started."""
    names = tuple(Path(SERVERS[name].require()).name for name in SERVER_NAMES)
    (command,) = [c for c in run.family() if Path(c.split()[0]).name in names]
    # Some servers replace their arguments by a title with address:port.
    port = command.split("--port ")[1] if "--port " in command else command.split(":")[1].split()[0]
    return redis.Redis(port=int(port), protocol=2, decode_responses=True, driver_info=None)


@pytest.mark.whole
@pytest.mark.parametrize("server", SERVER_NAMES)
@pytest.mark.parametrize("word", REFUSALS)
def test_a_server_that_refuses_writes_ends_the_run(word: str, server: str, tmp_path: Path) -> None:
    """The run ends with the server's own word in one line and exit code 3; no process is left, samples are kept."""
    folder = tmp_path / "run"
    arguments = ["key-growth", "--pace", "quick", "--keys", "10000", "--server", server, "--out", "run"]
    with Running(*arguments, cwd=tmp_path) as run:
        run.until(lambda: phases(folder) >= 1)
        ports = run.ports()
        REFUSALS[word](connected(run), folder / "logs")
        answer = run.answer(seconds=30)
        assert_one_complaint(answer, 3)
        assert_nothing_left(run, ports)
    assert f"refuses writes: {word} " in answer.complaints[0]
    assert_partial(folder)


@pytest.mark.whole
def test_a_server_that_drops_connections_ends_the_run(tmp_path: Path) -> None:
    """A server that keeps closing all connections, as an overloaded proxy does, ends the run: one line, exit code 3."""
    folder = tmp_path / "run"
    with Running("key-growth", "--pace", "quick", "--keys", "10000", "--out", "run", cwd=tmp_path) as run:
        run.until(lambda: phases(folder) >= 1)
        ports, client = run.ports(), connected(run)
        end = time.monotonic() + 30
        while run.process.poll() is None and time.monotonic() < end:
            with suppress(redis.RedisError):
                client.client_kill_filter(_type="normal", skipme=True)
            run.family()
            time.sleep(0.2)
        answer = run.answer()
        assert_one_complaint(answer, 3)
        assert_nothing_left(run, ports)
    assert "server" in answer.complaints[0]
    assert_partial(folder)


@pytest.mark.whole
def test_a_server_that_is_shut_down_ends_the_run(tmp_path: Path) -> None:
    """SHUTDOWN by somebody else: one line that names the server, exit code 3."""
    folder = tmp_path / "run"
    words = ("key-growth", "--pace", "quick", "--keys", "10000", "--out", "run", "--despite-noise")
    with Running(*words, cwd=tmp_path) as run:
        run.until(lambda: phases(folder) >= 1)
        ports, client = run.ports(), connected(run)
        client.shutdown(nosave=True)
        answer = run.answer(seconds=30)
        assert_one_complaint(answer, 3)
        assert_nothing_left(run, ports)
    assert "embedded ended unexpectedly" in answer.complaints[0]
    assert f"the samples until then: bin/lab report {folder}" in answer.err
    assert_partial(folder)


@pytest.mark.parametrize("binary", [ServerProcess.valkey(), shutil.which("redis-server")])
def test_refusals_are_seen_without_a_trace(binary: str | None, tmp_path: Path) -> None:
    """The test write makes no key and shows each kind of refusal; errors of other kinds are no refusal."""
    if binary is None:
        pytest.skip("no redis-server (Debian: apt install redis-server)")
    server = ServerProcess(binary, "--dir", str(tmp_path)).start()
    view, client = ServerObserver(server.url), server.client()
    try:
        assert view.refusal() is None
        assert client.dbsize() == 0
        client.config_set("maxmemory", 1)
        assert str(view.refusal()).startswith("OOM ")
        client.config_set("maxmemory", 0)
        cannot_save(client, tmp_path)
        assert str(view.refusal()).startswith("MISCONF ")
        client.config_set("save", "")
        assert view.refusal() is None
        read_only(client, tmp_path)
        assert str(view.refusal()).startswith("READONLY ")
        client.replicaof("no", "one")
        client.execute_command("ACL", "SETUSER", "default", "-setrange")
        assert view.refusal() is None
        assert client.dbsize() == 0
    finally:
        view.close()
        server.stop()
