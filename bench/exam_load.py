"""A scene of the examination: `python -m bench.exam_load ACTIVITY URL LENGTH_MS SHARE CLIENTS` until it is ended.

It prepares its data, finds by trial how large they must be for one call to take LENGTH_MS (at most as large as `MOST`),
prints one line, and calls so often that the calls take SHARE of the server's time. An activity without a length of a
call reads LENGTH_MS and SHARE as its size and rate: see each function.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import redis

MOST = 1_000_000
"""The most elements or keys of a scene."""
START = 2_000
KEY = "exam"
LONG_TEXT = "x" * 100


class ExamScene:
    """The server and its load: calls of `length_s` that take `share` of its time, sent by `clients`."""

    def __init__(self, url: str, length_s: float, share: float, clients: int) -> None:
        self.url, self.length_s, self.share, self.clients = url, length_s, share, clients
        self.client: Any = redis.Redis.from_url(url, protocol=2)
        self.random = random.Random(7)

    def fill(self, size: int, kind: str) -> None:
        """Write `size` keys (kind ``keys``) or one collection with so many elements."""
        self.client.flushall()
        for first in range(0, size, 5_000):
            numbers = range(first, min(first + 5_000, size))
            if kind == "keys":
                self.client.mset({f"{KEY}:{n}": LONG_TEXT for n in numbers})
            elif kind == "hash":
                self.client.hset(KEY, mapping={f"f{n}": "x" for n in numbers})
            elif kind == "list":
                self.client.rpush(KEY, *numbers)
            elif kind == "zset":
                self.client.zadd(KEY, {f"m{n}": n for n in numbers})
            elif kind == "stream":
                pipe = self.client.pipeline(transaction=False)
                for n in numbers:
                    pipe.xadd(KEY, {"n": n})
                pipe.execute()
            else:
                self.client.sadd(KEY, *(f"m{n}" for n in numbers))

    def call_s(self, name: str, call: Callable[[Any], object], times: int = 3) -> float:
        """Execution time of a call by the server's own statistics, in s."""
        self.client.config_resetstat()
        for _ in range(times):
            call(self.client)
        counted = self.client.info("commandstats")[f"cmdstat_{name.lower()}"]
        return float(counted["usec"]) / 1e6 / times

    def repeat(self, call: Callable[[Any], object], every_s: float) -> None:
        """Call at random moments, `every_s` apart in the mean over all clients, without end."""
        print("ready", flush=True)

        def loop(number: int) -> None:
            client, dice = redis.Redis.from_url(self.url, protocol=2), random.Random(number)
            while True:
                time.sleep(dice.expovariate(1 / (every_s * self.clients)))
                call(client)

        for number in range(self.clients):
            threading.Thread(target=loop, args=(number,), daemon=True).start()
        time.sleep(3600)

    def sized(self, name: str, kind: str, make: Callable[[int], Callable[[Any], object]]) -> None:
        """Repeat a call whose length grows with the size of its data."""
        self.fill(START, kind)
        each_s = self.call_s(name, make(START)) / START
        size = max(1, min(MOST, round(self.length_s / each_s)))
        self.fill(size, kind)
        took = self.call_s(name, make(size), 1)
        self.repeat(make(size), took / self.share)


def transaction(size: int) -> Callable[[Any], object]:
    """A call of MULTI/EXEC with so many SETs."""

    def call(client: Any) -> object:
        pipe = client.pipeline(transaction=True)
        for n in range(size):
            pipe.set(f"{KEY}:{n}", "x")
        return pipe.execute()

    return call


SCRIPT = "for i = 1, ARGV[1] do redis.call('GET', KEYS[1]) end"
SIZED: dict[str, tuple[str, str, Callable[[int], Callable[[Any], object]]]] = {
    "scan": ("SCAN", "keys", lambda size: lambda c: c.scan(0, match="nothing:*", count=size)),
    "keys": ("KEYS", "keys", lambda size: lambda c: c.keys("nothing:*")),
    "smembers": ("SMEMBERS", "set", lambda size: lambda c: c.smembers(KEY)),
    "hgetall": ("HGETALL", "hash", lambda size: lambda c: c.hgetall(KEY)),
    "lrange": ("LRANGE", "list", lambda size: lambda c: c.lrange(KEY, 0, -1)),
    "zrange": ("ZRANGE", "zset", lambda size: lambda c: c.zrange(KEY, 0, -1)),
    "sunionstore": ("SUNIONSTORE", "set", lambda size: lambda c: c.sunionstore("exam:to", [KEY])),
    "sort": ("SORT", "list", lambda size: lambda c: c.sort(KEY, 0, 1)),
    "lrem": ("LREM", "list", lambda size: lambda c: c.lrem(KEY, 0, "nothing")),
    "xrange": ("XRANGE", "stream", lambda size: lambda c: c.xrange(KEY)),
    "mget": ("MGET", "keys", lambda size: lambda c: c.mget([f"{KEY}:{n}" for n in range(size)])),
    "script": ("EVAL", "keys", lambda size: lambda c: c.eval(SCRIPT, 1, f"{KEY}:1", size)),
    "transaction": ("EXEC", "keys", transaction),
}
"""Activity → its command, its data, and a function from the size to the call."""


def snapshots(scene: ExamScene) -> None:
    """BGSAVE again and again over so much memory that a fork takes about LENGTH_MS (1 GB: 10 ms or more)."""
    scene.fill(min(MOST, round(scene.length_s * 2e7)), "keys")
    scene.client.config_set("save", "")

    def save(client: Any) -> None:
        if not client.info("persistence")["rdb_bgsave_in_progress"]:
            client.bgsave()

    scene.clients = 1
    scene.repeat(save, 1.0)


def evictions(scene: ExamScene) -> None:
    """Large values are written at the limit of the memory: SHARE times a thousand a second."""
    scene.client.config_set("maxmemory", "100mb")
    scene.client.config_set("maxmemory-policy", "allkeys-lru")
    numbers = count()
    for n in range(1_200):
        scene.client.set(f"{KEY}:{n}", LONG_TEXT * 1_000)
    for n in range(400_000):
        if n % 5_000 == 0:
            scene.client.mset({f"{KEY}:small:{n + k}": LONG_TEXT for k in range(5_000)})
    size = round(min(40e6, scene.length_s * 1e8))
    scene.repeat(lambda c: c.set(f"{KEY}:big:{next(numbers) % 3}", b"x" * size), scene.length_s / scene.share)


def expiries(scene: ExamScene) -> None:
    """Waves of keys that expire in the same moment, one a second, as many as LENGTH_MS × 5,000."""
    size = round(max(1_000, min(300_000, scene.length_s * 5e6)))
    scene.clients = 1

    def wave(client: Any) -> None:
        at = time.time() + 2
        for first in range(0, size, 1_000):
            pipe = client.pipeline(transaction=False)
            for n in range(first, first + 1_000):
                pipe.set(f"{KEY}:{at}:{n}", "x", pxat=int(1_000 * at))
            pipe.execute()

    scene.repeat(wave, 1.0)


def connections(scene: ExamScene) -> None:
    """Each call has a connection of its own, SHARE × 3,000 a second."""

    def connect(_: Any) -> None:
        client = redis.Redis.from_url(scene.url, protocol=2)
        client.ping()
        client.close()

    scene.repeat(connect, 1 / (3_000 * scene.share))


def ordinary(scene: ExamScene) -> None:
    """GET and SET of small values in pipelines of LENGTH_MS × 10, as often as SHARE of the time allows for."""
    scene.fill(START, "keys")
    width = max(1, min(300, round(scene.length_s * 1e4)))

    def call(client: Any) -> None:
        pipe = client.pipeline(transaction=False)
        for n in range(width):
            pipe.get(f"{KEY}:{n}")
        pipe.execute()

    each_s = scene.call_s("GET", call, 20)
    scene.repeat(call, each_s / scene.share)


def blocked(scene: ExamScene) -> None:
    """Clients that wait for work with BLPOP, which is no harm."""
    scene.clients = max(20, scene.clients)
    scene.repeat(lambda c: c.blpop("exam:nothing", 5), 0.1)


def idle(_: ExamScene) -> None:
    """Do nothing."""
    print("ready", flush=True)
    time.sleep(3600)


UNSIZED: dict[str, Callable[[ExamScene], None]] = {
    "snapshots": snapshots,
    "evictions": evictions,
    "expiries": expiries,
    "connections": connections,
    "ordinary": ordinary,
    "blocked": blocked,
    "idle": idle,
}


def main(words: list[str]) -> None:
    """Carry out the scene that the command line describes."""
    activity, url, length_ms, share, clients = words
    scene = ExamScene(url, float(length_ms) / 1000, float(share), int(clients))
    if activity in SIZED:
        scene.sized(*SIZED[activity])
    else:
        UNSIZED[activity](scene)


if __name__ == "__main__":
    main(sys.argv[1:])
