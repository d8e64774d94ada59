"""Faults on purpose: health checks turn red, the service works without its watchers, servers recover by themselves."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.server.servers import IN_COMPOSE
from tests.compose.stack import PROFILE_OPTIONS, Stack, until

STOPPED = (
    # One of each kind. A storefront's web process turns unhealthy through its server: see BY_THEIR_SERVER.
    "dragonfly",
    "valkey",
    "invalidator-redis",
    "warmer-redis",
    "locust-redis",
    "probe-redis",
    "control",
    "redis-exporter",
    "prometheus",
    "tempo",
    "grafana",
)
BY_THEIR_SERVER = ("web-dragonfly", "web-valkey")


@pytest.fixture(scope="module")
def frozen(stack: Stack) -> Iterator[dict[str, str]]:
    """Freeze one service of each kind by SIGSTOP: alive, ports open, doing nothing. Yield what their health became."""
    everything = (*STOPPED, *BY_THEIR_SERVER)
    stack.signal(STOPPED, "SIGSTOP")
    end = time.monotonic() + 60
    health: dict[str, str] = {}
    while time.monotonic() < end:
        health = {service: stack.health(service) for service in everything}
        if set(health.values()) == {"unhealthy"}:
            break
        time.sleep(1)
    stack.signal(STOPPED, "SIGCONT")
    yield health
    for service in everything:
        stack.wait_health(service, "healthy", 90)


@pytest.mark.parametrize("service", [*STOPPED, *BY_THEIR_SERVER])
def test_healthcheck_turns_red(service: str, frozen: dict[str, str]) -> None:
    """A frozen service is unhealthy within a minute, and so is a storefront whose server is frozen."""
    assert frozen[service] == "unhealthy"


@pytest.mark.parametrize("service", [*STOPPED, *BY_THEIR_SERVER])
def test_healthcheck_turns_green_again(service: str, frozen: dict[str, str], stack: Stack) -> None:
    """A frozen service that is let go becomes healthy again without help."""
    stack.wait_health(service, "healthy", 90)


READS = """
import http.client, json, time
c = http.client.HTTPConnection('web-redis', 8000, timeout=10)
out = []
for n in range(60):
    began = time.perf_counter()
    c.request('GET', f'/users/5/fragments/page-{n % 5}')
    r = c.getresponse(); r.read()
    out.append([r.status, r.headers['Cache-Status'], time.perf_counter() - began])
    c.request('POST', '/users/6/events', '{"type":"order"}', {'Content-Type': 'application/json'})
    r = c.getresponse(); r.read()
    out.append([r.status, 'event', time.perf_counter() - began])
    time.sleep(0.01)
print(json.dumps(out))
"""


def visit(stack: Stack) -> tuple[set[tuple[int, str]], float]:
    """Send reads and orders; return which answers there were, and the median time of a read in ms."""
    rows = json.loads(stack.inside("probe-redis", READS))
    reads = [seconds for _, kind, seconds in rows if kind != "event"]
    return {(status, kind) for status, kind, _ in rows[20:]}, statistics.median(reads) * 1000


@pytest.mark.parametrize("watcher", ["tempo", "prometheus"])
def test_service_does_without_its_watchers(watcher: str, stack: Stack) -> None:
    """With the trace backend or Prometheus stopped, the storefront gives the same answers about as fast."""
    visit(stack)
    before, usual = visit(stack)
    stack.compose("stop", watcher)
    try:
        answers, without = visit(stack)
        time.sleep(3)  # by now every exporter has noticed
        again, later = visit(stack)
        assert answers == again == before == {(200, "shop; hit"), (202, "event")}
        assert min(without, later) < 3 * usual + 1, (usual, without, later)
        assert stack.health("web-redis") == "healthy"
    finally:
        stack.compose("up", "--detach", "--wait", "--no-deps", watcher)


def tell(stack: Stack, server: str, *words: str) -> str:
    """Send a command to a server over its own protocol, as the console does; return its answer, or "hung up"."""
    request = f"*{len(words)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in words)
    code = (
        "import socket\n"
        f"c=socket.create_connection(('{server}',6379),5);c.sendall({request.encode()!r});c.settimeout(5)\n"
        "print(c.recv(1000).decode() or 'hung up')"
    )
    return stack.inside(f"probe-{server}", code)


@pytest.mark.parametrize("server", [server.name for server in IN_COMPOSE])
def test_restart_of_a_server_recovers_without_help(server: str, stack: Stack) -> None:
    """After SHUTDOWN NOSAVE the server comes back empty, and reads, events and the fill go on without help."""
    for path, body in (
        ("/settings/invalidation", {"strategy": "index"}),
        ("/settings/warming", {"target_keys": 2000, "keys_per_second": None}),
    ):
        assert stack.http(server, "PUT", path, body)[0] == 200

    def filled() -> bool:
        return bool(json.loads(stack.http(server, "GET", "/settings/warming")[2])["keys"] >= 1900)

    until(filled, "2 000 keys", 30)
    before = stack.inspect(server)["State"]["StartedAt"]
    tell(stack, server, "SHUTDOWN", "NOSAVE")
    until(lambda: stack.inspect(server)["State"]["StartedAt"] != before, f"{server} started again", 30)
    stack.wait_health(server, "healthy", 60)
    stack.wait_health(f"web-{server}", "healthy", 60)
    until(filled, "filled again", 60)
    assert stack.http(server, "POST", "/users/9/events", {"type": "order"})[0] == 202
    pending = f'sum(cache_invalidation_events_pending{{job="invalidator",server="{server}"}})'
    until(lambda: stack.value(pending) == 0, "the event carried out", 60)
    for part in ("invalidator", "warmer", "locust", "probe"):
        stack.wait_health(f"{part}-{server}", "healthy", 60)
    counts = f'rate(probe_latency_seconds_count{{server="{server}",from="send"}}[6s])'
    until(lambda: stack.value(counts) > 50, "the probe measures again", 30)


def test_event_accepted_while_the_server_is_away_is_carried_out(stack: Stack) -> None:
    """An order during a server's outage is accepted at once and carried out when the server is back."""
    stack.compose("stop", "keydb")
    try:
        assert (
            stack.http("keydb", "GET", "/users/4/fragments/page-1")[1]["Cache-Status"] == "shop; fwd=bypass"
        )
        assert stack.http("keydb", "POST", "/users/4/events", {"type": "order"})[0] == 202
    finally:
        stack.compose("--profile", "keydb", "up", "--detach", "--wait", "--no-deps", "keydb")
    pending = 'sum(cache_invalidation_events_pending{job="invalidator",server="keydb"})'
    until(lambda: stack.value(pending) == 0, "the event carried out", 60)


def test_every_process_ends_when_told(stack: Stack) -> None:
    """Each kind of container ends within its grace period when told to, and none has to be killed."""
    services = [f"{part}-keydb" for part in ("web", "invalidator", "warmer", "locust", "probe")] + ["keydb"]
    services += ["control", "redis-exporter", "grafana", "tempo", "prometheus"]

    def end(service: str) -> tuple[str, int]:
        container = stack.container(service)
        stack.docker("stop", container)
        return service, int(stack.inspect(service)["State"]["ExitCode"])

    try:
        with ThreadPoolExecutor(4) as pool:
            codes = dict(pool.map(end, services))
        killed = [service for service, code in codes.items() if code == 137]
        assert killed == []
    finally:
        stack.compose(*PROFILE_OPTIONS, "up", "--detach", "--wait")
