"""The memory that a run needs. A run without enough memory is refused before it begins.

Else the kernel's out-of-memory killer or a server that refuses writes would end it after ten minutes.
"""

from __future__ import annotations

import psutil

from lab.errors import UsageError
from lab.scenarios.model import Pace, Scenario
from lab.server.server_stats import ServerObserver
from lab.server.servers import Server, scene_url

BASE_BYTES = 500e6
"""Resident memory of a native run's processes without any keys."""


def keys_bytes(pace: Pace, server: Server, keys: int) -> float:
    """Return the bytes that one server needs for `keys` entries, at most the pace's limit."""
    return min(keys * server.key_bytes, pace.most_mb * 1e6)


def native_bytes(scenario: Scenario, pace: Pace, server: Server, keys: int) -> float:
    """Return the resident memory that all processes of a native run need together, in bytes."""
    servers = 2 if scenario.replica else 1
    return BASE_BYTES + keys_bytes(pace, server, keys) * servers + pace.loads_mb * 1e6


def require_memory(subject: str, needed: float, room: float, where: str, remedy: str) -> str:
    """Return a sentence on the memory `needed` and the available memory (`room`), both in bytes.

    Raises `UsageError`, with the remedy, if there is too little.
    """
    there = f"{room / 1e9:.1f} GB are {where}"
    if needed > room:
        raise UsageError(f"{subject} need about {needed / 1e9:.1f} GB of memory, and {there}. {remedy}")
    return f"{subject} need about {needed / 1e9:.1f} GB of memory, {there}"


def require_native_memory(scenario: Scenario, pace: Pace, server: Server, keys: int) -> str:
    """Return a sentence on needed and free memory of a native run. Raises `UsageError` if too little is free."""
    return require_memory(
        f"{keys:,} keys on {server.name}, with all that the run starts,",
        native_bytes(scenario, pace, server, keys),
        psutil.virtual_memory().available,
        "free",
        "Choose fewer with --keys.",
    )


def require_scene_memory(pace: Pace, server: Server, keys: int) -> str:
    """Return a sentence on the memory that a server of the scene needs, and its maxmemory; empty without a limit.

    Raises `UsageError` if it needs more.
    """
    observer = ServerObserver(scene_url(server))
    try:
        room = observer.maxmemory()
    finally:
        observer.close()
    if not room:
        return ""
    return require_memory(
        f"{keys:,} keys on {server.name}",
        keys_bytes(pace, server, keys) + pace.loads_mb * 1e6,
        room,
        "allowed to it by its maxmemory",
        f"Choose fewer with --keys, or raise mem_limit and --maxmemory of {server.name} in compose.yaml.",
    )
