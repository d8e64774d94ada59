"""The observer's view of the server: its own counters, slow log and key count. It never scans while it observes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lab.errors import StackError

Counters = dict[str, tuple[float, float]]
"""Command → (calls, execution time in µs), since the server started."""


@dataclass(frozen=True)
class Snapshot:
    """The server's counters at one moment of its own clock (unix seconds)."""

    at: float
    keys: int
    commands: Counters
    main_thread_s: float | None
    memory_mb: float
    clients: int
    run_id: str


class Store:
    """A connection of its own for looking at the server. Methods raise `StackError` when it does not answer."""

    def __init__(self, url: str, timeout_s: float = 20.0) -> None:
        self.url = url
        self.shown = redacted(url)
        self._clock_offset: float | None = None
        self._client: Any = redis.Redis.from_url(
            url,
            protocol=2,
            driver_info=None,
            socket_timeout=timeout_s,
            socket_connect_timeout=3,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="replace",
        )

    def _ask(self, what: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except redis.RedisError as error:
            raise StackError(f"the server at {self.shown} does not answer {what}: {error}") from error

    def wait(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Until it answers PING and has loaded; `check` may raise meanwhile."""
        end = time.monotonic() + seconds
        while True:
            check()
            try:
                self._client.ping()
                return
            except redis.RedisError as error:
                if time.monotonic() > end:
                    raise StackError(f"no server answers at {self.shown}: {error}") from error
                time.sleep(0.03)

    def identity(self) -> tuple[str, str]:
        """(product, version), for instance ('valkey', '9.1.2')."""
        info = self._ask("INFO", self._client.info, "server")
        for product in ("dragonfly", "valkey", "redis"):
            if f"{product}_version" in info:
                return product, str(info[f"{product}_version"]).removeprefix("df-v")
        return "unknown", "unknown"

    def snapshot(self) -> Snapshot:
        """All counters, in one round trip."""
        pipe = self._client.pipeline(transaction=False)
        for section in ("server", "clients", "memory", "cpu", "commandstats"):
            pipe.info(section)
        pipe.dbsize()
        server, clients, memory, cpu, stats, keys = self._ask("INFO", pipe.execute)
        # The main thread's own CPU time is known on Linux only; elsewhere the process's is close, for the other
        # threads have little to do.
        thread = "_main_thread" if "used_cpu_user_main_thread" in cpu else ""
        main = None
        if f"used_cpu_user{thread}" in cpu:
            main = float(cpu[f"used_cpu_user{thread}"]) + float(cpu[f"used_cpu_sys{thread}"])
        return Snapshot(
            at=self._local(server),
            keys=int(keys),
            commands={
                name.removeprefix("cmdstat_").upper(): (float(entry["calls"]), float(entry["usec"]))
                for name, entry in stats.items()
                if isinstance(entry, dict)
            },
            main_thread_s=main,
            memory_mb=float(memory["used_memory"]) / 1e6,
            clients=int(clients["connected_clients"]),
            run_id=str(server.get("run_id", "")),
        )

    def _local(self, server: dict[str, Any]) -> float:
        """The server's own clock, moved to this machine's: exact for rates, and fit to be compared with the probes.

        The offset is taken once, when the server is idle; on one machine it is nothing but the round trip.
        """
        if "server_time_usec" not in server:
            return time.time()
        at = float(server["server_time_usec"]) / 1e6
        if self._clock_offset is None:
            offset = time.time() - at
            self._clock_offset = offset if abs(offset) > 0.1 else 0.0
        return at + self._clock_offset

    def keys_everywhere(self) -> int:
        """Keys in all databases of the server."""
        found = self._ask("INFO", self._client.info, "keyspace")
        return sum(int(entry["keys"]) for entry in found.values() if isinstance(entry, dict))

    def lock(self, key: str, seconds: int) -> bool:
        """Take a lock that ends by itself; False where somebody holds it."""
        return bool(self._ask("SET", self._client.set, key, "1", nx=True, ex=seconds))

    def slowlog_settings(self) -> tuple[int, int]:
        """(threshold in µs, length) as they are now."""
        found = self._ask("CONFIG GET", self._client.config_get, "slowlog-*")
        try:
            return int(found["slowlog-log-slower-than"]), int(found["slowlog-max-len"])
        except KeyError as error:
            raise StackError(f"the server at {self.shown} does not tell its setting {error}") from error

    def configure_slowlog(self, threshold_us: int, length: int = 512) -> None:
        """Set threshold and length. What the log holds stays."""
        self._ask("CONFIG SET", self._client.config_set, "slowlog-log-slower-than", threshold_us)
        self._ask("CONFIG SET", self._client.config_set, "slowlog-max-len", length)

    def slowlog(self) -> list[tuple[str, float, str, int]]:
        """Entries as (identity, unix time, command, duration in µs), newest first."""
        entries = self._ask("SLOWLOG GET", self._client.execute_command, "SLOWLOG", "GET", 512) or []
        found = []
        for entry in entries:
            number, at, duration, words = (
                (entry["id"], entry["start_time"], entry["duration"], entry["command"])
                if isinstance(entry, dict)
                else entry[:4]
            )
            if isinstance(words, (bytes, str)):
                words = (words.decode(errors="replace") if isinstance(words, bytes) else words).split(" ")
            name = words[0].decode(errors="replace") if isinstance(words[0], bytes) else str(words[0])
            found.append((f"{number}@{at}", float(at), name.upper(), int(duration)))
        return found

    def ping_us(self, times: int = 200) -> list[float]:
        """Round-trip times of PING in µs, one after the other: the network floor of an idle server."""
        found = []
        for _ in range(times):
            began = time.perf_counter()
            self._ask("PING", self._client.ping)
            found.append((time.perf_counter() - began) * 1e6)
        return found

    def scan_cost_us(self, pattern: str, count: int, seconds: float) -> float:
        """Execution time on the server of one full SCAN for a pattern, in µs: the mean over `seconds` of them."""
        before, iterations, end = self.snapshot(), 0, time.monotonic() + seconds
        while iterations == 0 or time.monotonic() < end:
            cursor = 0
            while True:
                cursor, _ = self._ask("SCAN", self._client.scan, cursor, match=pattern, count=count)
                if int(cursor) == 0:
                    break
            iterations += 1
        after = self.snapshot()
        calls = after.commands["SCAN"][1] - before.commands.get("SCAN", (0.0, 0.0))[1]
        return calls / iterations

    def own_keys(self, prefixes: tuple[str, ...]) -> Iterator[list[str]]:
        """The lab's own keys, page by page: only for cleaning up, when nothing is measured."""
        for prefix in prefixes:
            cursor = 0
            while True:
                cursor, page = self._ask("SCAN", self._client.scan, cursor, match=prefix + "*", count=2000)
                if page:
                    yield page
                if int(cursor) == 0:
                    break

    def remove_own(self, prefixes: tuple[str, ...]) -> int:
        """Delete the lab's own keys and nothing else; returns how many."""
        removed = 0
        for page in self.own_keys(prefixes):
            removed += int(self._ask("UNLINK", self._client.unlink, *page))
        return removed

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def redacted(url: str) -> str:
    """The URL without its password, for people and files."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url
    except ValueError:  # not a URL at all: what it holds cannot be told apart
        return "(not a URL)"
    return parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}").geturl()
