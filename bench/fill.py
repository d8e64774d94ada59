"""Filling the cache against ``redis-benchmark -P`` writing plain 200-byte values: entries per second, as a
ratio.

Run as ``python -m bench.fill``. Both write new keys into an emptied server over one connection, in turns. The
yardstick is redis-benchmark at pipeline 16, the customary one; pipelines 32 and 64 are printed beside it.
Where redis-benchmark is missing, it is a raw pipeline of prebuilt SETs from one Python process. Goal: at
least 0.8 at pipeline 16.

An entry of the cache is more work for the server than a plain SET: it has an expiry time and an index
membership, inside a transaction. ``server_work`` is that factor, from the server's own CPU time. A client that
costs nothing would reach a ratio of 1 / server_work against a yardstick that saturates the server (pipeline 64
nearly does).
"""

import shutil
import socket
import statistics
import subprocess
import time
from typing import Any
from urllib.parse import urlsplit

import redis

from app.bulk import encode
from app.cache import Cache
from app.settings import Settings
from bench.kit import report, server

ENTRIES = 200_000
ROUNDS = 5
PIPELINES = (16, 32, 64)


def fill(url: str) -> float:
    """Entries per second through the service's own code."""
    cache = Cache(Settings(store_url=url))
    users = range(1, ENTRIES // 20 + 1)
    started = time.perf_counter()
    written = cache.put_users(users)
    rate = written / (time.perf_counter() - started)
    cache.close()
    return rate


def benchmark(url: str, pipeline: int) -> float:
    """SETs per second that redis-benchmark reports for one connection, which is what the fill uses."""
    port = str(urlsplit(url).port)
    command = ["redis-benchmark", "-p", port, "-t", "set", "-n", str(ENTRIES), "-r", "1000000000"]
    command += ["-d", "200", "-P", str(pipeline), "-c", "1", "--csv"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.strip().splitlines()[-1].split(",")[1].strip('"'))


def raw_pipeline(url: str, pipeline: int) -> float:
    """SETs per second of prebuilt bytes from this process."""
    parts = urlsplit(url)
    chunks = [
        b"".join(encode("SET", f"raw:{i}", "x" * 200) for i in range(at, at + pipeline))
        for at in range(0, ENTRIES, pipeline)
    ]
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        started = time.perf_counter()
        for chunk in chunks:
            connection.sendall(chunk)
            left = 5 * pipeline
            while left:
                left -= len(connection.recv(min(left, 65536)))
        return len(chunks) * pipeline / (time.perf_counter() - started)


def server_cpu(raw: Any) -> float:
    """CPU seconds of the server so far."""
    used = raw.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def main() -> None:
    """Print the medians and the ratios."""
    measure = benchmark if shutil.which("redis-benchmark") else raw_pipeline
    ours: list[float] = []
    theirs: dict[int, list[float]] = {pipeline: [] for pipeline in PIPELINES}
    work: list[float] = []
    with server() as url:
        raw: Any = redis.Redis.from_url(url)
        for _ in range(ROUNDS):
            cost = 0.0
            for pipeline in PIPELINES:
                raw.flushall()
                before = server_cpu(raw)
                theirs[pipeline].append(measure(url, pipeline))
                cost = server_cpu(raw) - before
            raw.flushall()
            before = server_cpu(raw)
            ours.append(fill(url))
            work.append((server_cpu(raw) - before) / cost)
    ratios = {
        f"ratio_p{pipeline}": statistics.median(mine / other for mine, other in zip(ours, rates, strict=True))
        for pipeline, rates in theirs.items()
    }
    report(
        f"fill entries/s / {'redis-benchmark -P' if measure is benchmark else 'raw pipeline'} SET/s",
        ratios["ratio_p16"],
        goal=">= 0.8",
        **ratios,
        fill_per_second=statistics.median(ours),
        server_work=statistics.median(work),
    )


if __name__ == "__main__":
    main()
