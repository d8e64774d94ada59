"""Samples the scene of a session every few seconds, and computes the readings between two samples."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import redis

from lab.blind.evidence import Spent
from lab.blind.prices import CHANGES
from lab.blind.readings import Readings, Seen
from lab.errors import StackError
from lab.stacks.base import Probe
from lab.stacks.http import Locust, Storefront
from lab.stacks.processes import tree_seconds
from lab.stacks.server_stats import ServerObserver
from loadtest.histogram import Histogram

POLL_S = 0.1
PINGS = 9
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

    @property
    def get_ms(self) -> float:
        """p99 of the probe's GETs since the sample before."""
        return p99(self.gets)


def p99(histogram: Histogram) -> float:
    """The p99 in ms of a histogram in µs."""
    return histogram.percentile(99) / 1000


@dataclass
class _Since:
    """Figures gathered between two samples."""

    gets: Histogram = field(default_factory=Histogram)
    oldest_s: float = 0.0
    memory: float = 0.0


class Observer:
    """Gathers figures in threads of its own; each call of `take_sample` makes a sample of those since the last call."""

    def __init__(self, scene: SessionTarget, probe: Probe) -> None:
        self._scene = scene
        self._lock = threading.Lock()
        self._since = _Since()
        self._client: Any = _client(scene.server.url)
        self._seen_slow: set[str] = {entry[0] for entry in scene.server.slowlog()}
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.asked = self.refused = 0
        """Price changes that the server took, and that it did not take; counted by whoever asks for them."""
        self._ended = threading.Event()
        threading.Thread(target=self._hear, args=(probe,), daemon=True).start()
        threading.Thread(target=self._poll_server, daemon=True).start()

    def _hear(self, probe: Probe) -> None:
        for line in probe.lines():
            gets = Histogram.decode(json.loads(line)["intended"])
            with self._lock:
                self._since.gets.add(gets)

    def _poll_server(self) -> None:
        client = _client(self._scene.server.url)
        while not self._ended.wait(POLL_S):
            try:
                pipe = client.pipeline(transaction=False)
                pipe.lindex(CHANGES, 0)
                pipe.info("memory")
                oldest, memory = pipe.execute()
            except (redis.RedisError, ValueError):
                continue
            age = time.time() - float(oldest) if oldest else 0.0
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
        link_ms, direct_ms = _ping_ms(scene.link_url()), _ping_ms(scene.server.url)
        evicted, queue, popped = self._ask_server()
        with self._lock:
            since, self._since = self._since, _Since()
        sample = Sample(
            at=snapshot.at,
            counters=snapshot.commands,
            busy_s=snapshot.main_thread_s or 0.0,
            waited_s=scene.waited_s(),
            neighbours_s=scene.neighbours_s(),
            evicted=evicted,
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
            queue=queue,
            popped=popped,
        )
        self.samples.append(sample)
        return sample

    def _ask_server(self) -> tuple[float, int, int]:
        """Entries evicted so far, price changes in the list, and price changes taken out of it, in one round trip."""
        try:
            pipe = self._client.pipeline(transaction=False)
            pipe.info("stats")
            pipe.llen(CHANGES)
            pipe.info("commandstats")
            stats, queue, commands = pipe.execute()
            return (
                float(stats["evicted_keys"]),
                int(queue),
                int(commands.get("cmdstat_lpop", {}).get("calls", 0)),
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


def _answered(tally: dict[str, Any]) -> int:
    """Requests of a tally that did not fail."""
    return int(tally["count"] - tally["failures"])


def _client(url: str) -> Any:
    return redis.Redis.from_url(url, protocol=2, driver_info=None, socket_timeout=30, decode_responses=True)


def _ping_ms(url: str) -> float:
    """Median round trip in ms of some PINGs on a connection of their own; infinite without an answer."""
    try:
        return pings_ms(url)[PINGS // 2]
    except redis.RedisError:
        return float("inf")


def pings_ms(url: str) -> list[float]:
    """Round trips in ms of some PINGs on a connection of their own, ascending. Raises `redis.RedisError`."""
    client, taken = _client(url), []
    try:
        client.ping()
        for _ in range(PINGS):
            began = time.perf_counter()
            client.ping()
            taken.append((time.perf_counter() - began) * 1000)
    finally:
        client.close()
    return sorted(taken)


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
    middle = len(samples) // 2
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
        link_ms=sorted(sample.link_ms for sample in samples)[middle],
        direct_ms=sorted(sample.direct_ms for sample in samples)[middle],
        past_cache_per_s=(last.past_cache - before.past_cache) / seconds,
        keys=last.keys,
        commands=commands,
        slow=slow,
    )


def waited_s(pid: int) -> float | None:
    """Seconds that a process's first thread was ready to run but had no core; None if unknown (only Linux tells)."""
    try:  # proc(5): time on a core, time waiting for one (both ns), and times it was put on one
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def cpu_seconds(pids: list[int]) -> float:
    """CPU seconds of some processes and their children together."""
    return sum(tree_seconds(pid) for pid in pids)
