"""Raw readings for people without redis-cli at hand: what the store and the system say, uninterpreted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import psutil
import redis

from lab.blind.observer import PINGS, pings_ms, waited_s
from lab.errors import StackError, UsageError
from lab.stacks.server_stats import ServerObserver

WINDOW_S = 3.0
NEWEST = 15
WIDE, TAIL = 90, 28
MEMORY = ("used_memory", "maxmemory", "maxmemory_policy", "mem_clients_normal", "mem_fragmentation_ratio")
STATS = ("evicted_keys", "expired_keys", "keyspace_hits", "keyspace_misses", "total_connections_received")


class SessionTarget(Protocol):
    """What is looked at."""

    @property
    def store(self) -> ServerObserver:
        """The store."""
        ...

    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        ...

    def link_url(self) -> str:
        """The storefront's way to the store."""
        ...


def look(what: str, scene: SessionTarget, users: Callable[[], str]) -> str:
    """One of `KINDS` as text. Raises `UsageError` for another, `StackError` where the store does not answer."""
    if what == "users":
        return users()
    if what not in KINDS:
        raise UsageError(f"there is no look {what!r}; there are users, {', '.join(KINDS)}.")
    client: Any = redis.Redis.from_url(
        scene.store.url, protocol=2, driver_info=None, socket_timeout=30, encoding_errors="replace",
        decode_responses=True,
    )  # fmt: skip
    try:
        return KINDS[what](client, scene)
    except redis.RedisError as error:
        raise StackError(f"the store does not answer: {error}") from None
    finally:
        client.close()


def _table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _slowlog(client: Any, scene: SessionTarget) -> str:
    threshold = client.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"]
    entries = client.slowlog_get(NEWEST)
    rows = (
        (
            time.strftime("%H:%M:%S", time.localtime(entry["start_time"])),
            entry["duration"],
            _cut(
                entry["command"]
                if isinstance(entry["command"], str)
                else entry["command"].decode("utf-8", "replace")
            ),
        )
        for entry in entries
    )
    said = f"SLOWLOG LEN {client.slowlog_len()}, threshold {threshold} µs; the newest {len(entries)}:\n"
    return said + _table(("at", "µs", "command"), rows)


def _cut(text: str) -> str:
    """Its beginning and its end, where the server says how many words it left out."""
    return text if len(text) <= WIDE else f"{text[: WIDE - TAIL]} … {text[-TAIL:]}"


def _commandstats(client: Any) -> tuple[dict[str, Any], float]:
    """What INFO says of commands, and when, by the store's own clock."""
    info = client.info("server", "commandstats")
    return {name: entry for name, entry in info.items() if name.startswith("cmdstat_")}, (
        info["server_time_usec"] / 1e6
    )


def _commands(client: Any, scene: SessionTarget) -> str:
    before, began = _commandstats(client)
    time.sleep(WINDOW_S)
    after, ended = _commandstats(client)
    seconds = ended - began
    rows = []
    for name, entry in after.items():
        were = before.get(name, {"calls": 0, "usec": 0})
        calls, usec = entry["calls"] - were["calls"], entry["usec"] - were["usec"]
        if calls:
            rows.append((name.removeprefix("cmdstat_"), calls / seconds, usec / calls, usec / seconds / 1e4))
    rows.sort(key=lambda row: -row[3])
    said = f"INFO commandstats, what was added in {seconds:.1f} s:\n"
    return said + _table(
        ("command", "calls/s", "µs a call", "% of the time"),
        ((name, f"{calls:,.1f}", f"{each:,.1f}", f"{share:.1f}") for name, calls, each, share in rows),
    )


def _clients(client: Any, scene: SessionTarget) -> str:
    found = client.client_list()
    rows = (
        (row["addr"], row.get("name", ""), row["age"], row["idle"], row["cmd"], row.get("tot-mem", ""))
        for row in found[:60]
    )
    more = f"\n... and {len(found) - 60} more" if len(found) > 60 else ""
    said = f"CLIENT LIST, {len(found)} connections:\n"
    return said + _table(("address", "name", "age s", "idle s", "last command", "memory"), rows) + more


def _memory(client: Any, scene: SessionTarget) -> str:
    rows = []
    for moment in range(4):
        if moment:
            time.sleep(WINDOW_S / 3)
        info = client.info("memory") | client.info("stats")
        rows.append([info.get(name, "") for name in (*MEMORY, *STATS)] + [client.dbsize()])
    names = (*MEMORY, *STATS, "DBSIZE")
    columns = zip(names, *rows, strict=True)
    return "INFO memory and stats, four times a second apart:\n" + _table(
        ("", "first", "second", "third", "fourth"), columns
    )


def _ping(client: Any, scene: SessionTarget) -> str:
    rows = []
    ways = {"to the store": scene.store.url}
    if scene.link_url() != scene.store.url:
        ways["through the storefront's link"] = scene.link_url()
    for name, url in ways.items():
        taken = pings_ms(url)
        rows.append((name, url, *(f"{each:.2f}" for each in (taken[0], taken[len(taken) // 2], taken[-1]))))
    return f"PING {PINGS} times, one after the other, on a connection of its own:\n" + _table(
        ("way", "address", "least ms", "median ms", "most ms"), rows
    )


def _processes(client: Any, scene: SessionTarget) -> str:
    if not scene.pids():
        raise UsageError("the scene runs in containers: docker stats and docker top show their processes.")
    before = {name: _usage(pid) for name, pid in scene.pids().items()}
    began = time.monotonic()
    time.sleep(WINDOW_S)
    seconds = time.monotonic() - began
    rows = []
    for name, pid in scene.pids().items():
        cpu, waited, resident, cores = _usage(pid)
        then = before.get(name, (0.0, None, 0.0, ""))
        wait = "" if waited is None or then[1] is None else f"{(waited - then[1]) / seconds:.0%}"
        rows.append((name, pid, f"{(cpu - then[0]) / seconds:.0%}", wait, f"{resident:.0f} MB", cores))
    return f"over {seconds:.1f} s, of {psutil.cpu_count()} cores:\n" + _table(
        ("process", "pid", "CPU", "first thread waited for a core", "resident", "may run on"), rows
    )


def _usage(pid: int) -> tuple[float, float | None, float, str]:
    cpu, resident, cores = 0.0, 0.0, ""
    with contextlib.suppress(psutil.Error):
        main = psutil.Process(pid)
        if hasattr(main, "cpu_affinity"):
            cores = ",".join(map(str, main.cpu_affinity() or ()))
        for process in (main, *main.children(recursive=True)):
            times = process.cpu_times()
            cpu += times.user + times.system
            resident += process.memory_info().rss / 1e6
    return cpu, waited_s(pid), resident, cores


KINDS: dict[str, Callable[[Any, SessionTarget], str]] = {
    "slowlog": _slowlog,
    "commands": _commands,
    "clients": _clients,
    "memory": _memory,
    "ping": _ping,
    "processes": _processes,
}
