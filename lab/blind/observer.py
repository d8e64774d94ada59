"""Samples the scene of a session every few seconds."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import redis

from lab.blind.prices import CHANGES
from lab.blind.readings import SessionSample
from lab.blind.routes import LINK, SERVER, WEB, Routes, WaitSampler, client, median_ping_ms, route_pings
from lab.errors import StackError
from lab.results.probe_line import read_probe_line
from lab.server.http import Locust, Storefront
from lab.server.processes import tree_seconds, waits
from lab.server.window import InfoSnapshot
from lab.stacks.base import Probe
from loadtest.histogram import Histogram

POLL_S = 0.1
KEPT_SAMPLES = 10_000
SECTIONS = ("server", "cpu", "stats", "commandstats", "keyspace")
"""Sections of INFO from which readings are computed."""
EVENTS_DONE = re.compile(r'^cache_invalidation_events_total\{[^}]*outcome="done"[^}]*\} (\S+)', re.M)
EVENTS_PENDING = re.compile(r"^cache_invalidation_events_pending (\S+)", re.M)
PAST_CACHE = re.compile(r'^cache_requests_total\{[^}]*result="bypass"[^}]*\} (\S+)', re.M)


class ObservedScene(Routes, Protocol):
    """The parts of a scene that an observer uses."""

    @property
    def invalidator(self) -> Storefront:
        """The invalidator, which carries out the storefront's own events."""
        ...

    @property
    def locust(self) -> Locust:
        """The load generator."""
        ...

    def waited_s(self) -> float | None:
        """Return the seconds that the server's main thread was ready to run but had no core; None if unknown."""
        ...

    def neighbours_s(self) -> float:
        """Return the CPU seconds of the programs of other teams."""
        ...


@dataclass
class _Since:
    """Figures gathered between two samples."""

    gets: Histogram = field(default_factory=Histogram)
    oldest_s: float = 0.0
    memory: float = 0.0


def age_s(put_at: Any, now: float) -> float:
    """Return the age in s of a price change that was put into its list at this Unix time; 0 for none.

    Participants may put anything into that list. An entry that is not a time counts as 0 s old.
    """
    try:
        return now - float(put_at) if put_at else 0.0
    except ValueError:
        return 0.0


class Observer:
    """Gathers figures in threads of its own; each call of `take_sample` returns those since the last call."""

    def __init__(self, scene: ObservedScene, probe: Probe) -> None:
        self._scene = scene
        self._lock = threading.Lock()
        self._since = _Since()
        self._client: Any = client(scene.server.url)
        self._waits = WaitSampler(route_pings(scene))
        self._seen_slow: set[str] = {entry[0] for entry in scene.server.slowlog()}
        self.samples: deque[SessionSample] = deque(maxlen=KEPT_SAMPLES)
        self.changes_put = self.changes_refused = 0
        """Price changes that were put into their list, and that the server refused; the session counts them."""
        self._ended = threading.Event()
        threading.Thread(target=self._read_probe, args=(probe,), daemon=True).start()
        threading.Thread(target=self._poll_server, daemon=True).start()

    def _read_probe(self, probe: Probe) -> None:
        for line in probe.lines():
            if (figures := read_probe_line(line)) is None or figures["by"] == "due":
                continue
            with self._lock:
                self._since.gets.add(Histogram.decode(figures["intended"]))

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
            limit = float(memory.get("maxmemory", 0))
            share = float(memory["used_memory"]) / limit if limit else 0.0
            with self._lock:
                self._since.oldest_s = max(self._since.oldest_s, age)
                self._since.memory = max(self._since.memory, share)

    def take_sample(self) -> SessionSample:
        """Take a sample of the time since the last one. Raises `StackError` when a part does not answer."""
        scene = self._scene
        tallies = scene.locust.tallies()
        scene.locust.reset()
        counters, queued = self._read_server()
        web, invalidator = scene.web.text("/metrics"), scene.invalidator.text("/metrics")
        past_cache, pending = PAST_CACHE.search(web), EVENTS_PENDING.search(web)
        longest = {route: max(waits, default=0.0) for route, waits in self._waits.take().items()}
        with self._lock:
            since, self._since = self._since, _Since()
        sample = SessionSample(
            info=counters,
            waited_s=scene.waited_s(),
            neighbours_s=scene.neighbours_s(),
            past_cache=float(past_cache.group(1)) if past_cache else 0.0,
            page_ms=tallies["reads"]["p99_ms"] or 0.0,
            oldest_s=since.oldest_s,
            memory=since.memory,
            link_ms=median_ping_ms(scene.link_url()),
            direct_ms=median_ping_ms(scene.server.url),
            gets=since.gets,
            link_most_ms=longest[LINK],
            direct_most_ms=longest[SERVER],
            web_most_ms=longest[WEB],
            slow=self._new_slow(),
            pages=_successes(tallies["reads"]),
            events_accepted=_successes(tallies["events"]),
            events_done=sum(float(count) for count in EVENTS_DONE.findall(invalidator)),
            events_pending=float(pending.group(1)) if pending else 0.0,
            changes_put=self.changes_put,
            changes_refused=self.changes_refused,
            changes_queued=queued,
        )
        self.samples.append(sample)
        return sample

    def _read_server(self) -> tuple[InfoSnapshot, int]:
        """Read the server's counters and the length of the list of price changes in one round trip."""
        sent_at = time.monotonic()
        try:
            pipe = self._client.pipeline(transaction=False)
            for section in SECTIONS:
                pipe.info(section)
            pipe.llen(CHANGES)
            *sections, queued = pipe.execute()
        except redis.RedisError as error:
            raise StackError(f"the server does not answer INFO: {error}") from None
        fields = {name: value for section in sections for name, value in section.items()}
        micros = fields.get("server_time_usec")
        at = float(micros) / 1e6 if micros else time.time()
        return InfoSnapshot(at, fields, time.monotonic(), sent_at), int(queued)

    def _new_slow(self) -> tuple[tuple[str, int], ...]:
        entries = [entry for entry in self._scene.server.slowlog() if entry[0] not in self._seen_slow]
        self._seen_slow.update(entry[0] for entry in entries)
        return tuple((name, duration) for _, _, name, duration in entries)

    def close(self) -> None:
        """Stop gathering."""
        self._ended.set()
        self._waits.close()


def _successes(tally: dict[str, Any]) -> int:
    """Return the number of requests of a tally that did not fail."""
    return int(tally["count"] - tally["failures"])


def waited_s(pid: int) -> float | None:
    """Return the seconds that a process's first thread was ready to run but had no core; None except on Linux."""
    return waits(pid).get(pid)


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU seconds of some processes and their children together."""
    return sum(tree_seconds(pid) for pid in pids)
