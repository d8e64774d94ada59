"""Raw readings of the server and the system, uninterpreted, for people without redis-cli at hand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import psutil
import redis

from lab.blind.observer import waited_s
from lab.blind.ways import LINK, PINGS, SERVER, WEB, Waits, Ways, asking, client, pings_ms
from lab.errors import StackError, UsageError
from lab.foreign_text import shown
from loadtest import info

WINDOW_S = 3.0
NEWEST = 15
WIDE, TAIL = 90, 28
KEY, HISTORY = "key", "history"
LENGTHS = {
    "string": "STRLEN",
    "hash": "HLEN",
    "list": "LLEN",
    "set": "SCARD",
    "zset": "ZCARD",
    "stream": "XLEN",
}
MEMORY = ("used_memory", "maxmemory", "maxmemory_policy", "mem_clients_normal", "mem_fragmentation_ratio")
STATS = (
    "evicted_keys",
    "expired_keys",
    "keyspace_hits",
    "keyspace_misses",
    "total_connections_received",
    "total_net_output_bytes",
)


class SessionTarget(Ways, Protocol):
    """The scene that is read."""

    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        ...


def raw_reading(
    what: str,
    scene: SessionTarget,
    users: Callable[[], str],
    name: str = "",
    history: Callable[[], str] | None = None,
) -> str:
    """Return a raw reading as text: a kind of `KINDS`, the key `name` (kind `key`), `users` or `history`.

    The callers supply the texts of `users` and `history`; without `history` the scene keeps none. Raises `UsageError`
    when the kind does not exist here, or the name is missing or superfluous, `StackError` when the server does not
    answer.
    """
    if (what == KEY) != bool(name):
        raise UsageError(
            "look key needs the name of a key, as in look key cart:7; the other readings take no name."
        )
    if what == "users":
        return users()
    if what == HISTORY:
        if history is None:
            raise UsageError(
                "look history works in a blind session only. The curves of the control page show the last minutes of "
                "this scene; its Prometheus, if there is one, shows more."
            )
        return history()
    if what not in KINDS and what != KEY:
        raise UsageError(
            f"there is no reading {what!r}; choose users, {HISTORY}, {', '.join(KINDS)} or {KEY}."
        )
    with contextlib.closing(client(scene.server.url)) as line:
        try:
            return _key(line, name) if what == KEY else KINDS[what](line, scene)
        except redis.RedisError as error:
            raise StackError(f"the server does not answer: {error}") from None


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows below headings, each column as wide as its widest cell."""
    cells = [[shown(str(cell)) for cell in row] for row in (headings, *rows)]
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
            _of_client(entry),
            _cut(
                entry["command"]
                if isinstance(entry["command"], str)
                else entry["command"].decode("utf-8", "replace")
            ),
        )
        for entry in entries
    )
    said = f"SLOWLOG LEN {client.slowlog_len()}, threshold {threshold} µs; the newest {len(entries)}:\n"
    return said + table(("at", "µs", "client", "command"), rows)


def _of_client(entry: dict[str, Any]) -> str:
    """Who sent the command: the connection's address, as `look clients` shows it, and its name if it has one."""
    parts = (entry.get("client_address", ""), entry.get("client_name", ""))
    return " ".join(
        part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in parts
    ).strip()


def _cut(text: str) -> str:
    """Shorten a command to its beginning and its end; at the end the server says how many words it left out."""
    return text if len(text) <= WIDE else f"{text[: WIDE - TAIL]} … {text[-TAIL:]}"


def _server_info(client: Any) -> info.Fields:
    """What INFO says of the server's clock, its CPU time and its commands, read in one pipeline."""
    pipe = client.pipeline(transaction=False)
    for section in ("server", "cpu", "commandstats"):
        pipe.info(section)
    return {name: value for part in pipe.execute() for name, value in part.items()}


Histograms = dict[str, dict[int, int]]
"""Command → bound in µs → calls that took no longer, since the server started."""


def _histograms(client: Any) -> Histograms:
    """The reply of LATENCY HISTOGRAM; empty if the server does not have that command (Dragonfly, KeyDB)."""
    try:
        answer = client.execute_command("LATENCY", "HISTOGRAM")
    except redis.ResponseError:
        return {}
    found = {}
    for name, entry in zip(answer[::2], answer[1::2], strict=False):
        told = dict(zip(entry[::2], entry[1::2], strict=False))
        bounds = told.get("histogram_usec", [])
        found[str(name).upper()] = dict(zip(bounds[::2], bounds[1::2], strict=False))
    return found


def longest_us(before: dict[int, int], after: dict[int, int]) -> int | None:
    """Upper bound in µs of the longest call between two cumulative histograms; None if there was no call."""

    def until(counts: dict[int, int], bound: int) -> int:
        return max((count for at, count in counts.items() if at <= bound), default=0)

    added = max(after.values(), default=0) - max(before.values(), default=0)
    if added <= 0:
        return None
    return next(bound for bound in sorted(after) if until(after, bound) - until(before, bound) >= added)


def _commands(client: Any, scene: SessionTarget) -> str:
    before, were = _histograms(client), _server_info(client)
    time.sleep(WINDOW_S)
    are, after = _server_info(client), _histograms(client)
    seconds = (float(are["server_time_usec"]) - float(were["server_time_usec"])) / 1e6
    old, rows, executed = info.counters(were), [], 0.0
    for name, (calls, usec) in info.counters(are).items():
        calls_before, usec_before = old.get(name, (0.0, 0.0))
        if calls > calls_before:
            number, spent = calls - calls_before, usec - usec_before
            executed += spent / 1e6
            longest = longest_us(before.get(name, {}), after.get(name, {}))
            told = "" if longest is None else f"≤ {longest:,}"
            share = f"{spent / seconds / 1e4:.1f}"
            rows.append(
                (spent, (name.lower(), f"{number / seconds:,.1f}", f"{spent / number:,.1f}", told, share))
            )
    listed = [row for _, row in sorted(rows, reverse=True)]
    began, ended = info.busy_seconds(were), info.busy_seconds(are)
    if began is not None and ended is not None and ended - began >= executed:
        beside, busy = (ended - began - executed) / seconds, (ended - began) / seconds
        listed.append(("(reading, parsing, answering)", "", "", "", f"{beside:.1%}".rstrip("%")))
        listed.append(("(the thread in all)", "", "", "", f"{busy:.1%}".rstrip("%")))
    said = f"INFO commandstats and CPU, what was added in {seconds:.1f} s:\n"
    return said + table(("command", "calls/s", "µs a call", "longest, µs", "% of a core"), listed)


def _clients(client: Any, scene: SessionTarget) -> str:
    found = client.client_list()
    rows = (
        (row["addr"], row.get("name", ""), row["age"], row["idle"], row["cmd"], row.get("tot-mem", ""))
        for row in found[:60]
    )
    more = f"\n... and {len(found) - 60} more" if len(found) > 60 else ""
    said = f"CLIENT LIST, {len(found)} connections:\n"
    return said + table(("address", "name", "age s", "idle s", "last command", "memory"), rows) + more


def _key(client: Any, name: str) -> str:
    """Describe one key without reading its value or searching for other keys."""
    kind = client.type(name)
    if kind == "none":
        raise UsageError(f"there is no key {name!r} now.")
    length = client.execute_command(LENGTHS[kind], name) if kind in LENGTHS else "unknown"
    left = client.pttl(name)
    rows = {
        "TYPE": kind,
        LENGTHS.get(kind, "length"): length,
        "MEMORY USAGE": f"{client.memory_usage(name):,} bytes",
        "OBJECT ENCODING": client.object("encoding", name),
        "PTTL": f"{left:,} ms" if left >= 0 else "none: the key does not expire",
    }
    return table((name, ""), rows.items())


def _memory(client: Any, scene: SessionTarget) -> str:
    rows = []
    for moment in range(4):
        if moment:
            time.sleep(WINDOW_S / 3)
        read = client.info("memory") | client.info("stats")
        rows.append([read.get(name, "") for name in (*MEMORY, *STATS)] + [client.dbsize()])
    names = (*MEMORY, *STATS, "DBSIZE")
    columns = zip(names, *rows, strict=True)
    return "INFO memory and stats, four times a second apart:\n" + table(
        ("", "first", "second", "third", "fourth"), columns
    )


def _ping(client: Any, scene: SessionTarget) -> str:
    rows = []
    ways = {"to the server": scene.server.url}
    if scene.link_url() != scene.server.url:
        ways["through the storefront's link"] = scene.link_url()
    for name, url in ways.items():
        taken = pings_ms(url)
        rows.append((name, url, *(f"{each:.2f}" for each in (taken[0], taken[len(taken) // 2], taken[-1]))))
    return f"PING {PINGS} times, one after the other, on a connection of its own:\n" + table(
        ("way", "address", "least ms", "median ms", "most ms"), rows
    )


def _waits(client: Any, scene: SessionTarget) -> str:
    waits = Waits(asking(scene))
    time.sleep(WINDOW_S)
    waits.close()
    taken = waits.take()
    titles = {
        SERVER: "a PING to the server",
        LINK: "a PING through the storefront's link",
        WEB: "a page of the storefront that needs no cache",
    }
    rows = [
        (title, len(taken[way]), f"{taken[way][len(taken[way]) // 2]:.2f}", f"{taken[way][-1]:.2f}")
        for way, title in titles.items()
        if taken[way]
    ]
    said = f"asked again and again for {WINDOW_S:g} s, each time after the answer:\n"
    return said + table(("what", "times", "median ms", "most ms"), rows)


def _processes(client: Any, scene: SessionTarget) -> str:
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
    return f"over {seconds:.1f} s, of {psutil.cpu_count()} cores:\n" + table(
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
    "waits": _waits,
    "processes": _processes,
}
