"""Raw readings of the server and the system, uninterpreted, for participants without redis-cli."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import psutil
import redis

from lab.blind.observer import waited_s
from lab.blind.routes import LINK, PINGS, SERVER, WEB, Routes, WaitSampler, client, pings_ms, route_pings
from lab.blind.session_socket import SERVER_URL, SessionSocket, home
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


class ReadableScene(Routes, Protocol):
    """A scene with its processes."""

    def pids(self) -> dict[str, int]:
        """Return process ids by name."""
        ...


def raw_reading(
    kind: str,
    scene: ReadableScene,
    users: Callable[[], str],
    name: str = "",
    history: Callable[[], str] | None = None,
) -> str:
    """Return a raw reading as text. `kind`: one of `KINDS`, `key` (the key `name`), `users` or `history`.

    The functions `users` and `history` return the texts of these kinds; without `history` there is no such kind. Raises
    `UsageError` when the kind does not exist, or the name is missing or superfluous, `StackError` when the server does
    not answer.
    """
    if (kind == KEY) != bool(name):
        raise UsageError(
            "look key needs the name of a key, as in look key cart:7; the other readings take no name."
        )
    if kind == "users":
        return users()
    if kind == HISTORY:
        if history is None:
            raise UsageError(
                "look history works in a blind session only. The curves of the control page show the last minutes of "
                "this scene; its Prometheus, if there is one, shows more."
            )
        return history()
    if kind not in KINDS and kind != KEY:
        raise UsageError(
            f"there is no reading {kind!r}; choose users, {HISTORY}, {', '.join(KINDS)} or {KEY}."
        )
    with contextlib.closing(client(scene.server.url)) as connection:
        try:
            return _key(connection, name) if kind == KEY else KINDS[kind](connection, scene)
        except redis.RedisError as error:
            raise StackError(f"the server does not answer: {error}") from None


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return the rows below headings, each column as wide as its widest cell."""
    cells = [[shown(str(cell)) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _slowlog(client: Any, scene: ReadableScene) -> str:
    threshold = client.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"]
    entries = client.slowlog_get(NEWEST)
    rows = (
        (
            time.strftime("%H:%M:%S", time.localtime(entry["start_time"])),
            entry["duration"],
            _client_of(entry),
            _cut(
                entry["command"]
                if isinstance(entry["command"], str)
                else entry["command"].decode("utf-8", "replace")
            ),
        )
        for entry in entries
    )
    heading = f"SLOWLOG LEN {client.slowlog_len()}, threshold {threshold} µs; the newest {len(entries)}:\n"
    return heading + table(("at", "µs", "client", "command"), rows)


def _client_of(entry: dict[str, Any]) -> str:
    """Return the client of a slow log entry: its address, as `look clients` shows it, and its name if it has one."""
    parts = (entry.get("client_address", ""), entry.get("client_name", ""))
    return " ".join(
        part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in parts
    ).strip()


def _cut(text: str) -> str:
    """Shorten a command to its beginning and its end, because the server writes there how many words it left out."""
    return text if len(text) <= WIDE else f"{text[: WIDE - TAIL]} … {text[-TAIL:]}"


def _server_info(client: Any) -> info.Fields:
    """Read the sections of INFO with the server's clock, CPU time and commands in one pipeline."""
    pipe = client.pipeline(transaction=False)
    for section in ("server", "cpu", "commandstats"):
        pipe.info(section)
    return {name: value for part in pipe.execute() for name, value in part.items()}


Histograms = dict[str, dict[int, int]]
"""Command → bound in µs → calls since the server's start that took no longer."""


def _histograms(client: Any) -> Histograms:
    """Return the reply of LATENCY HISTOGRAM; empty if the server does not know the command (Dragonfly, KeyDB)."""
    try:
        reply = client.execute_command("LATENCY", "HISTOGRAM")
    except redis.ResponseError:
        return {}
    histograms = {}
    for name, entry in zip(reply[::2], reply[1::2], strict=False):
        fields = dict(zip(entry[::2], entry[1::2], strict=False))
        bounds = fields.get("histogram_usec", [])
        histograms[str(name).upper()] = dict(zip(bounds[::2], bounds[1::2], strict=False))
    return histograms


def longest_us(before: dict[int, int], after: dict[int, int]) -> int | None:
    """Return the upper bound in µs of the longest call between two cumulative histograms; None without a call."""

    def count_up_to(counts: dict[int, int], bound: int) -> int:
        return max((count for at, count in counts.items() if at <= bound), default=0)

    added = max(after.values(), default=0) - max(before.values(), default=0)
    if added <= 0:
        return None
    return next(
        bound for bound in sorted(after) if count_up_to(after, bound) - count_up_to(before, bound) >= added
    )


def _commands(client: Any, scene: ReadableScene) -> str:
    histograms_before, info_before = _histograms(client), _server_info(client)
    time.sleep(WINDOW_S)
    info_after, histograms_after = _server_info(client), _histograms(client)
    seconds = (float(info_after["server_time_usec"]) - float(info_before["server_time_usec"])) / 1e6
    counters_before, rows, executed = info.counters(info_before), [], 0.0
    for name, (calls, usec) in info.counters(info_after).items():
        calls_before, usec_before = counters_before.get(name, (0.0, 0.0))
        if calls > calls_before:
            number, spent = calls - calls_before, usec - usec_before
            executed += spent / 1e6
            longest = longest_us(histograms_before.get(name, {}), histograms_after.get(name, {}))
            longest_text = "" if longest is None else f"≤ {longest:,}"
            share = f"{spent / seconds / 1e4:.1f}"
            rows.append(
                (
                    spent,
                    (name.lower(), f"{number / seconds:,.1f}", f"{spent / number:,.1f}", longest_text, share),
                )
            )
    listed = [row for _, row in sorted(rows, reverse=True)]
    busy_before, busy_after = info.busy_seconds(info_before), info.busy_seconds(info_after)
    if busy_before is not None and busy_after is not None and busy_after - busy_before >= executed:
        overhead, busy = (busy_after - busy_before - executed) / seconds, (busy_after - busy_before) / seconds
        listed.append(("(reading, parsing, answering)", "", "", "", f"{overhead:.1%}".rstrip("%")))
        listed.append(("(the thread in all)", "", "", "", f"{busy:.1%}".rstrip("%")))
    heading = f"INFO commandstats and CPU, the increase over {seconds:.1f} s:\n"
    return heading + table(("command", "calls/s", "µs a call", "longest, µs", "% of a core"), listed)


def _clients(client: Any, scene: ReadableScene) -> str:
    clients = client.client_list()
    rows = (
        (row["addr"], row.get("name", ""), row["age"], row["idle"], row["cmd"], row.get("tot-mem", ""))
        for row in clients[:60]
    )
    rest = f"\n... and {len(clients) - 60} more" if len(clients) > 60 else ""
    heading = f"CLIENT LIST, {len(clients)} connections:\n"
    return heading + table(("address", "name", "age s", "idle s", "last command", "memory"), rows) + rest


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


def _memory(client: Any, scene: ReadableScene) -> str:
    rows = []
    for moment in range(4):
        if moment:
            time.sleep(WINDOW_S / 3)
        fields = client.info("memory") | client.info("stats")
        rows.append([fields.get(name, "") for name in (*MEMORY, *STATS)] + [client.dbsize()])
    names = (*MEMORY, *STATS, "DBSIZE")
    columns = zip(names, *rows, strict=True)
    return "INFO memory and stats, four times a second apart:\n" + table(
        ("", "first", "second", "third", "fourth"), columns
    )


def _ping(client: Any, scene: ReadableScene) -> str:
    rows = []
    routes = {"to the server": scene.server.url}
    if scene.link_url() != scene.server.url:
        routes["through the storefront's link"] = scene.link_url()
    for name, url in routes.items():
        round_trips = pings_ms(url)
        shown_ms = round_trips[0], round_trips[PINGS // 2], round_trips[-1]
        rows.append((name, url, *(f"{each:.2f}" for each in shown_ms)))
    return f"PING {PINGS} times, one after the other, on a connection of its own:\n" + table(
        ("route", "address", "least ms", "median ms", "most ms"), rows
    )


def _waits(client: Any, scene: ReadableScene) -> str:
    waits = WaitSampler(route_pings(scene))
    time.sleep(WINDOW_S)
    waits.close()
    waits_ms = waits.take()
    titles = {
        SERVER: "a PING to the server",
        LINK: "a PING through the storefront's link",
        WEB: "a page of the storefront that needs no cache",
    }
    rows = [
        (title, len(each), f"{each[len(each) // 2]:.2f}", f"{each[-1]:.2f}")
        for route, title in titles.items()
        if (each := waits_ms[route])
    ]
    heading = f"requests one after the other for {WINDOW_S:g} s:\n"
    return heading + table(("request", "times", "median ms", "most ms"), rows)


def _processes(client: Any, scene: ReadableScene) -> str:
    before = {name: _usage(pid) for name, pid in scene.pids().items()}
    began = time.monotonic()
    time.sleep(WINDOW_S)
    seconds = time.monotonic() - began
    rows = []
    for name, pid in scene.pids().items():
        cpu, waited, resident, cores = _usage(pid)
        earlier = before.get(name, (0.0, None, 0.0, ""))
        wait = "" if waited is None or earlier[1] is None else f"{(waited - earlier[1]) / seconds:.0%}"
        rows.append((name, pid, f"{(cpu - earlier[0]) / seconds:.0%}", wait, f"{resident:.0f} MB", cores))
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


KINDS: dict[str, Callable[[Any, ReadableScene], str]] = {
    "slowlog": _slowlog,
    "commands": _commands,
    "clients": _clients,
    "memory": _memory,
    "ping": _ping,
    "waits": _waits,
    "processes": _processes,
}


@contextlib.contextmanager
def answering_looks(scene: ReadableScene, users: Callable[[], str]) -> Iterator[None]:
    """Answer `bin/lab look` for a scene without a hidden cause. `users` returns the text of `look users`.

    Raises `UsageError` when a blind session or another scene is running.
    """

    def reply(request: dict[str, Any]) -> str:
        if request["verb"] == SERVER_URL:
            return str(scene.server.url)
        if request["verb"] != "look":
            raise UsageError(
                "this scene hides no cause. End it, and start one that does: bin/lab blind start."
            )
        return raw_reading(str(request["what"]), scene, users, str(request.get("name", "")))

    folder = home()
    new = [path for path in (folder, folder.parent) if not path.exists()]
    socket = SessionSocket(folder, reply)
    try:
        yield
    finally:
        socket.close()
        with contextlib.suppress(OSError):  # the folder has other files
            for path in new:
                path.rmdir()
