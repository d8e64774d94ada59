"""Measures the effect of one slow node of a cluster on pages that read many entries: pages of two kinds, open loop.

`python -m loadtest.incidents.spread --url redis://127.0.0.1:7001` finds the other nodes by itself. It writes --entries
keys of its own for each of --users users, twice: with the user as hash tag, so that they are on one node (`tagged`),
and without tags, so that they are on all nodes (`spread`). Then it reads pages: all entries of one user, each node's
part in one piece, to all nodes at once. A page is done when the last reply has come, and its time counts from the
moment at which it was due. The kinds take turns, and the users too.

In the first half of --seconds nothing else happens. In the second half --searches connections walk over the keys of
the last node, again and again: that is the slow one. A page is *slow* if it takes longer than --slow-times the median
of all pages of the first half, and than --slow-ms.

One JSON line for each half (t, half, pages); the last line holds the `figures`:

    nodes                     nodes of the cluster that have slots
    pages                     pages of both kinds in the second half
    slow_ms                   from when on a page is slow, ms
    users_on_the_slow_node    share of the users whose tagged entries are on it
    KIND_calm_share           share of the pages of that kind (tagged, spread) that were slow in the first half
    KIND_slow_share           the same in the second half
    KIND_nodes                nodes that a page asks, the mean
    KIND_p50_ms, KIND_p99_ms  times of pages in the second half

Its keys are removed at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import statistics
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic, perf_counter, time

import hiredis

from loadtest.arguments import ServerPlan, number, option, word
from loadtest.cluster import Nodes
from loadtest.process import Stop, run_load, say
from loadtest.resp import ConnectionLost, LoadFailed, Server, Stream, ask, command, connect

KINDS = ("tagged", "spread")
VALUE = b"." * 200
AWAIT_S = 30.0
"""Timeout for the pages that are still on their way at the end of a half."""


@dataclass(frozen=True, kw_only=True)
class Plan(ServerPlan):
    """The options of the load: pages, rate, duration, and the load that slows the last node."""

    prefix: str = option("own keys are PREFIX:USER:ENTRY", word, "spread")
    entries: int = option("entries of a page", number(1, 1000, int), 20)
    users: int = option("users that have a page", number(1, 100_000, int), 300)
    rate: float = option("pages a second, of both kinds", number(1, 2000), 60.0)
    seconds: float = option("seconds of both halves", number(0.1, 10**5), 10.0)
    searches: int = option("walks at once on the slow node", number(0, 100, int), 3)
    count: int = option("COUNT of the walks' SCANs", number(1, 10**7, int), 20_000)
    slow_times: float = option("a slow page takes that many medians", number(1, 1000), 3.0)
    slow_ms: float = option("and so many ms at least", number(0, 10**5), 4.0)


@dataclass
class Page:
    """A page under way: when it was due, and how many replies are missing."""

    kind: str
    due: float
    left: int


@dataclass
class Half:
    """The times of the pages of one half, in ms, by kind."""

    ms: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def share_slower(self, kind: str, than_ms: float) -> float:
        """The share of the pages of a kind that took longer."""
        times = self.ms[kind]
        return sum(each > than_ms for each in times) / len(times) if times else 0.0


def key_of(plan: Plan, kind: str, user: int, entry: int) -> str:
    """The key of an entry."""
    return f"{plan.prefix}:{{{user}}}:{entry}" if kind == "tagged" else f"{plan.prefix}:{user}:{entry}"


def parts_of(plan: Plan, nodes: Nodes, kind: str, user: int) -> dict[int, list[str]]:
    """The keys of a user's page by node."""
    parts: dict[int, list[str]] = {}
    for entry in range(plan.entries):
        key = key_of(plan, kind, user, entry)
        parts.setdefault(nodes.node_of(key), []).append(key)
    return parts


class Reader:
    """Reads pages on one connection to each node."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._lines = [Stream(connect(server)) for server in servers]
        self._waiting: list[deque[Page]] = [deque() for _ in servers]

    def begin(self, page: Page, parts: dict[int, bytes], replies: dict[int, int]) -> None:
        """Send a page's requests."""
        for node, request in parts.items():
            self._lines[node].send(request)
            self._waiting[node].extend(itertools.repeat(page, replies[node]))

    @property
    def idle(self) -> bool:
        """True if no reply is missing."""
        return not any(self._waiting)

    def wait(self, seconds: float, half: Half) -> None:
        """Take the replies that come within that time, at most until the first ones have come."""
        number_of = {line.fd: number_ for number_, line in enumerate(self._lines)}
        writing = [line.fd for line in self._lines if line.has_outgoing]
        ready, writable, _ = select.select(list(number_of), writing, [], max(0.0, seconds))
        for fd in writable:
            self._lines[number_of[fd]].flush()
        for fd in ready:
            waiting = self._waiting[number_of[fd]]
            for reply in self._lines[number_of[fd]].receive():
                if isinstance(reply, hiredis.ReplyError) or reply is None:
                    raise LoadFailed(f"a page's entry is answered by {reply!s:.60}")
                page = waiting.popleft()
                page.left -= 1
                if not page.left:
                    half.ms[page.kind].append((perf_counter() - page.due) * 1e3)

    def close(self) -> None:
        """Close the connections."""
        for line in self._lines:
            line.close()


class Searches:
    """Walks over the keys of a node on some connections at once, in a thread, until `end`."""

    def __init__(self, server: Server, connections: int, count: int) -> None:
        self._lines = [connect(server) for _ in range(connections)]
        self._ended, self._count = threading.Event(), count
        self._error: Exception | None = None
        self._threads = [
            threading.Thread(target=self._walk, args=(line,), daemon=True) for line in self._lines
        ]
        for thread in self._threads:
            thread.start()

    def _walk(self, line: socket.socket) -> None:
        cursor = b"0"
        try:
            while not self._ended.is_set():
                (page,) = ask(line, command("SCAN", cursor, "MATCH", "nobody:*", "COUNT", self._count))
                cursor = page[0] if isinstance(page, list) else b"0"
        except (LoadFailed, ConnectionLost) as error:
            self._error = error

    def end(self) -> None:
        """End the walks. Raises what made one of them fail."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        for line in self._lines:
            line.close()
        if self._error:
            raise self._error


def work(plan: Plan, stop: Stop) -> dict[str, float]:
    """Write the entries, read pages in both halves, and remove the entries; returns the figures."""
    nodes = Nodes(plan.server)
    pages = {
        (kind, user): parts_of(plan, nodes, kind, user) for kind in KINDS for user in range(1, plan.users + 1)
    }
    with contextlib.ExitStack() as last:
        lines = [last.enter_context(contextlib.closing(connect(server))) for server in nodes.servers]
        last.callback(_each_node, lines, pages, "UNLINK")
        _each_node(lines, pages, "SET")
        reader = Reader(nodes.servers)
        last.callback(reader.close)
        calm = _read(plan, pages, reader, stop)
        say({"t": time(), "half": 1, "pages": sum(len(times) for times in calm.ms.values())})
        searches = Searches(nodes.servers[-1], plan.searches, plan.count)
        try:
            slow = _read(plan, pages, reader, stop)
        finally:
            searches.end()
        say({"t": time(), "half": 2, "pages": sum(len(times) for times in slow.ms.values())})
    return _figures(plan, pages, len(nodes.servers), calm, slow)


Pages = dict[tuple[str, int], dict[int, list[str]]]
"""(kind, user) → the keys of the page by node."""


def _each_node(lines: Sequence[socket.socket], pages: Pages, what: str) -> None:
    """Write or remove all entries."""
    for node, line in enumerate(lines):
        keys = [key for parts in pages.values() for key in parts.get(node, [])]
        words = [command(what, key, *((VALUE,) if what == "SET" else ())) for key in keys]
        for start in range(0, len(words), 1000):
            ask(line, *words[start : start + 1000])


def _read(plan: Plan, pages: Pages, reader: Reader, stop: Stop) -> Half:
    """Read pages for half of the time, each when it is due; then wait for those under way."""
    half, began = Half(), perf_counter()
    wanted = _turns(plan)
    for number_ in itertools.count():
        due = began + number_ / plan.rate
        if due - began >= plan.seconds / 2 or stop.requested:
            break
        while (left := due - perf_counter()) > 0:
            reader.wait(left, half)
        kind, user = next(wanted)
        parts = pages[kind, user]
        requests = {node: b"".join(command("GET", key) for key in keys) for node, keys in parts.items()}
        page = Page(kind, due, sum(len(keys) for keys in parts.values()))
        reader.begin(page, requests, {node: len(keys) for node, keys in parts.items()})
    end = monotonic() + AWAIT_S
    while not reader.idle:
        reader.wait(0.1, half)
        if monotonic() > end:
            raise LoadFailed(f"pages are not done {AWAIT_S:g} s after the last one")
    return half


def _turns(plan: Plan) -> Iterator[tuple[str, int]]:
    """The kinds in turn, each with one user after the other."""
    return ((kind, user) for user in itertools.cycle(range(1, plan.users + 1)) for kind in KINDS)


def _figures(plan: Plan, pages: Pages, nodes: int, calm: Half, slow: Half) -> dict[str, float]:
    everything = [each for times in calm.ms.values() for each in times]
    if not everything or not all(slow.ms.values()):
        raise LoadFailed("no pages were read: take more --seconds or a higher --rate")
    slow_ms = max(plan.slow_ms, plan.slow_times * statistics.median(everything))
    tagged = [parts for (kind, _), parts in pages.items() if kind == "tagged"]
    figures = {
        "nodes": float(nodes),
        "pages": float(sum(len(times) for times in slow.ms.values())),
        "slow_ms": slow_ms,
        "users_on_the_slow_node": sum(nodes - 1 in parts for parts in tagged) / len(tagged),
    }
    for kind in KINDS:
        nodes_asked = [len(parts) for (each, _), parts in pages.items() if each == kind]
        cuts = (
            statistics.quantiles(slow.ms[kind], n=100, method="inclusive") if len(slow.ms[kind]) > 1 else []
        )
        figures |= {
            f"{kind}_calm_share": calm.share_slower(kind, slow_ms),
            f"{kind}_slow_share": slow.share_slower(kind, slow_ms),
            f"{kind}_nodes": statistics.mean(nodes_asked),
            f"{kind}_p50_ms": statistics.median(slow.ms[kind]),
            f"{kind}_p99_ms": cuts[-1] if cuts else slow.ms[kind][0],
        }
    return figures


if __name__ == "__main__":
    sys.exit(run_load("spread", __doc__, Plan, work))
