"""Windows as a diagnosis records them, healthy unless a test changes something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lab.diagnose.prober import Probed
from lab.diagnose.window import Snapshot, Window

SECONDS = 20
Make = Callable[..., Window]


def info_at(
    second: float,
    per_second: dict[str, float],
    fields: dict[str, Any],
    commands: dict[str, tuple[float, float]],
) -> Snapshot:
    """Return INFO at a second: counters rise by `per_second`, `commands` are (calls a second, µs a call)."""
    told: dict[str, Any] = {
        "server_time_usec": round(1e6 * (1000 + second)),
        "used_memory": 50_000_000,
        "maxmemory": 100_000_000,
        "maxclients": 10_000,
        "connected_clients": 12,
        "db0": "keys=200000,expires=0,avg_ttl=0",
        **fields,
    }
    told |= {name: per * second for name, per in per_second.items()}
    told |= {
        f"cmdstat_{name.lower()}": f"calls={round(calls * second)},usec={round(calls * second * each)}"
        for name, (calls, each) in commands.items()
    }
    return Snapshot(1000 + second, {name: str(value) for name, value in told.items()}, read_at=second)


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
