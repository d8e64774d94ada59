"""The three processes together, on a real server: durability, concurrency, switching, ending."""

import signal
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from app.invalidator import RETRIES_AT_ONCE, RETRY_CAP_SECONDS
from app.settings import STRATEGY_NAMES
from app.state import State
from tests.app.servicekit import ServerProcess, Service, eventually, free_port, http

NewService = Callable[..., Service]
RETRIED = 'cache_invalidation_events_total{outcome="retried",strategy="scan"}'


def cache_status(service: Service, user: int, name: str = "page-0") -> str:
    """Read a fragment and return the Cache-Status header."""
    return str(service.get(f"/users/{user}/fragments/{name}").headers["Cache-Status"])


def pending(service: Service) -> int:
    """The number of events accepted and not finished."""
    state = State(service.state_dir)
    try:
        return state.pending()
    finally:
        state.close()


def connections(service: Service, server: ServerProcess) -> int:
    """The number of connections from the invalidator to the server."""
    process = psutil.Process(service.running["invalidator"].pid)
    return len([c for c in process.net_connections("tcp") if c.raddr and c.raddr.port == server.port])


def test_event_invalidates_under_every_strategy(new_service: NewService, server: ServerProcess) -> None:
    """An event removes the user's entries under each strategy but `ttl`; a switch reaches the invalidator."""
    service = new_service(server).start("web", "invalidator")
    for strategy in STRATEGY_NAMES:
        assert service.put("/settings/invalidation", {"strategy": strategy}).status == 200
        gauge = f'cache_invalidation_strategy{{strategy="{strategy}"}}'
        eventually(partial(service.shows, gauge, 1))
        cache_status(service, 3)
        cache_status(service, 4)
        assert service.event(3).status == 202
        done = f'cache_invalidation_events_total{{outcome="done",strategy="{strategy}"}}'
        eventually(partial(service.shows, done, 1))
        assert cache_status(service, 3) == ("shop; hit" if strategy == "ttl" else "shop; fwd=miss")
        assert cache_status(service, 4) == "shop; hit"
        server.client().flushall()


@pytest.mark.whole
def test_events_start_on_arrival_without_limit(new_service: NewService, own_server: ServerProcess) -> None:
    """While the server answers nothing, every accepted event is started, each pattern on its own connection."""
    service = new_service(own_server, APP_STORE_TIMEOUT_SECONDS="60").start("web", "invalidator")
    own_server.pause(True)
    for user in range(1, 101):
        assert service.event(user).status == 202
    eventually(lambda: service.metric("cache_invalidation_events_in_flight") == 100)
    eventually(lambda: connections(service, own_server) >= 300)
    own_server.pause(False)
    eventually(lambda: pending(service) == 0)


@pytest.mark.whole
def test_a_server_that_comes_back_meets_few_retries_at_once(
    new_service: NewService, own_server: ServerProcess
) -> None:
    """Events under way when the server was lost are retried a few at a time, until all are done."""
    service = new_service(own_server, APP_STORE_TIMEOUT_SECONDS="60").start("web", "invalidator")
    own_server.pause(True)
    for user in range(1, 101):
        service.event(user)
    eventually(lambda: connections(service, own_server) >= 300)
    own_server.stop(signal.SIGKILL)
    # Each event now waits seconds between two attempts, so few get through before the server is frozen again.
    eventually(lambda: service.metric(RETRIED) >= 600)
    own_server.start()
    own_server.pause(True)
    time.sleep(RETRY_CAP_SECONDS)  # by now every event has waited long enough
    assert pending(service) > RETRIES_AT_ONCE
    assert RETRIES_AT_ONCE <= connections(service, own_server) <= 3 * RETRIES_AT_ONCE
    own_server.pause(False)
    eventually(lambda: pending(service) == 0, seconds=30)


@pytest.mark.whole
def test_a_switch_of_strategy_reaches_the_events_under_way(
    new_service: NewService, own_server: ServerProcess
) -> None:
    """A backlog of searches is carried out under the new strategy, as after a new deployment."""
    service = new_service(own_server, APP_STORE_TIMEOUT_SECONDS="60").start("web", "invalidator")
    cache_status(service, 1)
    own_server.pause(True)
    for user in range(1, 31):
        service.event(user)
    eventually(lambda: service.metric("cache_invalidation_events_in_flight") == 30)
    service.put("/settings/invalidation", {"strategy": "index"})
    eventually(partial(service.shows, 'cache_invalidation_strategy{strategy="index"}', 1))
    own_server.pause(False)
    eventually(lambda: pending(service) == 0)
    assert service.metric('cache_invalidation_events_total{outcome="done",strategy="index"}') == 30
    assert cache_status(service, 1) == "shop; fwd=miss"


def test_events_survive_a_killed_invalidator(new_service: NewService, own_server: ServerProcess) -> None:
    """Events in flight when the invalidator is killed are carried out by the next invalidator of that name."""
    service = new_service(own_server, APP_STORE_TIMEOUT_SECONDS="60").start("web", "invalidator")
    for user in (1, 2, 3):
        cache_status(service, user)
    own_server.pause(True)
    for user in (1, 2, 3):
        service.event(user)
    eventually(lambda: service.metric("cache_invalidation_events_in_flight") == 3)
    service.signal("invalidator", signal.SIGKILL)
    own_server.pause(False)
    assert pending(service) == 3
    assert cache_status(service, 1) == "shop; hit"
    service.start("invalidator")
    eventually(lambda: pending(service) == 0)
    assert [cache_status(service, user) for user in (1, 2, 3)] == ["shop; fwd=miss"] * 3


@pytest.mark.whole
def test_events_survive_a_restart_of_the_server(new_service: NewService, own_server: ServerProcess) -> None:
    """Events accepted while the server is down are done once it is back; reads work all the while."""
    service = new_service(own_server).start("web", "invalidator")
    assert cache_status(service, 1) == "shop; fwd=miss"
    own_server.stop()
    assert cache_status(service, 1) == "shop; fwd=bypass"
    assert service.get("/readyz").status == 503
    assert service.event(1).status == 202
    eventually(lambda: service.metric(RETRIED) > 0)
    own_server.start()
    assert cache_status(service, 1) == "shop; fwd=miss"
    eventually(lambda: pending(service) == 0)
    assert service.get("/readyz").status == 200
    # The log mentions retries once a minute, however many there are.
    assert service.log("invalidator").count("tried again") == 1


@pytest.mark.whole
def test_warmer_fills_continues_and_starts_again(new_service: NewService, own_server: ServerProcess) -> None:
    """The warmer reaches its target with every entry indexed and continues when it is raised. It fills an emptied
    server again, writes everything anew on a restart, and stops at a target of 0.
    """
    service = new_service(own_server).start("web", "warmer")
    raw = own_server.client()

    def settled(keys: int) -> bool:
        answer = service.get("/settings/warming").json
        return bool(answer["state"] == "idle" and answer["keys"] == keys and answer["error"] is None)

    service.put("/settings/warming", {"target_keys": 2000})
    eventually(lambda: settled(2000))
    assert len(raw.keys("shop:*")) == 2000
    assert len(raw.keys("shop-index:*")) == 100
    raw.set("shop:user:1:page-0:r1", "untouched")
    service.put("/settings/warming", {"target_keys": 4010})
    eventually(lambda: settled(4020))
    assert raw.get("shop:user:1:page-0:r1") == "untouched"
    raw.flushall()
    eventually(lambda: raw.dbsize() >= 4020)
    eventually(lambda: settled(4020))
    raw.set("shop:user:1:page-0:r1", "untouched")
    service.put("/settings/warming", {"restart": True})
    eventually(lambda: raw.get("shop:user:1:page-0:r1") != "untouched")
    service.put("/settings/warming", {"target_keys": 0})
    eventually(lambda: service.get("/settings/warming").json["users"] == 0)
    raw.flushall()
    service.put("/settings/warming", {"target_keys": 100, "keys_per_second": 1000})
    eventually(lambda: settled(100))
    assert cache_status(service, 5) == "shop; hit"


@pytest.mark.whole
def test_warmer_survives_a_restart_of_the_server(new_service: NewService, own_server: ServerProcess) -> None:
    """While the server is down the warmer reports an error; when it is back, empty, the fill begins again by itself."""
    service = new_service(own_server).start("web", "warmer")
    service.put("/settings/warming", {"target_keys": 1000})
    eventually(lambda: service.get("/settings/warming").json["state"] == "idle")
    own_server.stop()
    eventually(lambda: service.get("/settings/warming").json["error"])
    own_server.start()
    eventually(lambda: own_server.client().dbsize() >= 1000)


def test_sigterm_ends_all_processes_with_0(new_service: NewService, own_server: ServerProcess) -> None:
    """With the server frozen, an event in flight, a fill under way and an open keep-alive connection, SIGTERM
    ends each process with code 0, and the event stays accepted.
    """
    service = new_service(own_server, APP_STORE_TIMEOUT_SECONDS="60").start("web", "invalidator", "warmer")
    idle = socket.create_connection(("127.0.0.1", service.port))
    idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert idle.recv(1000).startswith(b"HTTP/1.1 200")
    own_server.pause(True)
    service.event(1)
    service.put("/settings/warming", {"target_keys": 100_000})
    eventually(lambda: service.metric("cache_invalidation_events_in_flight") == 1)
    codes = {role: service.signal(role) for role in ("invalidator", "warmer", "web")}
    idle.close()
    assert codes == {"invalidator": 0, "warmer": 0, "web": 0}
    assert pending(service) == 1
    for role in codes:
        assert "Traceback" not in service.log(role)


@pytest.mark.whole
def test_idle_processes_use_next_to_no_cpu(new_service: NewService, server: ServerProcess) -> None:
    """Web, invalidator and warmer together use less than 4 % of a core when nothing happens."""
    service = new_service(server).start("web", "invalidator", "warmer")
    service.put("/settings/warming", {"target_keys": 100})
    eventually(lambda: service.get("/settings/warming").json["state"] == "idle")
    family = [psutil.Process(process.pid) for process in service.running.values()]
    family += family[0].children(recursive=True)

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in family)

    def share() -> float:
        seconds, before = 4.0, used()
        time.sleep(seconds)
        return (used() - before) / seconds

    # A busy neighbour makes the same work cost more for a while; a process that polls too often always exceeds 4 %.
    assert any(share() < 0.04 for _ in range(3))


def test_chunked_body_is_bounded(new_service: NewService, server: ServerProcess) -> None:
    """A body without Content-Length is also refused with 413 once it is too long."""
    service = new_service(server).start("web")
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        head = "POST /users/1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"1388\r\n" + b" " * 5000 + b"\r\n0\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


def raw(port: int, *parts: bytes) -> bytes:
    """Send the parts to the web process and return its answer. Raises TimeoutError if it leaves the connection open."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        for part in parts:
            connection.sendall(part)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(partial(connection.recv, 65536), b""))


MALFORMED = (b"zz\r\n{}\r\n0\r\n\r\n", b"-2\r\n{}\r\n0\r\n\r\n", b"5\r\n{}", b"2\r\n{}xx0\r\n\r\n")


def test_malformed_chunks_are_a_400(new_service: NewService, server: ServerProcess) -> None:
    """A malformed chunk is 400. Nothing behind it is read as a request, the log has no traceback, others are served."""
    service = new_service(server).start("web")
    head = b"POST /users/1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    behind = b"POST /users/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for chunks in MALFORMED:
        answer = raw(service.port, head + b"Transfer-Encoding: chunked\r\n\r\n", chunks, behind)
        assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1, (chunks, answer)
        assert "Traceback" not in service.log("web")
        assert service.event(1).status == 202


def test_announced_bodies_that_never_come_keep_no_thread(
    new_service: NewService, server: ServerProcess
) -> None:
    """More clients than threads announce a body and send none: each gets a 400, and others are served after seconds."""
    service = new_service(server).start("web")
    head = (
        b"POST /users/1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 10\r\n\r\n"
    )
    with ExitStack() as silent:
        clients = [
            silent.enter_context(socket.create_connection(("127.0.0.1", service.port), 20))
            for _ in range(140)
        ]
        for client in clients:
            client.sendall(head)
        assert service.get("/healthz").status == 200
        assert clients[0].recv(1024).startswith(b"HTTP/1.1 400")
    assert "Traceback" not in service.log("web")


@pytest.mark.parametrize("role", ["invalidator", "warmer"])
def test_taken_metrics_port_is_one_line_and_exit_2(
    new_service: NewService, server: ServerProcess, role: str
) -> None:
    """A taken port ends the process with code 2 and one clear line."""
    service = new_service(server)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service.invalidator_port = service.warmer_port = port
        assert service.launch(role).wait(20) == 2
    assert service.log(role).splitlines() == [service.log(role).strip()]
    assert str(port) in service.log(role)


@pytest.mark.first(1)
@pytest.mark.parametrize("role", ["web", "invalidator", "warmer"])
def test_bad_settings_are_one_line_and_exit_2(new_service: NewService, tmp_path: Path, role: str) -> None:
    """A bad variable or an unusable state folder ends any of the processes with code 2 and one clear line."""
    (tmp_path / "file").write_text("")
    down = type("Down", (), {"url": f"redis://127.0.0.1:{free_port()}/0"})()
    for name, value in (("APP_STRATEGY", "hope"), ("APP_STATE_DIR", str(tmp_path / "file"))):
        service = new_service(down, **{name: value})
        assert service.launch(role).wait(20) == 2
        assert len(service.log(role).splitlines()) == 1, service.log(role)


def test_a_state_folder_that_can_only_be_read_ends_web_once(new_service: NewService, tmp_path: Path) -> None:
    """Exit code 2 and one line: no worker is started again and again, each to find the same."""
    down = type("Down", (), {"url": f"redis://127.0.0.1:{free_port()}/0"})()
    service = new_service(down)
    State(service.state_dir).close()
    with sqlite3.connect(
        service.state_dir / "state.sqlite3"
    ) as database:  # root may write whatever the mode says
        database.execute(
            "CREATE TRIGGER r BEFORE INSERT ON settings BEGIN SELECT RAISE(ABORT, 'read-only'); END"
        )
    database.close()
    assert service.launch("web").wait(20) == 2
    assert service.log("web") == "state database: read-only\n"


# -- deploys, late switches, and the operations listener that answers while reads wait


SLOW_PAGES = 10
"""A COUNT of SCAN so small that a search takes seconds."""


def start_searches(service: Service, server: ServerProcess, events: int) -> None:
    """Start that many events, which search a large keyspace page by page, and wait until all are in flight."""
    client = server.client()
    client.mset({f"other:{number}": "x" for number in range(60_000)})
    service.put("/settings/invalidation", {"strategy": "scan", "scan_count": SLOW_PAGES})
    eventually(partial(service.shows, 'cache_invalidation_strategy{strategy="scan"}', 1))
    for user in range(1, events + 1):
        assert service.event(user).status == 202
    eventually(lambda: service.metric("cache_invalidation_events_in_flight") == events)


def scans_done(server: ServerProcess) -> int:
    """The number of SCAN calls that the server has carried out."""
    return int(server.client().info("commandstats").get("cmdstat_scan", {}).get("calls", 0))


@pytest.mark.whole
def test_a_deploy_ends_the_searches_under_way(new_service: NewService, own_server: ServerProcess) -> None:
    """Every event is done under the new strategy, and no search goes on at the server."""
    service = new_service(own_server).start("web", "invalidator")
    start_searches(service, own_server, 20)
    assert service.put("/settings/invalidation", {"strategy": "index"}).status == 200
    done = 'cache_invalidation_events_total{outcome="done",strategy="index"}'
    eventually(partial(service.shows, done, 20))
    before = scans_done(own_server)
    time.sleep(1)
    assert scans_done(own_server) == before and pending(service) == 0


@pytest.mark.whole
def test_a_late_switch_leaves_the_searches_alone(new_service: NewService, own_server: ServerProcess) -> None:
    """With `under_way: finish`, events under way continue under the old strategy; later events use the new one."""
    service = new_service(own_server).start("web", "invalidator")
    start_searches(service, own_server, 5)
    answer = service.put("/settings/invalidation", {"strategy": "index", "under_way": "finish"})
    assert answer.json["strategy"] == "index"
    eventually(partial(service.shows, 'cache_invalidation_strategy{strategy="index"}', 1))
    assert service.event(99).status == 202
    eventually(partial(service.shows, 'cache_invalidation_events_total{outcome="done",strategy="index"}', 1))
    assert pending(service) == 5 and scans_done(own_server) > 0
    service.put("/settings/invalidation", {"strategy": "index"})  # a deploy after all
    eventually(partial(service.shows, 'cache_invalidation_events_total{outcome="done",strategy="index"}', 6))


@pytest.mark.whole
def test_searches_at_once_are_bounded(new_service: NewService, own_server: ServerProcess) -> None:
    """With a bound, no more SCAN calls wait at the server than it allows, whatever the number of events."""
    service = new_service(own_server, APP_SEARCHES_AT_ONCE="4").start("web", "invalidator")
    start_searches(service, own_server, 30)
    own_server.pause(True)
    try:
        time.sleep(0.5)
        waiting = connections_with_unread_input(own_server)
    finally:
        own_server.pause(False)
    assert 0 < waiting <= 4


def connections_with_unread_input(server: ServerProcess) -> int:
    """The number of the paused server's connections with bytes that it has not read."""
    found = 0
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = row.split()
        mine = int(local.rpartition(":")[2], 16) == server.port and state == "01"
        found += mine and int(queues.partition(":")[2], 16) > 0
    return found


@pytest.mark.whole
def test_settings_answer_while_every_read_waits(new_service: NewService, own_server: ServerProcess) -> None:
    """While all of the storefront's threads wait for a frozen server, settings, health and metrics answer at once."""
    port = free_port()
    service = new_service(own_server, APP_OPERATIONS_PORT=str(port), APP_STORE_TIMEOUT_SECONDS="30").start(
        "web", "invalidator"
    )
    base = f"http://127.0.0.1:{port}"
    assert cache_status(service, 1) == "shop; fwd=miss"
    own_server.pause(True)
    readers = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(200)]
    try:
        for reader in readers:
            reader.sendall(b"GET /users/1/fragments/page-0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1)
        with pytest.raises(OSError):  # the main listener queues it behind the reads
            socket_answer(service.port, "/settings/invalidation", 1.0)
        began = time.monotonic()
        assert http("PUT", base + "/settings/invalidation", {"strategy": "index"}).json["strategy"] == "index"
        assert http("GET", base + "/settings/warming").status == 200
        assert http("GET", base + "/healthz").status == 200
        assert b"cache_requests" in http("GET", base + "/metrics").body
        assert time.monotonic() - began < 2
        assert http("GET", base + "/users/1/fragments/page-0").status == 404
    finally:
        own_server.pause(False)
        for reader in readers:
            reader.close()


def socket_answer(port: int, path: str, seconds: float) -> bytes:
    """The first bytes of the answer to a GET. Raises OSError if none come within ``seconds``."""
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        return connection.recv(100)


def test_taken_operations_port_is_said(new_service: NewService, server: ServerProcess) -> None:
    """If the operations port is taken, the log names it and the web process exits with an error."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        service = new_service(server, APP_OPERATIONS_PORT=str(port))
        process = service.launch("web")
        try:
            eventually(lambda: f"cannot listen on 127.0.0.1:{port}" in service.log("web"))
            assert process.wait(15) != 0
        finally:
            process.kill()
