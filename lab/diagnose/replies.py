"""Parses a server's replies: INFO without unreadable fields, logs, histograms, connections, latency events.

Functions raise one of `UNREADABLE` for a reply whose form is not that of the commands' documentation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from lab.server.window import ClientCounts
from loadtest import info

UNREADABLE = (ValueError, LookupError, TypeError)
CPU = "used_cpu"
"""The prefix of all CPU times' names."""

Entries = dict[str, tuple[str, float, str]]
"""Log, number and time of an entry → (command, ms, its words); ms is 0 except in the log of slow commands."""


def read_info(reply: Any) -> tuple[dict[str, str], list[str]]:
    """Return the readable fields of INFO, and the names of unreadable fields of commands, keys and CPU times.

    Numbers that are not finite are left out: servers print a ratio with the denominator 0 as nan.
    """
    fields = info.fields(str(reply))
    unreadable = [name for name, value in fields.items() if not _is_readable(name, value)]
    readable = {
        name: value for name, value in fields.items() if name not in unreadable and not _is_infinite(value)
    }
    try:
        info.busy_seconds(readable)
    except UNREADABLE:
        unreadable.append(CPU)
        readable = {name: value for name, value in readable.items() if not name.startswith(CPU)}
    return readable, unreadable


def _is_readable(name: str, value: str) -> bool:
    """Return whether a field can be read: an entry of commandstats or of a database must have its figures."""
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
    """Parse the entries of SLOWLOG GET (`log`: slow) or of COMMANDLOG GET."""
    log_entries = {}
    for item in reply or ():
        entry = _as_list(item)
        took_ms = float(entry[2]) / 1000 if log == "slow" else 0.0
        log_entries[f"{log} {entry[0]}@{entry[1]}"] = _name(entry[3]), took_ms, _text(entry[3])
    return log_entries


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
    """Parse LATENCY HISTOGRAM: command → bound in µs → executions so far that took no longer (cumulative counts)."""
    by_command = {}
    for name, item in zip(reply[::2], reply[1::2], strict=False):
        fields = dict(zip(item[::2], item[1::2], strict=False))
        counts = fields["histogram_usec"]
        by_command[str(name).upper()] = {
            int(counts[at]): int(counts[at + 1]) for at in range(0, len(counts), 2)
        }
    return by_command


def clients(reply: Any) -> ClientCounts:
    """Parse CLIENT LIST: number of connections, the client behind each command, and bytes of unread replies."""
    rows = [dict(word.partition("=")[::2] for word in line.split()) for line in str(reply).splitlines()]
    by_command: dict[str, Counter[str]] = {}
    for row in rows:
        named = " of ".join(filter(None, (row.get("name"), row.get("lib-name"))))
        by_command.setdefault(row.get("cmd", "?").upper(), Counter())[named] += 1
    senders = {command: found.most_common(1)[0] for command, found in by_command.items()}
    return ClientCounts(
        len(rows),
        {command: f"{named} ({count} connections)" for command, (named, count) in senders.items() if named},
        sum(float(row.get("omem", 0)) for row in rows),
    )


def events(reply: Any, since: int) -> dict[str, float]:
    """Parse LATENCY LATEST: event of the latency monitor since that time (unix seconds) → ms of the latest one."""
    return {str(event[0]): float(event[2]) for event in reply if int(event[1]) >= since}
