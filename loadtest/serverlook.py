"""What a server says of itself in INFO, at one moment of its own clock."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from loadtest.running import LoadFailed, ask
from loadtest.wire import command

INFO = command("INFO")


@dataclass(frozen=True)
class ServerLook:
    """Counters and levels; memory in bytes, `at` in unix seconds, `busy_s` CPU seconds of the main thread.

    `clients` is mem_clients_normal: buffers and arguments of connections. The server brings it up to date about once a
    second for each connection, so it lags behind `used` (used_memory), which is always exact.
    """

    at: float
    keys: int
    used: float
    limit: float
    clients: float
    evicted: int
    expired: int
    busy_s: float


def read_info(text: bytes) -> ServerLook:
    """INFO's answer. Raises `LoadFailed` where it lacks what every server of the family says."""
    found: dict[str, str] = {}
    for line in text.decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        found[name] = value
    try:
        threads = "_main_thread" if "used_cpu_user_main_thread" in found else ""
        return ServerLook(
            at=float(found["server_time_usec"]) / 1e6,
            keys=sum(
                int(value.split(",")[0].partition("=")[2])
                for name, value in found.items()
                if name.startswith("db") and name[2:].isdigit()
            ),
            used=float(found["used_memory"]),
            limit=float(found["maxmemory"]),
            clients=float(found.get("mem_clients_normal", 0.0)),
            evicted=int(found["evicted_keys"]),
            expired=int(found["expired_keys"]),
            busy_s=float(found[f"used_cpu_user{threads}"]) + float(found[f"used_cpu_sys{threads}"]),
        )
    except (KeyError, ValueError) as error:
        raise LoadFailed(f"the server's INFO lacks {error}") from None


def look(line: socket.socket) -> ServerLook:
    """Ask, and wait for the answer. Raises `LoadFailed`, `ConnectionLost`."""
    (text,) = ask(line, INFO)
    assert isinstance(text, bytes)
    return read_info(text)
