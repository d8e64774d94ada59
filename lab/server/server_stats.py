"""The observer of a server: reads its counters, slow log and number of keys, without a search.

It also empties, configures and ends the server, for a run and for the control page's levers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lab.errors import StackError
from loadtest import info

REFUSALS = ("OOM", "READONLY", "MISCONF", "NOREPLICAS")
"""First words of errors with which a server refuses every write, while it answers reads as usual."""
CANARY = "latency-lab-canary"
"""A key that never exists: see `ServerObserver.refusal`."""
LAST_SLOT, TRIED = 16_383, 64
"""The last slot of a cluster, and how many keys show whether a search visits all slots."""
INCOMPLETE_BEYOND = 3.0
"""CPU time beyond this multiple of the execution time means that the execution time is incomplete: the rest of a
call's cost (reading, answering, waking up) is less than that."""


def absent_pattern(prefix: str) -> str:
    """Return a pattern of the storefront's form that no key matches (matching is a part of a search's cost)."""
    return f"{prefix}:user:{10**9}:page-*"


@dataclass(frozen=True)
class Snapshot:
    """The server's counters at one moment of its own clock (unix seconds).

    `main_thread_s`: CPU seconds of the thread that executes commands, or the mean where several `threads` do. Of a
    server that is held to a share of a core they are counted in parts of that share.
    `active_s`: seconds in which that thread was at work by the server's own clock, None if it does not report them.
    `run_id` differs after a restart. `figures`: further counters, which become figures of a phase by their difference.
    """

    at: float
    keys: int
    commands: info.Counters
    main_thread_s: float | None
    memory_mb: float
    clients: int
    run_id: str
    threads: int = 1
    active_s: float | None = None
    figures: dict[str, float] = field(default_factory=dict)


class ServerObserver:
    """A connection to the server for observation. Methods raise `StackError` when the server does not answer."""

    def __init__(
        self, url: str, timeout_s: float = 20.0, shown: str = "", share: Callable[[], float] = lambda: 1.0
    ) -> None:
        """`shown`: the address for people, where `url` is a tunnel's. `share`: the share of a core it may use now."""
        self.url = url
        self._share = share
        self.shown = shown or redacted(url)
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
        self._client.set_response_callback("INFO", lambda text, **_: info.fields(text))

    def _ask(self, command: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except redis.RedisError as error:
            raise StackError(f"the server at {self.shown} does not answer {command}: {error}") from error

    def wait(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait until it answers PING, after loading; `check` may raise meanwhile.

        Raises `StackError` after `seconds`.
        """
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

    def follow(self, host: str, port: int, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Become a replica, and wait until it has its primary's keys; `check` may raise meanwhile.

        It uses a command, because each server spells the start option differently.
        """
        end = time.monotonic() + seconds
        self._ask("REPLICAOF", self._client.replicaof, host, port)
        while self._ask("INFO", self._client.info, "replication").get("master_link_status") != "up":
            check()
            if time.monotonic() > end:
                raise StackError(f"the replica at {self.shown} does not reach its primary.")
            time.sleep(0.05)

    def take_all_slots(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Give all slots to a new server in cluster mode, and wait until it serves them; `check` may raise meanwhile.

        Raises `StackError` after `seconds`.
        """
        self._cluster("ADDSLOTSRANGE", 0, LAST_SLOT)
        self.wait_for_cluster(1, seconds, check)

    def take_slots(self, number: int, first: int, last: int) -> None:
        """Become the node of that number (from 1) of a new cluster, with the slots from `first` to `last`."""
        self._cluster("SET-CONFIG-EPOCH", number)
        self._cluster("ADDSLOTSRANGE", first, last)

    def meet(self, port: int, bus_port: int) -> None:
        """Introduce another node on this machine; both then exchange the nodes that they know."""
        self._cluster("MEET", "127.0.0.1", port, bus_port)

    def wait_for_cluster(self, nodes: int, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the server knows that number of nodes, and they serve all slots; `check` may raise meanwhile.

        Raises `StackError` after `seconds`.
        """
        end = time.monotonic() + seconds
        while True:
            reply = info.fields(self._cluster("INFO"))
            if reply.get("cluster_state") == "ok" and reply.get("cluster_known_nodes") == str(nodes):
                return
            check()
            if time.monotonic() > end:
                raise StackError(f"the server at {self.shown} does not serve its slots after {seconds:g} s.")
            time.sleep(0.05)

    def _cluster(self, *words: str | int) -> str:
        return str(self._ask(f"CLUSTER {words[0]}", self._client.execute_command, "CLUSTER", *words))

    def searches_one_slot(self) -> bool:
        """Return True if a SCAN whose pattern begins with a hash tag visits that slot only.

        Tried with keys in many slots, which are removed again: if all slots are visited, a SCAN with COUNT 1 does not
        end at once. Only for a server that belongs to the lab.
        """
        keys = [f"{CANARY}{{{number}}}" for number in range(TRIED)]
        for key in keys:
            self._ask("SET", self._client.set, key, "")
        pattern = f"{CANARY}{{none}}*"
        cursor, _ = self._ask("SCAN", self._client.scan, 0, match=pattern, count=1)
        for key in keys:
            self._ask("UNLINK", self._client.unlink, key)
        return int(cursor) == 0

    def identity(self) -> tuple[str, str]:
        """Return (product, version), as ('valkey', '9.1.2'); ('unknown', 'unknown') without them."""
        return info.product(self._ask("INFO", self._client.info, "server")) or ("unknown", "unknown")

    def cpu_seconds(self) -> float | None:
        """Return CPU seconds of the whole server since its start; None if it does not report them."""
        return info.process_seconds(self._ask("INFO", self._client.info, "cpu"))

    def run_id_and_uptime(self) -> tuple[str, int]:
        """Return (run id, uptime in s). Another id or a smaller uptime means a restart. Dragonfly has no run id."""
        reply = self._ask("INFO", self._client.info, "server")
        return reply.get("run_id", ""), int(reply["uptime_in_seconds"])

    def snapshot(self) -> Snapshot:
        """Return all counters, in one round trip."""
        pipe = self._client.pipeline(transaction=False)
        for section in ("server", "clients", "memory", "cpu", "commandstats", "replication"):
            pipe.info(section)
        pipe.dbsize()
        server, clients, memory, cpu, stats, replication, keys = self._ask("INFO", pipe.execute)
        busy_s = info.busy_seconds(server | cpu)
        return Snapshot(
            at=self._local(server),
            keys=int(keys),
            commands=info.counters(stats),
            main_thread_s=None if busy_s is None else busy_s / self._share(),
            active_s=info.active_seconds(cpu),
            memory_mb=float(memory["used_memory"]) / 1e6,
            clients=int(clients["connected_clients"]),
            # Dragonfly has no run_id, but draws a new replication id at each start.
            run_id=server.get("run_id") or replication.get("master_replid", ""),
            threads=info.threads(server),
        )

    def refusal(self) -> str | None:
        """Return the error with which the server refuses writes (`REFUSALS`); None if it accepts them.

        Sends a write without effect: SETRANGE of an empty value on a missing key creates no key, but is refused as any
        write is. (Neither reads nor the counters show that writes are refused.)
        """
        try:
            self._client.execute_command("SETRANGE", CANARY, 0, "")
        except redis.exceptions.OutOfMemoryError as error:  # redis-py removes the first word
            return f"OOM {error}"
        except redis.exceptions.ReadOnlyError as error:
            return f"READONLY {error}"
        except redis.ResponseError as error:
            return str(error) if str(error).startswith(REFUSALS) else None
        except redis.RedisError as error:
            raise StackError(f"the server at {self.shown} does not answer: {error}") from error
        return None

    def _local(self, server: info.Fields) -> float:
        """Return the server's time by this machine's clock: exact for rates, comparable with the probes' times.

        The offset is measured once, while the server is idle. Below 0.1 s it is ignored: on one machine it is only the
        round trip.
        """
        if "server_time_usec" not in server:
            return time.time()
        at = float(server["server_time_usec"]) / 1e6
        if self._clock_offset is None:
            offset = time.time() - at
            self._clock_offset = offset if abs(offset) > 0.1 else 0.0
        return at + self._clock_offset

    def keys_everywhere(self) -> int:
        """Return the number of keys in all databases of the server."""
        return info.keys(self._ask("INFO", self._client.info, "keyspace"))

    def lock(self, key: str, owner: str, seconds: int) -> bool:
        """Take a lock for an owner; it expires after `seconds`. Returns False while another owner holds it."""
        return bool(self._ask("SET", self._client.set, key, owner, nx=True, ex=seconds))

    def keep_lock(self, key: str, owner: str, seconds: int) -> None:
        """Renew a lock that this owner still has: it expires `seconds` from now."""
        if self.text(key) == owner:
            self._ask("SET", self._client.set, key, owner, xx=True, ex=seconds)

    def keep(self, key: str, value: str) -> None:
        """Write a key that does not expire."""
        self._ask("SET", self._client.set, key, value)

    def text(self, key: str) -> str | None:
        """Return the value of a key; None if there is no such key."""
        found = self._ask("GET", self._client.get, key)
        return None if found is None else str(found)

    def slowlog_settings(self) -> tuple[int, int]:
        """Return the slow log's current (threshold in µs, length). (Dragonfly may spell the names with underscores.)"""
        found = self._ask("CONFIG GET", self._client.config_get, "slowlog*")
        values = {name.replace("_", "-"): value for name, value in found.items()}
        try:
            return int(values["slowlog-log-slower-than"]), int(values["slowlog-max-len"])
        except KeyError as error:
            raise StackError(f"the server at {self.shown} does not report its setting {error}") from error

    def configure(self, settings: dict[str, str]) -> None:
        """Change settings at run time. A restart forgets them."""
        for name, value in settings.items():
            self._ask(f"CONFIG SET {name}", self._client.config_set, name, value)

    def settings(self, names: Iterable[str]) -> dict[str, str]:
        """Return the current values of those settings that the server knows, as `configure` takes them."""
        found: dict[str, str] = {}
        for name in names:
            found |= self._ask("CONFIG GET", self._client.config_get, name)
        return found

    def restore(self, before: dict[str, str]) -> dict[str, str]:
        """Set the settings that differ from `before` back to it. Returns them."""
        now = self.settings(before)
        changed = {name: value for name, value in before.items() if now.get(name, value) != value}
        self.configure(changed)
        return changed

    def maxmemory(self) -> int:
        """Return the server's maxmemory in bytes (0: no limit)."""
        return int(self._memory().get("maxmemory", 0))

    def _memory(self) -> dict[str, str]:
        return dict(self._ask("INFO", self._client.info, "memory"))

    def limit_memory(self, headroom: int) -> None:
        """Set maxmemory to `headroom` bytes above the memory in use, with eviction (allkeys-lru)."""
        used = int(self._memory()["used_memory"])
        self.configure({"maxmemory": str(used + headroom), "maxmemory-policy": "allkeys-lru"})

    def configure_slowlog(self, threshold_us: int, length: int = 512) -> None:
        """Set the slow log's threshold and length. Its entries stay."""
        self._ask("CONFIG SET", self._client.config_set, "slowlog-log-slower-than", threshold_us)
        self._ask("CONFIG SET", self._client.config_set, "slowlog-max-len", length)

    def slowlog(self, newest: int = 512) -> list[tuple[str, float, str, int]]:
        """Return entries as (identity, unix time, command, duration in µs), newest first; `newest` at most."""
        entries = self._ask("SLOWLOG GET", self._client.execute_command, "SLOWLOG", "GET", newest) or []
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

    def flush(self) -> None:
        """Empty the whole server. Only for a server that belongs to the lab."""
        self._ask("FLUSHALL", self._client.execute_command, "FLUSHALL", "ASYNC")

    def shutdown(self) -> None:
        """End the server without saving; its supervisor may start it again."""
        self._ask("PING", self._client.ping)
        try:
            self._client.execute_command("SHUTDOWN", "NOSAVE")  # Dragonfly says OK first, the others nothing
        except redis.ConnectionError:
            pass  # it is gone, as requested
        except redis.RedisError as error:
            raise StackError(f"the server at {self.shown} does not carry out SHUTDOWN: {error}") from error

    def ping_us(self, times: int = 200) -> list[float]:
        """Return round-trip times of consecutive PINGs in µs: the network floor of an idle server."""
        found = []
        for _ in range(times):
            began = time.perf_counter()
            self._ask("PING", self._client.ping)
            found.append((time.perf_counter() - began) * 1e6)
        return found

    def scan_cost_us(self, pattern: str, count: int, seconds: float) -> float:
        """Return the server's execution time of a full SCAN for a pattern, in µs: the mean over `seconds` of SCANs.

        If the CPU time is much longer (`INCOMPLETE_BEYOND`), it is returned instead: KeyDB's `cmdstat_scan` counts the
        time to take a snapshot, but not the walk, which its main thread does afterwards. A throttled server's
        execution time includes the time without a core.
        """
        execution_us, cpu_us = self.search_us(pattern, count, seconds)
        return cpu_us if cpu_us is not None and cpu_us > INCOMPLETE_BEYOND * execution_us else execution_us

    def search_us(self, pattern: str, count: int, seconds: float) -> tuple[float, float | None]:
        """Time full SCANs for a pattern, for `seconds`. Returns means in µs: the execution time by the server's clock,
        and the CPU time of the thread that executes commands (the mean of several; None if it is not reported).
        """
        before, iterations, end = self.snapshot(), 0, time.monotonic() + seconds
        while iterations == 0 or time.monotonic() < end:
            cursor = 0
            while True:
                cursor, _ = self._ask("SCAN", self._client.scan, cursor, match=pattern, count=count)
                if int(cursor) == 0:
                    break
            iterations += 1
        after = self.snapshot()
        execution_us = after.commands["SCAN"][1] - before.commands.get("SCAN", (0.0, 0.0))[1]
        if before.main_thread_s is None or after.main_thread_s is None:
            return execution_us / iterations, None
        return execution_us / iterations, 1e6 * (after.main_thread_s - before.main_thread_s) / iterations

    def own_keys(self, prefixes: tuple[str, ...]) -> Iterator[list[str]]:
        """Yield pages of the lab's own keys, by prefix. It scans, so use it only when nothing is measured.

        It visits the keyspace once, and pauses after each call for as long as the call took.
        """
        pattern, cursor, over = os.path.commonprefix(prefixes) + "*", 0, False  # noqa: RUF071 # no paths
        while not over:
            began = time.monotonic()
            cursor, page = self._ask("SCAN", self._client.scan, cursor, match=pattern, count=2000)
            pause, over = time.monotonic() - began, int(cursor) == 0
            if own := [key for key in page if key.startswith(prefixes)]:
                yield own
            time.sleep(0 if over else pause)

    def remove_own(self, prefixes: tuple[str, ...], but: frozenset[str] = frozenset()) -> int:
        """Delete the lab's own keys, by prefix, except the keys `but`. Returns their number."""
        removed = 0
        for page in self.own_keys(prefixes):
            removed += self.remove(*(key for key in page if key not in but))
        return removed

    def remove(self, *keys: str) -> int:
        """Delete these keys. Returns the number of those that existed."""
        return int(self._ask("UNLINK", self._client.unlink, *keys)) if keys else 0

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def redacted(url: str) -> str:
    """Return the URL without its password, for people and files."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url
    except ValueError:  # not a URL: a password in it would not be found
        return "(not a URL)"
    return parts._replace(netloc=f"{parts.username or ''}:***@{parts.netloc.rpartition('@')[2]}").geturl()
