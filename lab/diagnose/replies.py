"""What a server's replies say: INFO without what cannot be read, logs, histograms, connections, latency events.

Functions raise one of `UNREADABLE` for a reply of another form than the commands' documentation has it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lab.server.window import Clients
from loadtest import info

UNREADABLE = (ValueError, LookupError, TypeError)
CPU = "used_cpu"
"""How the names of all CPU times begin."""

Entries = dict[str, tuple[str, float, str]]
"""Log and number of an entry → (command, ms, its words); ms is 0 except in the log of slow commands."""


def read_info(reply: Any) -> tuple[dict[str, str], list[str]]:
    """The fields of INFO that can be read, and the names of those that tell of commands, keys or CPU and cannot.

    Numbers that are not finite are left out: servers print ratios of nothing as nan.
    """
    told = info.fields(str(reply))
    unreadable = [name for name, value in told.items() if not _can_be_read(name, value)]
    found = {
        name: value for name, value in told.items() if name not in unreadable and not _is_infinite(value)
    }
    try:
        info.busy_seconds(found)
    except UNREADABLE:
        unreadable.append(CPU)
        found = {name: value for name, value in found.items() if not name.startswith(CPU)}
    return found, unreadable


def _can_be_read(name: str, value: str) -> bool:
    """True unless it is an entry of commandstats or of a database, and lacks its figures."""
    try:
        info.keys({name: value})
        return all(math.isfinite(number) for pair in info.counters({name: value}).values() for number in pair)
    except UNREADABLE:
        return False


def _is_infinite(value: str) -> bool:
    try:
        return not math.isfinite(float(value))
    except ValueError:
        return False


def entries(log: str, reply: Any) -> Entries:
    """Entries of SLOWLOG GET (`log`: slow) and of COMMANDLOG GET."""
    found = {}
    for told in reply or ():
        entry = _as_list(told)
        took_ms = float(entry[2]) / 1000 if log == "slow" else 0.0
        found[f"{log} {entry[0]}@{entry[1]}"] = _name(entry[3]), took_ms, _text(entry[3])
    return found


def _as_list(entry: Any) -> Sequence[Any]:
    return (
        [entry["id"], entry["start_time"], entry["duration"], entry["command"]]
        if isinstance(entry, dict)
        else entry
    )


def _words(words: str | Iterable[str]) -> list[str]:
    return words.split(" ") if isinstance(words, str) else [str(word) for word in words]


def _name(words: str | Iterable[str]) -> str:
    return _words(words)[0].upper()


def _text(words: str | Iterable[str]) -> str:
    return " ".join(_words(words))[:200]


def histograms(reply: Any) -> dict[str, dict[int, int]]:
    """Of LATENCY HISTOGRAM: command → bound in µs → executions so far that took no longer (it counts cumulatively)."""
    found = {}
    for name, told in zip(reply[::2], reply[1::2], strict=False):
        facts = dict(zip(told[::2], told[1::2], strict=False))
        counts = facts["histogram_usec"]
        found[str(name).upper()] = {int(counts[at]): int(counts[at + 1]) for at in range(0, len(counts), 2)}
    return found


def clients(reply: Any) -> Clients:
    """Of CLIENT LIST: the connections in figures."""
    rows = [dict(word.partition("=")[::2] for word in line.split()) for line in str(reply).splitlines()]
    busiest = Counter(row.get("cmd", "?").upper() for row in rows)
    return Clients(len(rows), dict(busiest), sum(float(row.get("omem", 0)) for row in rows))


def events(reply: Any, since: int) -> dict[str, float]:
    """Of LATENCY LATEST: event of the latency monitor since that time (unix seconds) → ms of the latest one."""
    return {str(event[0]): float(event[2]) for event in reply if int(event[1]) >= since}
