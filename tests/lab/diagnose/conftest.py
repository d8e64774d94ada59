"""Windows as a diagnosis records them, healthy unless a test changes something; a server, and the command itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.cli import run_command
from lab.server.window import InfoSnapshot, Probed, Window
from tests.lab.diagnose.diagnosekit import Run
from tests.loadtest.conftest import Server

SECONDS = 20
COUNTERS = ("evicted_keys", "expired_keys", "rejected_connections", "total_connections_received", "sync_full",
            "total_net_output_bytes", "total_forks", "aof_enabled")  # fmt: skip
Make = Callable[..., Window]


def info_at(
    second: float,
    per_second: dict[str, float],
    fields: dict[str, Any],
    commands: dict[str, tuple[float, float]],
) -> InfoSnapshot:
    """Return INFO at a second: counters rise by `per_second`, `commands` are (calls a second, µs a call)."""
    told: dict[str, Any] = {
        "server_time_usec": round(1e6 * (1000 + second)),
        "used_memory": 50_000_000,
        "maxmemory": 100_000_000,
        "maxclients": 10_000,
        "connected_clients": 12,
        **dict.fromkeys(COUNTERS, 0),
        "db0": "keys=200000,expires=0,avg_ttl=0",
        **fields,
    }
    told |= {name: per * second for name, per in per_second.items()}
    told |= {
        f"cmdstat_{name.lower()}": f"calls={round(calls * second)},usec={round(calls * second * each)}"
        for name, (calls, each) in commands.items()
    }
    return InfoSnapshot(1000 + second, {name: str(value) for name, value in told.items()}, read_at=second)


@pytest.fixture
def make() -> Make:
    """A function that builds a window: share of a core, waits of the probe in turn, the rest as for `info_at`."""

    def build(
        busy: float = 0.1,
        waits_ms: tuple[float, ...] = (0.3,),
        lag_s: float = 0.0,
        per_second: dict[str, float] | None = None,
        fields: dict[str, Any] | None = None,
        commands: dict[str, tuple[float, float]] | None = None,
        **more: Any,
    ) -> Window:
        counters = {
            "used_cpu_user_main_thread": 0.0,
            "used_cpu_user": busy,
            "used_cpu_sys": 0.0,
            **(per_second or {}),
        }
        counters |= {"used_cpu_sys_main_thread": busy}
        called = {"GET": (100.0, 3.0), **(commands or {})}
        looks = [info_at(second, counters, fields or {}, called) for second in range(SECONDS + 1)]
        # CPU seconds have six digits, as servers print them.
        looks = [
            replace(
                look,
                fields={
                    name: f"{float(value):.6f}" if "cpu" in name else value
                    for name, value in look.fields.items()
                },
            )
            for look in looks
        ]
        waits = [waits_ms[number % len(waits_ms)] / 1000 for number in range(10 * SECONDS)]
        probed = [Probed(number / 10, wait, lag_s) for number, wait in enumerate(waits)]
        return Window("redis://cache:6379", "valkey", "9.1.2", looks, probed, **more)

    return build


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, with some keys."""
    found = Server(tmp_path)
    found.start()
    found.client().mset({f"key:{number}": "x" for number in range(5_000)})
    yield found
    found.kill()


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command in this process and returns its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command(["diagnose", *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def background_load(server: Server) -> Iterator[Callable[[Callable[[Any], object], float], None]]:
    """A function that repeats something on the server until the test is over."""
    ended = threading.Event()
    threads = []

    def repeat(do: Callable[[Any], object], every_s: float) -> None:
        client = server.client()

        def loop() -> None:
            while not ended.wait(every_s):
                do(client)

        threads.append(threading.Thread(target=loop, daemon=True))
        threads[-1].start()

    yield repeat
    ended.set()
    for thread in threads:
        thread.join(10)
