"""What the store benchmarks share: a server of their own and one line of output."""

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from lab.stacks.servers import SERVERS


@contextmanager
def server(name: str = "embedded") -> Iterator[str]:
    """One of the lab's servers (without persistence), as a run would start it; yields its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            SERVERS[name].command(port, folder),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 10
            while True:
                try:
                    redis.Redis(port=port, protocol=2).ping()
                    break
                except redis.RedisError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


def report(what: str, ratio: float, goal: str, **figures: float) -> None:
    """Print one JSON line: the ratio, its goal and what it was made of."""
    shown = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps({"bench": what, "ratio": round(ratio, 3), "goal": goal, **shown}))
