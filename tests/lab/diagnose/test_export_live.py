"""The exported dashboard and rules on a plain server with redis_exporter and Prometheus.

On the healthy server every panel has data and no alert fires. Then a few clients make the lab's incidents, each of
which fires its alerts.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cli import run_command
from lab.server.signs import LONG_MS
from loadtest import resp
from loadtest.resp import ask, command, connect
from tests.app.servicekit import free_port
from tests.lab.diagnose.test_export import ALERTS
from tests.loadtest.conftest import Server

EXPORTER = shutil.which("redis_exporter") or shutil.which("prometheus-redis-exporter")
pytestmark = [
    pytest.mark.whole,
    pytest.mark.skipif(
        EXPORTER is None or shutil.which("prometheus") is None,
        reason="needs redis_exporter and prometheus (Debian: apt install prometheus-redis-exporter prometheus)",
    ),
]
KEYS, CLIENTS = 100_000, 4
TURN_S = 0.06
"""Length of a turn of the server's loop, with one long call of each client; a scrape waits for some three turns."""
PLAINLY_LONG_S = 3 * LONG_MS / 1000
"""A call of this length fires the alert on long calls, also if the machine becomes faster."""
SCRAPES_PER_WINDOW = 8
FIRES_WITHIN_S = 90.0


class Prometheus:
    """Scrapes the exporter every second, and evaluates the exported rules."""

    def __init__(self, folder: Path, exporter: int) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "mine/rules.yml")],
            "scrape_configs": [
                {"job_name": "redis", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={folder / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={self._url[7:]}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def query(self, expression: str) -> list[float]:
        """Return the values of an expression now; none before Prometheus answers."""
        asked = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return []
        return [float(each["value"][1]) for each in found]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {name for name in ALERTS if self.query(f'ALERTS{{alertname="{name}", alertstate="firing"}}')}

    def end(self) -> None:
        """End the process; its data are in the test's folder."""
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Prometheus, dict[str, Any]]]:
    """A server with keys, redis_exporter, Prometheus with the rules, and the dashboard."""
    folder = tmp_path_factory.mktemp("live")
    assert run_command(["export", str(folder / "mine"), "--every", "1s"]) == 0
    server, port = Server(folder, "--maxmemory", "1gb"), free_port()
    server.start()
    fill(server, 0)
    words = [str(EXPORTER), "-redis.addr", server.url, "-web.listen-address", f"127.0.0.1:{port}"]
    exporter = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    prometheus = Prometheus(folder, port)
    try:
        yield server, prometheus, json.loads((folder / "mine/dashboard.json").read_text())
    finally:
        prometheus.end()
        exporter.terminate()
        exporter.wait(30)
        server.kill()


def fill(server: Server, first: int) -> None:
    """Set `KEYS` keys, numbered from `first`."""
    with server.client().pipeline(transaction=False) as pipe:
        for number in range(first, first + KEYS):
            pipe.set(f"key:{number}", "x" * 100)
        pipe.execute()


@contextmanager
def clients(
    server: Server,
    count: int,
    words: Callable[[int], bytes],
    every_s: float = 0.0,
    longest_s: float = math.inf,
) -> Iterator[None]:
    """Run clients that send one command after another; after a call longer than `longest_s` they rest as long."""
    ended = threading.Event()

    def loop(first: int) -> None:
        with connect(resp.Server.from_url(server.url)) as line:
            number, pause_s = first, every_s
            while not ended.wait(pause_s):
                began = time.monotonic()
                ask(line, words(number))
                took_s = time.monotonic() - began
                pause_s = took_s if took_s > longest_s else every_s
                number += count

    threads = [threading.Thread(target=loop, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(30)


def test_healthy_every_panel_has_data_and_no_alert_fires(
    scene: tuple[Server, Prometheus, dict[str, Any]],
) -> None:
    """With writes at a quiet pace every panel gets data, and no alert fires for as long as it would need to."""
    server, prometheus, board = scene
    with clients(server, 2, lambda number: command("SET", f"key:{number % KEYS}", "y" * 100), every_s=0.01):
        deadline, empty = time.monotonic() + FIRES_WITHIN_S, list(queries(board))
        while empty and time.monotonic() < deadline:
            time.sleep(1)
            empty = [asked for asked in empty if not any(map(math.isfinite, prometheus.query(asked)))]
        assert empty == []
        for _ in range(SCRAPES_PER_WINDOW + 4):
            assert prometheus.firing() == set()
            time.sleep(1)


def queries(board: dict[str, Any]) -> Iterator[str]:
    """Yield the queries of every panel as Grafana sends them."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield (
                target["expr"]
                .replace('instance="$server", ', "")
                .replace(', instance="$server"', "")
                .replace("$__rate_interval", f"{SCRAPES_PER_WINDOW}s")
            )


def long_calls(server: Server) -> Iterator[None]:
    """KEYS from some clients, without a pause, over as many keys as make a call plainly long on this machine.

    If the machine gets slower after the first call was timed, turns become so long that every scrape times out, and
    Prometheus knows nothing else. So clients rest after a turn of three times the planned length, except two, which
    keep the server's thread busy.
    """
    while (call_s := min(seconds_of_keys(server) for _ in range(3))) < PLAINLY_LONG_S:
        fill(server, server.client().dbsize())
    count, words = math.ceil(TURN_S / call_s), command("KEYS", "nobody:*")
    with (
        clients(server, 2, lambda _: words),
        clients(server, max(1, count - 2), lambda _: words, longest_s=3 * TURN_S),
    ):
        yield


def seconds_of_keys(server: Server) -> float:
    """Time one KEYS call that finds nothing."""
    client = server.client()
    client.ping()
    began = time.monotonic()
    client.keys("nobody:*")
    return time.monotonic() - began


def short_scans(server: Server) -> Iterator[None]:
    """SCANs from some clients, each over a part of the keyspace."""
    with clients(server, CLIENTS, lambda _: command("SCAN", "0", "MATCH", "nobody:*", "COUNT", "2000")):
        yield


def one_by_one(server: Server) -> Iterator[None]:
    """UNLINKs from some clients, one key a call."""
    with clients(server, CLIENTS, lambda number: command("UNLINK", f"gone:{number}")):
        yield


def evictions(server: Server) -> Iterator[None]:
    """New keys on a server at its memory limit."""
    client = server.client()
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", client.info("memory")["used_memory"])
    try:
        with clients(server, 2, lambda number: command("SET", f"new:{number}", "z" * 1000)):
            yield
    finally:
        client.config_set("maxmemory", "1gb")


def many_connections(server: Server) -> Iterator[None]:
    """All but a few of the connections that the server admits."""
    client = server.client()
    client.config_set("maxclients", 100)
    lines = [
        connect(resp.Server.from_url(server.url))
        for _ in range(96 - int(client.info("clients")["connected_clients"]))
    ]
    try:
        yield
    finally:
        for line in lines:
            line.close()
        client.config_set("maxclients", 1000)


def gone(server: Server) -> Iterator[None]:
    """The server is killed."""
    server.kill()
    yield


# In this order: evictions remove keys that long calls need.
CASES: dict[str, tuple[Callable[[Server], Iterator[None]], set[str]]] = {
    "many connections": (many_connections, {"RedisConnectionsAtTheLimit"}),
    "deletes one by one": (one_by_one, {"RedisDeletesOneByOne"}),
    "short scans": (short_scans, {"RedisScansTakeTheTime"}),
    "long calls": (long_calls, {"RedisLongCalls", "RedisThreadTaken", "RedisMakesItsExporterWait"}),
    "evictions": (evictions, {"RedisEvictsInBursts"}),
    "gone": (gone, {"RedisDoesNotAnswer"}),
}


def test_every_alert_has_its_case() -> None:
    """Every alert has a case in which it must fire."""
    assert set().union(*(expected for _, expected in CASES.values())) == set(ALERTS)


@pytest.mark.parametrize("case", CASES)
def test_each_incident_fires_its_alerts(case: str, scene: tuple[Server, Prometheus, dict[str, Any]]) -> None:
    """Each incident, on a server that is otherwise healthy, fires its alerts."""
    server, prometheus, _ = scene
    begin, expected = CASES[case]
    with contextmanager(begin)(server):
        deadline, fired = time.monotonic() + FIRES_WITHIN_S, set[str]()
        while not expected <= fired and time.monotonic() < deadline:
            time.sleep(1)
            fired |= prometheus.firing()
    assert expected <= fired, fired
