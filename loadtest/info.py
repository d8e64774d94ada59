"""The one reader of INFO: its fields, the commands' counters, the number of keys, and how long the server was busy."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.resp import LoadFailed, ask, command

Fields = Mapping[str, str]
Counters = dict[str, tuple[float, float]]
"""Command → (calls, execution time in µs), since the server started."""


def fields(text: str | bytes) -> dict[str, str]:
    """Name → value, of one section or of all."""
    whole = text.decode(errors="replace") if isinstance(text, bytes) else text
    return dict(line.partition(":")[::2] for line in whole.splitlines() if ":" in line)


def product(info: Fields) -> tuple[str, str] | None:
    """(product, version), for instance ('valkey', '9.1.2'), from the section server; None if it is not a known one."""
    if "keydb" in info.get("executable", "").rpartition("/")[2]:  # its version is in redis_version
        return "keydb", info.get("redis_version", "")
    # All of them also have a redis_version, for their clients.
    for name in ("dragonfly", "valkey", "garnet", "kvrocks", "pika", "redis"):
        if f"{name}_version" in info:
            return name, info[f"{name}_version"].removeprefix("df-v")
    return None


def counters(info: Fields) -> Counters:
    """The counters of commandstats. Raises `KeyError` or `ValueError` if an entry lacks its figures."""
    found: Counters = {}
    for name, value in info.items():
        if name.startswith("cmdstat_"):
            parts = dict(part.partition("=")[::2] for part in value.split(","))
            found[name.removeprefix("cmdstat_").upper()] = float(parts["calls"]), float(parts["usec"])
    return found


def keys(info: Fields) -> int:
    """Keys in all databases, as the keyspace section says."""
    return sum(
        int(value.split(",")[0].partition("=")[2])
        for name, value in info.items()
        if name.startswith("db") and name[2:].isdigit()
    )


def cpu_seconds(printed: str) -> float:
    """CPU seconds from INFO's text; the part after the point counts microseconds.

    Dragonfly prints the microseconds without leading zeros ("12.34" is 12 s and 34 µs), so that they jump about
    when read as decimals. Redis and Valkey print all six digits, so this reading is right for all.
    """
    whole, _, micros = printed.strip().partition(".")
    return int(whole) + int(micros or 0) / 1e6


def interleaves(info: Fields) -> bool:
    """True for Dragonfly, whose threads take turns among commands: the clock of a command includes its waits."""
    return "dragonfly_version" in info


def threads(info: Fields) -> int:
    """Number of threads that execute commands in parallel: Redis and Valkey have one, Dragonfly and Kvrocks several."""
    if "kvrocks_version" in info:
        return max(1, len(info.get("worker_cpu_time", "").split(",")))
    reported = info.get("thread_count", "1") if interleaves(info) else "1"
    return max(1, int(reported)) if reported.isdigit() else 1


def busy_seconds(info: Fields) -> float | None:
    """CPU seconds of the thread that executes commands; on Dragonfly, where all threads do, their mean.

    Needs the sections server and cpu; None without CPU times. (What Dragonfly calls its main thread is whichever one
    answers the INFO. SCAN's time in its commandstats is no substitute: it includes waiting for other SCANs, and so
    exceeds the clock's when several are under way.) If the thread's time is not reported, it is the process's time: for
    KeyDB, which the lab starts with one thread, and for all servers elsewhere than on Linux. That is close, because the
    other threads have little to do.
    """
    if "used_cpu_user" not in info:
        return None
    one = "_main_thread" if "used_cpu_user_main_thread" in info and not interleaves(info) else ""
    used = cpu_seconds(info[f"used_cpu_user{one}"]) + cpu_seconds(info[f"used_cpu_sys{one}"])
    return used / threads(info)


def active_seconds(info: Fields) -> float | None:
    """Seconds of the clock in which the main thread was at work, by the server itself; None if it is not reported.

    Valkey reports it from 9.1 on (valkey-io/valkey #2931): the time of those rounds of the event loop that handled
    something. It includes moments in which the thread had work, but no core; CPU time does not. CPU time includes
    rounds that found nothing to do; this does not.
    """
    reported = info.get("used_active_time_main_thread")
    return None if reported is None else cpu_seconds(reported)


def process_seconds(info: Fields) -> float | None:
    """CPU seconds of the whole server, all of its threads together. Needs the section cpu."""
    if "used_cpu_user" not in info:
        return None
    return cpu_seconds(info["used_cpu_user"]) + cpu_seconds(info["used_cpu_sys"])


INFO = command("INFO")


@dataclass(frozen=True)
class ServerInfo:
    """The figures of a server's INFO at one moment of the server's own clock.

    Memory is in bytes, `at` in unix seconds, `busy_s` CPU seconds of the thread that executes commands.

    `clients` is mem_clients_normal: buffers and arguments of connections. The server updates it about once a second for
    each connection, so it lags behind `used` (used_memory), which is always exact.
    """

    at: float
    keys: int
    used: float
    limit: float
    clients: float
    evicted: int
    expired: int
    busy_s: float


def read_info(text: bytes) -> ServerInfo:
    """Parse INFO's answer. Raises `LoadFailed` if it lacks a field that every server of the family reports."""
    found = fields(text)
    try:
        busy_s = busy_seconds(found)
        if busy_s is None:
            raise KeyError("used_cpu_user")
        return ServerInfo(
            at=float(found["server_time_usec"]) / 1e6,
            keys=keys(found),
            used=float(found["used_memory"]),
            limit=float(found["maxmemory"]),
            clients=float(found.get("mem_clients_normal", 0.0)),
            evicted=int(found["evicted_keys"]),
            expired=int(found["expired_keys"]),
            busy_s=busy_s,
        )
    except (KeyError, ValueError) as error:
        raise LoadFailed(f"the server's INFO lacks {error}") from None


def ask_info(line: socket.socket) -> ServerInfo:
    """Ask for INFO, and wait for the answer. Raises `LoadFailed`, `ConnectionLost`."""
    (text,) = ask(line, INFO)
    assert isinstance(text, bytes)
    return read_info(text)
