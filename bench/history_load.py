"""Makes a history of the cache: readers, events, an invalidator, and a look at the indexes, all on the app's own code.

A read does what the storefront does (`app.storefront`): it reads the epoch, then the cache. Where it finds nothing, it
computes the value, which takes a random time, and puts it. The value is the number of its put, by which
`bench.history_judge` knows it again. Readers and the invalidator are processes: `python -m bench.history_load
invalidator FOLDER`, or `... reader FOLDER NUMBER`. They write each operation to files in the folder, where the job
stands too, so that a kill loses no record. A put is written before it begins, too: it may be carried out all the same.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import mmap
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import redis

from app import invalidator
from app.cache import CacheUnavailable, connection_options
from app.cache_async import AsyncClient
from app.fragments import Keyspace, fragment_names, keyspace_of
from app.layouts import KINDS, Layouts
from app.process import setup_logging
from app.settings import Settings
from app.state import State, StateError
from app.strategies import STRATEGIES, Strategy
from bench.history_judge import EventRecord, Handling, Put, Read, UserHistory

THREADS = 8
"""Threads of a reader process: most of them wait for the server, or for a value that is being computed."""
LAYOUTS = tuple(KINDS)
INDEXED = ("entries", "tagged")
"""Layouts under which every entry is in an index set."""
POLL_S = 0.002
FAILED_S = 0.01
"""Wait after a read that failed."""
LOOK_EVERY_S = 0.1
LOOK_AT_ONCE = 100

READS = np.dtype(
    [(name, "i4") for name in ("user", "name", "layout", "epoch")]
    + [(name, "i8") for name in ("source", "number", "version")]
    + [(name, "f8") for name in ("begin", "end", "put_begin", "put_end")]
)
"""A read. `source`: the put whose value it found, 0 if none, -1 if the value is no number. `number`: of its own put,
or 0.
"""
ROW = struct.Struct("<iiiiqqqdddd")
PUT = ["number", "name", "layout", "epoch", "version", "put_begin", "put_end"]
READ = ["name", "layout", "epoch", "source", "begin", "end"]
HANDLINGS = np.dtype([("user", "i8"), ("begin", "f8"), ("end", "f8")])
HANDLED = struct.Struct("<qdd")


@dataclass(frozen=True)
class Job:
    """The parameters of a history. Times in seconds, `compute_ms` at most.

    It goes on until all `reads` are done, and the invalidator has carried out `handlings` events since they began. The
    storefront waits `timeout_s` for the server: some faults last longer, and some do not.
    """

    folder: str
    url: str
    strategy: str
    prefix: str
    reads: int
    users: int = 64
    names: int = 6
    ttl_s: int = 3
    compute_ms: float = 4.0
    pause_s: float = 0.005
    patience_s: float = 30.0
    timeout_s: float = 1.5
    seed: int = 1
    handlings: int = 0
    server: str = "embedded"

    def settings(self) -> Settings:
        """The settings of all that take part."""
        return Settings(
            store_url=self.url,
            state_dir=Path(self.folder) / "state",
            key_prefix=self.prefix,
            entry_ttl_seconds=self.ttl_s,
            fragments_per_user=self.names,
            server_name="history",
            store_timeout_seconds=self.timeout_s,
        )

    def state(self) -> State:
        """A handle on the state database. Raises `StateError`."""
        return State(self.settings().state_dir)

    def save(self) -> None:
        """Write the job to its folder, all versions as 0, and no handling."""
        (Path(self.folder) / "job.json").write_text(json.dumps(asdict(self)), encoding="utf-8")
        (Path(self.folder) / "versions").write_bytes(bytes(8 * (self.users + 1)))
        (Path(self.folder) / "handlings").touch()

    def versions(self) -> memoryview:
        """The version of each user's data, shared by all processes. Only one thread writes a user's."""
        with (Path(self.folder) / "versions").open("r+b") as file:
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")


def load_job(folder: str) -> Job:
    """The job of a folder."""
    return Job(**json.loads((Path(folder) / "job.json").read_text(encoding="utf-8")))


def handled(job: Job) -> int:
    """Return the number of events that the invalidator has carried out."""
    return (Path(job.folder) / "handlings").stat().st_size // HANDLED.size


def reads_done(job: Job) -> int:
    """Return the number of reads done."""
    return sum(path.stat().st_size for path in Path(job.folder).glob("reads-*")) // READS.itemsize


def source(value: bytes) -> int:
    """The number of the put that wrote a value; -1 if it is none."""
    with suppress(ValueError):
        return int(value)
    return -1


class Reader:
    """The reads of one process, with `THREADS` threads, until it is killed."""

    def __init__(self, job: Job, number: int) -> None:
        self._job, self._number = job, number
        self._state, self._versions = job.state(), job.versions()
        self._layouts = Layouts(KINDS["entries"](job.settings()))
        self._names = fragment_names(job.names)
        self._reads, self._puts = (
            os.open(Path(job.folder) / f"{name}-{number}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            for name in ("reads", "puts")
        )

    def run(self) -> None:
        """Read without end."""
        for thread in range(THREADS):
            threading.Thread(target=self._read, args=(thread,)).start()

    def _read(self, thread: int) -> None:
        who = self._number * THREADS + thread + 1
        chance = random.Random(f"{self._job.seed} {who}")
        for count in itertools.count():
            # Some users are read more often than others.
            user = 1 + int(self._job.users * chance.random() ** 2)
            name = chance.randrange(len(self._names))
            compute_s = chance.random() * self._job.compute_ms / 1000
            os.write(self._reads, self._once(user, name, who << 32 | count, compute_s))

    def _once(self, user: int, name: int, number: int, compute_s: float) -> bytes:
        begin, layout, epoch, since, found = time.monotonic(), 0, 0, 0, None
        try:
            mode = self._state.invalidation()
            layout, epoch = LAYOUTS.index(mode.layout), mode.epoch
            cache = self._layouts.at(mode)
            found, since = cache.get_with_since(user, self._names[name])
        except (CacheUnavailable, StateError):
            time.sleep(FAILED_S)
            return ROW.pack(user, name, layout, epoch, 0, 0, 0, begin, time.monotonic(), 0.0, 0.0)
        end = time.monotonic()
        if found is not None:
            return ROW.pack(user, name, layout, epoch, source(found), 0, 0, begin, end, 0.0, 0.0)
        version = self._versions[user]
        time.sleep(compute_s)
        put_begin, put_end = time.monotonic(), float("inf")

        def row() -> bytes:
            return ROW.pack(user, name, layout, epoch, 0, number, version, begin, end, put_begin, put_end)

        os.write(self._puts, row())
        try:
            cache.put(user, self._names[name], str(number), since)
            put_end = time.monotonic()
        except CacheUnavailable:
            pass
        return row()


@dataclass
class Sent:
    """An event under way or done; `number` is its id in the outbox, None if it was refused."""

    version: int
    begin: float
    number: int | None
    handled: float | None = None


class Events:
    """Sends events from threads, each for users of its own, and waits until each is handled."""

    WRITERS = 8

    def __init__(self, job: Job) -> None:
        self._job, self._state, self._versions = job, job.state(), job.versions()
        self.sent: dict[int, list[Sent]] = {user: [] for user in range(1, job.users + 1)}
        self.first = threading.Event()
        """Set once an event is handled: the invalidator works."""
        self._stopped = threading.Event()
        self._until = float("inf")
        self._threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(self.WRITERS)
        ]

    def begin(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def stop(self, patience_s: float) -> None:
        """Send nothing more, and wait for what is not handled yet `patience_s` longer at most."""
        self._until = time.monotonic() + patience_s
        self._stopped.set()

    def under_way(self) -> bool:
        """True while a thread sends or waits."""
        return any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        """Wait for all threads, after `stop`."""
        for thread in self._threads:
            thread.join()
        self._state.close()

    def _work(self, writer: int) -> None:
        chance = random.Random(f"{self._job.seed} events {writer}")
        own = [user for user in self.sent if user % self.WRITERS == writer]
        while own and not self._stopped.is_set():
            user = chance.choice(own)
            sent = [self._send(user) for _ in range(chance.choice((1, 1, 2)))]
            self.sent[user] += sent
            self._wait([event for event in sent if event.number is not None])
            time.sleep(chance.expovariate(1 / self._job.pause_s))

    def _send(self, user: int) -> Sent:
        version = self._versions[user] + 1
        self._versions[user] = version  # the data changes first, then the event says so
        begin = time.monotonic()
        try:
            return Sent(version, begin, self._state.add_event(user, "order", None))
        except StateError:
            return Sent(version, begin, None)

    def _wait(self, pending: list[Sent]) -> None:
        """Wait until all are handled, or until `stop` no longer allows it."""
        while pending and time.monotonic() < self._until:
            for event in list(pending):
                with suppress(StateError):
                    if event.number is not None and not self._state.is_pending(event.number):
                        event.handled = time.monotonic()
                        self.first.set()
                        pending.remove(event)
            time.sleep(POLL_S)


@dataclass
class Indexes:
    """Looks again and again whether an index names each entry, in one transaction for some entries at a time."""

    job: Job
    looked: int = 0
    lost: set[str] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        options = connection_options(5, self.job.url)
        self._client: Any = redis.Redis.from_url(self.job.url, **options)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.error: Exception | None = None

    def begin(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look a last time. `error` is then what went wrong on the way, or None. Safe to call twice."""
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def _work(self) -> None:
        state = self.job.state()
        try:
            while True:
                last = self._stopped.is_set()
                mode = state.invalidation()
                if mode.layout in INDEXED:
                    with suppress(redis.RedisError):  # the server may be away; `looked` counts those seen
                        self._look(keyspace_of(mode.layout, self.job.prefix, self.job.ttl_s).at(mode.epoch))
                if last:
                    return
                self._stopped.wait(LOOK_EVERY_S)
        except StateError as error:
            self.error = error
        finally:
            state.close()

    def _look(self, keyspace: Keyspace) -> None:
        found = [key.decode() for key in self._client.scan_iter(f"{keyspace.prefix}:*", 1000)]
        entries = [(key, named) for key in found if (named := keyspace.parse_entry(key))]
        for start in range(0, len(entries), LOOK_AT_ONCE):
            part = entries[start : start + LOOK_AT_ONCE]
            buckets = keyspace.live_buckets(time.time())
            pipe = self._client.pipeline(transaction=True)
            for key, (user, member) in part:
                pipe.execute_command("EXISTS", key)
                for bucket in buckets:
                    pipe.execute_command("SISMEMBER", keyspace.index(user, bucket), member)
            replies = iter(pipe.execute())
            for key, _ in part:
                cached, *indexed = (int(next(replies)) for _ in range(1 + len(buckets)))
                self.looked += cached
                if cached and not any(indexed):
                    self.lost.add(key)


def recorded(strategy: Strategy, file: int) -> Strategy:
    """The strategy, which adds a record to the file whenever it was carried out. A kill loses no record."""

    async def invalidate(client: AsyncClient, user: int, areas: Sequence[str], scan_count: int) -> int:
        begin = time.monotonic()
        deleted = await strategy(client, user, areas, scan_count)
        os.write(file, HANDLED.pack(user, begin, time.monotonic()))
        return deleted

    return invalidate


def invalidate(job: Job) -> None:
    """Be the invalidator until SIGTERM; records what was carried out."""
    file = os.open(Path(job.folder) / "handlings", os.O_WRONLY | os.O_APPEND)
    for name, strategy in list(STRATEGIES.items()):
        STRATEGIES[name] = recorded(strategy, file)
    invalidator.raise_file_limit()
    state = job.state()
    asyncio.run(invalidator.serve(job.settings(), state, setup_logging("invalidator")))


def _reads(job: Job) -> np.ndarray[Any, Any]:
    """All records of the readers, and of puts that were begun and have no other record."""

    def written(name: str) -> np.ndarray[Any, Any]:
        paths = sorted(Path(job.folder).glob(f"{name}-*"))
        return np.concatenate([np.fromfile(path, READS) for path in paths] or [np.empty(0, READS)])

    reads, puts = written("reads"), written("puts")
    return np.concatenate([reads, puts[~np.isin(puts["number"], reads["number"])]])


def histories(job: Job, sent: dict[int, list[Sent]]) -> Iterator[UserHistory]:
    """The history of each user, from the files in the folder and the events that were sent."""
    reads = _reads(job)
    handlings = np.fromfile(Path(job.folder) / "handlings", HANDLINGS)
    for user, events in sent.items():
        own = reads[reads["user"] == user]
        puts, hits = own[own["number"] != 0], own[own["source"] != 0]
        yield UserHistory(
            user,
            [EventRecord(each.version, each.begin, each.number is not None, each.handled) for each in events],
            [Handling(begin, end) for _, begin, end in handlings[handlings["user"] == user].tolist()],
            [
                Put(number, name, LAYOUTS[layout], epoch, version, begin, end)
                for number, name, layout, epoch, version, begin, end in puts[PUT].tolist()
            ],
            [
                Read(name, LAYOUTS[layout], epoch, number, begin, end)
                for name, layout, epoch, number, begin, end in hits[READ].tolist()
            ],
        )


def count(job: Job) -> dict[str, int]:
    """Count reads, hits, misses, and failed reads or puts in the folder's files."""
    reads = _reads(job)
    hits, misses = int((reads["source"] != 0).sum()), int((reads["number"] != 0).sum())
    unknown = int(np.isinf(reads["put_end"]).sum())
    return {"reads": len(reads), "hits": hits, "puts": misses, "failed": len(reads) - hits - misses + unknown}


def main(arguments: Sequence[str]) -> None:
    """Entry point of a process."""
    role, folder, *number = arguments
    job = load_job(folder)
    if role == "reader":
        Reader(job, int(number[0])).run()
    else:
        invalidate(job)


if __name__ == "__main__":
    main(sys.argv[1:])
