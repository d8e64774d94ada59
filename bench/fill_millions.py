"""Filling millions of keys as `scan-count` does, against ``redis-benchmark -P 16`` writing as many: seconds, a ratio.

Run as ``python -m bench.fill_millions [--server redis] [--keys N] [--rounds N]``. Each fill has a new server of its
own. Ours goes through the service's own code in the warmer's steps, over one connection, under the strategy `ttl`: an
entry is a SET with an expiry. redis-benchmark writes values of the same length under random names (of which a few come
twice):

- plain SETs over its own 50 connections, which keep the server busy all the time. Goal: at most 1.25, although each
  entry of ours has an expiry besides (a second table, a larger object).
- ratio_expiring: SETs with an expiry, as ours are, over 50 connections.
- ratio_one_connection: plain SETs over one connection, as ours has one.
- ratio_indexed: how much longer ours takes under the strategies that search or index: twenty entries are a
  transaction with their index set. `indexed_work` is their CPU time on the server, as a multiple of that under `ttl`.

A second line compares the memory that the server took for the keys with what `lab run` announces before it starts.
Goal: within 15 %.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import redis

from app.cache import Cache
from app.layouts import Layouts
from app.settings import Settings, layout_of
from app.state import Invalidation
from app.warmer import CHUNK_ENTRIES
from bench.kit import report, server
from lab.stacks.foreign import KEY_PREFIX
from lab.stacks.servers import SERVERS

PIPELINE = 16
VALUE_BYTES = 200


def ours(strategy: str) -> Callable[[str, int], None]:
    """Fill through the service's own code, in the warmer's steps, with that strategy's layout."""

    def fill(url: str, keys: int) -> None:
        settings = Settings(store_url=url, key_prefix=KEY_PREFIX)
        each = settings.fragments_per_user
        cache = Layouts(Cache(settings)).at(Invalidation(strategy, 1, layout_of(strategy)))
        last = keys // each
        for first in range(1, last + 1, CHUNK_ENTRIES // each):
            cache.put_users(range(first, min(last + 1, first + CHUNK_ENTRIES // each)))
        cache.close()

    return fill


def yardstick(connections: int, *more: str) -> Callable[[str, int], None]:
    """Fill by as many SETs of redis-benchmark, with `more` words after key and value."""

    def fill(url: str, keys: int) -> None:
        command = ["redis-benchmark", "-p", str(urlsplit(url).port), "-n", str(keys), "-r", "1000000000"]
        command += ["-P", str(PIPELINE), "-c", str(connections), "--csv"]
        command += ["SET", "key:__rand_int__", "x" * VALUE_BYTES, *more]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return fill


def measure(kind: str, fill: Callable[[str, int], None], keys: int) -> tuple[float, float, float]:
    """Seconds, the server's CPU seconds, and bytes of resident memory for each key."""
    with server(kind) as url:
        raw: Any = redis.Redis.from_url(url)
        empty = raw.info("memory")["used_memory_rss"]
        started = time.perf_counter()
        fill(url, keys)
        seconds = time.perf_counter() - started
        found = raw.info()
        raw.close()
    cpu = float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
    return seconds, cpu, (found["used_memory_rss"] - empty) / keys


def main() -> int:
    """Print the medians and the ratios; returns 2 if there is no redis-benchmark."""
    parser = argparse.ArgumentParser(
        prog="bench.fill_millions", description="Fill as a run does, and measure."
    )
    parser.add_argument("--server", default="embedded", choices=sorted(SERVERS))
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not shutil.which("redis-benchmark"):
        print("bench.fill_millions: there is no redis-benchmark here to compare with", file=sys.stderr)
        return 2
    fills = {
        "ours": ours("ttl"),
        "plain": yardstick(50),
        "expiring": yardstick(50, "EX", "86400"),
        "one_connection": yardstick(1),
        "indexed": ours("index"),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in fills}
    for _ in range(options.rounds):
        for name, fill in fills.items():
            found[name].append(measure(options.server, fill, options.keys))

    def ratio(name: str, over: str, column: int = 0) -> float:
        """One over another, the median of the rounds."""
        pairs = zip(found[name], found[over], strict=True)
        return statistics.median(one[column] / other[column] for one, other in pairs)

    report(
        f"fill {options.keys:,} keys on {options.server}: seconds / redis-benchmark -P {PIPELINE}",
        ratio("ours", "plain"),
        goal="<= 1.25",
        ratio_expiring=ratio("ours", "expiring"),
        ratio_one_connection=ratio("ours", "one_connection"),
        ratio_indexed=ratio("indexed", "ours"),
        indexed_work=ratio("indexed", "ours", 1),
        **{f"{name}_s": statistics.median(row[0] for row in rows) for name, rows in found.items()},
    )
    used = statistics.median(size for _, _, size in found["ours"])
    announced = SERVERS[options.server].key_bytes
    report(
        f"memory of {options.keys:,} keys on {options.server} / announced",
        used / announced,
        goal="0.85 to 1.15",
        used_bytes_per_key=used,
        announced_bytes_per_key=announced,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
