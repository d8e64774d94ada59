"""Samples the scene of a session every few seconds, and computes the readings between two samples."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import redis

from lab.blind.counting import Onward
from lab.blind.evidence import Spent
from lab.blind.prices import CHANGES
from lab.blind.readings import Readings, Seen
from lab.blind.ways import LINK, SERVER, WEB, Waits, asking, client, median_ms
from lab.errors import StackError
from lab.results.probe_line import read_probe_line
from lab.stacks.base import Probe
from lab.stacks.http import Locust, Storefront
from lab.stacks.processes import tree_seconds, waits
from lab.stacks.server_stats import ServerObserver
from loadtest.histogram import Histogram

POLL_S = 0.1
KEPT_SAMPLES = 10_000
EVENTS_DONE = re.compile(r'^cache_invalidation_events_total\{[^}]*outcome="done"[^}]*\} (\S+)', re.M)
EVENTS_PENDING = re.compile(r"^cache_invalidation_events_pending (\S+)", re.M)
PAST_CACHE = re.compile(r'^cache_requests_total\{[^}]*result="bypass"[^}]*\} (\S+)', re.M)


class SessionTarget(Protocol):
    """What an observer needs of a scene."""

    @property
    def server(self) -> ServerObserver:
        """The observer's view of the server."""
        ...

    @property
    def web(self) -> Storefront:
        """The storefront."""
        ...

    @property
    def invalidator(self) -> Storefront:
        """The invalidator, which carries out the storefront's own events."""
        ...

    @property
    def locust(self) -> Locust:
        """The load generator."""
        ...

    def link_url(self) -> str:
        """URL of the link, through which the storefront reaches the server."""
        ...

    def waited_s(self) -> float | None:
        """Seconds that the server's main thread was ready to run but had no core; None if the system does not tell."""
        ...

    def neighbours_s(self) -> float:
        """CPU seconds of the programs of other teams."""
        ...


@dataclass(frozen=True)
class Sample:
    """Counters at one moment (`at`: unix seconds, by the server's clock), and figures since the sample before.

    `pages` and `accepted` count pages and the storefront's accepted events since the sample before. Of these events
    `finished` are done so far, `pending` are not yet. Of price changes `asked` were put into their list so far,
    `refused` were not taken, `queue` are in the list, and `popped` were taken out of it.

    `link_most_ms`, `direct_most_ms` and `web_most_ms` are the longest waits since the sample before
    (`lab.blind.ways.Waits`). The server's own counters are `expired` (entries), `sent` (bytes) and `connects`
    (connections accepted).
    """

    at: float
    counters: dict[str, tuple[float, float]]
    busy_s: float
    waited_s: float | None
    neighbours_s: float
    evicted: float
    past_cache: float
    keys: int
    page_ms: float
    oldest_s: float
    memory: float
    link_ms: float
    direct_ms: float
    gets: Histogram
    slow: tuple[tuple[str, int], ...] = ()
    pages: int = 0
    accepted: int = 0
    finished: float = 0.0
    pending: float = 0.0
    asked: int = 0
    refused: int = 0
    queue: int = 0
    popped: int = 0
    link_most_ms: float = 0.0
    direct_most_ms: float = 0.0
    web_most_ms: float = 0.0
    expired: float = 0.0
    sent: float = 0.0
    connects: float = 0.0

    @property
    def get_ms(self) -> float:
        """p99 of the probe's GETs since the sample before."""
        return p99(self.gets)


def p99(histogram: Histogram) -> float:
    """The p99 in ms of a histogram in µs."""
    return histogram.percentile(99) / 1000


class _Counted(NamedTuple):
    """What the server counted since it started, except for `queue`, which is the length of the list of changes now."""

    evicted: float
    expired: float
    sent: float
    connects: float
    queue: int
    popped: int


@dataclass
class _Since:
    """Figures gathered between two samples."""

    gets: Histogram = field(default_factory=Histogram)
    oldest_s: float = 0.0
    memory: float = 0.0


def age_s(asked_at: Any, now: float) -> float:
    """How long ago (s) a price change was asked for, of which the server has the Unix time; 0 if it has none.

    Participants may put anything into that list. What is no time has no age.
    """
    try:
        return now - float(asked_at) if asked_at else 0.0
    except ValueError:
        return 0.0


class Observer:
    """Gathers figures in threads of its own; each call of `take_sample` makes a sample of those since the last call."""

    def __init__(self, scene: SessionTarget, probe: Probe) -> None:
        self._scene = scene
        self._lock = threading.Lock()
        self._since = _Since()
        self._client: Any = client(scene.server.url)
        self._onward = Onward()
        self._commands: set[str] = set()
        self._waits = Waits(asking(scene))
        self._seen_slow: set[str] = {entry[0] for entry in scene.server.slowlog()}
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.asked = self.refused = 0
        """Price changes that the server took, and that it did not take; counted by whoever asks for them."""
        self._ended = threading.Event()
        threading.Thread(target=self._hear, args=(probe,), daemon=True).start()
        threading.Thread(target=self._poll_server, daemon=True).start()

    def _hear(self, probe: Probe) -> None:
        for line in probe.lines():
            if (told := read_probe_line(line)) is None:
                continue
            with self._lock:
                self._since.gets.add(Histogram.decode(told["intended"]))

    def _poll_server(self) -> None:
        polling = client(self._scene.server.url)
        while not self._ended.wait(POLL_S):
            try:
                pipe = polling.pipeline(transaction=False)
                pipe.lindex(CHANGES, 0)
                pipe.info("memory")
                oldest, memory = pipe.execute()
            except (redis.RedisError, ValueError):
                continue
            age = age_s(oldest, time.time())
            share = memory["used_memory"] / memory["maxmemory"] if memory.get("maxmemory") else 0.0
            with self._lock:
                self._since.oldest_s = max(self._since.oldest_s, age)
                self._since.memory = max(self._since.memory, share)

    def take_sample(self) -> Sample:
        """Take a sample of the time since the last one. Raises `StackError` when something does not answer."""
        scene = self._scene
        tallies = scene.locust.tallies()
        scene.locust.reset()
        snapshot = scene.server.snapshot()
        slow = self._new_slow()
        web, invalidator = scene.web.text("/metrics"), scene.invalidator.text("/metrics")
        past, pending = PAST_CACHE.search(web), EVENTS_PENDING.search(web)
        link_ms, direct_ms = median_ms(scene.link_url()), median_ms(scene.server.url)
        counted = self._ask_server()
        most = {way: max(waits, default=0.0) for way, waits in self._waits.take().items()}
        with self._lock:
            since, self._since = self._since, _Since()
        sample = Sample(
            at=snapshot.at,
            counters=self._go_on(snapshot.commands),
            busy_s=snapshot.main_thread_s or 0.0,
            waited_s=scene.waited_s(),
            neighbours_s=scene.neighbours_s(),
            evicted=counted.evicted,
            past_cache=float(past.group(1)) if past else 0.0,
            keys=snapshot.keys,
            page_ms=tallies["reads"]["p99_ms"] or 0.0,
            oldest_s=since.oldest_s,
            memory=since.memory,
            link_ms=link_ms,
            direct_ms=direct_ms,
            gets=since.gets,
            slow=slow,
            pages=_answered(tallies["reads"]),
            accepted=_answered(tallies["events"]),
            finished=sum(float(count) for count in EVENTS_DONE.findall(invalidator)),
            pending=float(pending.group(1)) if pending else 0.0,
            asked=self.asked,
            refused=self.refused,
            queue=counted.queue,
            popped=counted.popped,
            link_most_ms=most[LINK],
            direct_most_ms=most[SERVER],
            web_most_ms=most[WEB],
            expired=counted.expired,
            sent=counted.sent,
            connects=counted.connects,
        )
        self.samples.append(sample)
        return sample

    def _go_on(self, commands: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Calls and execution time (µs) of each command so far, also where the server counts them from zero again."""
        self._commands |= commands.keys()
        read = self._onward.read
        found = {name: commands.get(name, (0.0, 0.0)) for name in self._commands}
        return {
            name: (read(f"{name} calls", calls), read(f"{name} usec", usec))
            for name, (calls, usec) in found.items()
        }

    def _ask_server(self) -> _Counted:
        """What the server counted, in one round trip."""
        try:
            pipe = self._client.pipeline(transaction=False)
            pipe.info("stats")
            pipe.llen(CHANGES)
            pipe.info("commandstats")
            stats, queue, commands = pipe.execute()
            popped = float(commands.get("cmdstat_lpop", {}).get("calls", 0))
            return _Counted(
                evicted=self._onward.read("evicted", float(stats["evicted_keys"])),
                expired=self._onward.read("expired", float(stats["expired_keys"])),
                sent=self._onward.read("sent", float(stats["total_net_output_bytes"])),
                connects=self._onward.read("connects", float(stats["total_connections_received"])),
                queue=int(queue),
                popped=int(self._onward.read("popped", popped)),
            )
        except redis.RedisError as error:
            raise StackError(f"the server does not answer INFO: {error}") from None

    def _new_slow(self) -> tuple[tuple[str, int], ...]:
        entries = [entry for entry in self._scene.server.slowlog() if entry[0] not in self._seen_slow]
        self._seen_slow.update(entry[0] for entry in entries)
        return tuple((name, duration) for _, _, name, duration in entries)

    def close(self) -> None:
        """Stop gathering."""
        self._ended.set()
        self._waits.close()


def _answered(tally: dict[str, Any]) -> int:
    """Requests of a tally that did not fail."""
    return int(tally["count"] - tally["failures"])


def seen(samples: list[Sample]) -> Seen:
    """What users saw in these samples: median of the page's p99s, p99 of all GETs, age of the oldest change."""
    gets = Histogram()
    for sample in samples:
        gets.add(sample.gets)
    pages = sorted(sample.page_ms for sample in samples)
    return Seen(pages[len(pages) // 2], p99(gets), max(sample.oldest_s for sample in samples))


def readings(before: Sample, samples: list[Sample], healthy: Seen, cores: int) -> Readings:
    """The readings from the sample `before` to the last of `samples`, which followed it."""
    last = samples[-1]
    seconds = last.at - before.at
    commands = {}
    for name, (calls, usec) in last.counters.items():
        were, spent = before.counters.get(name, (0.0, 0.0))
        if calls > were:
            commands[name] = Spent(
                (calls - were) / seconds, (usec - spent) / 1e6 / seconds, (usec - spent) / (calls - were)
            )
    slow: dict[str, tuple[int, float]] = {}
    for name, duration in (entry for sample in samples for entry in sample.slow):
        count, longest = slow.get(name, (0, 0.0))
        slow[name] = count + 1, max(longest, duration / 1000)
    waited = None
    if last.waited_s is not None and before.waited_s is not None:
        waited = (last.waited_s - before.waited_s) / seconds

    def middle(values: Iterable[float]) -> float:
        return sorted(values)[len(samples) // 2]

    return Readings(
        seconds=seconds,
        seen=seen(samples),
        healthy=healthy,
        busy=(last.busy_s - before.busy_s) / seconds,
        waited=waited,
        neighbours=(last.neighbours_s - before.neighbours_s) / seconds,
        cores=cores,
        evicted_per_s=(last.evicted - before.evicted) / seconds,
        memory=max(sample.memory for sample in samples),
        link_ms=middle(sample.link_ms for sample in samples),
        direct_ms=middle(sample.direct_ms for sample in samples),
        past_cache_per_s=(last.past_cache - before.past_cache) / seconds,
        link_most_ms=middle(sample.link_most_ms for sample in samples),
        direct_most_ms=middle(sample.direct_most_ms for sample in samples),
        web_most_ms=middle(sample.web_most_ms for sample in samples),
        expired_per_s=(last.expired - before.expired) / seconds,
        sent_mb_per_s=(last.sent - before.sent) / 1e6 / seconds,
        connects_per_s=(last.connects - before.connects) / seconds,
        keys=last.keys,
        commands=commands,
        slow=slow,
    )


def waited_s(pid: int) -> float | None:
    """Seconds that a process's first thread was ready to run but had no core; None if unknown (only Linux tells)."""
    return waits(pid).get(pid)


def cpu_seconds(pids: list[int]) -> float:
    """CPU seconds of some processes and their children together."""
    return sum(tree_seconds(pid) for pid in pids)
