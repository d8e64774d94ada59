"""Proofs of `eviction-cycle`: three synthetic cycles of four seconds, and changes to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.scenarios.eviction_cycle import CONTROL, SCENARIO
from tests.lab.plain import Change, Plain, Proofs
from tests.lab.synthetic import INTERVAL_S

SAMPLE_S = 0.125
HEALTHY, BURST, RECOVERY = 16, 4, 12
CYCLE = HEALTHY + BURST + RECOVERY
CYCLES = 3
LIMIT_MB, RATE, KEY_MB = 200.0, 2000.0, 136e-6
Line = dict[str, Any]


def sample(t: float, **changes: float) -> Line:
    """Return a sample of a quiet server with free memory."""
    line: Line = {
        "t": t,
        "interval_s": SAMPLE_S,
        "offered_per_s": RATE,
        "answered": RATE * SAMPLE_S,
        "in_flight": 2,
        "inserted": 10_000,
        "evicted": 0,
        "expired": 0,
        "keys": 1_300_000,
        "used_mb": 0.7 * LIMIT_MB,
        "limit_mb": LIMIT_MB,
        "clients_mb": 3.0,
        "busy": 0.6,
    }
    return line | changes


def cycle(t0: float) -> list[Line]:
    """Return the samples of a cycle: memory climbs for 2 s, the server evicts for 0.5 s, memory falls for 1.5 s."""
    found, keys = [], 1_200_000.0
    for i in range(CYCLE):
        t = t0 + (i + 1) * SAMPLE_S
        if i < HEALTHY:
            keys += 12_000
            share = 0.86 + 0.125 * (i + 1) / HEALTHY
            found.append(sample(t, keys=keys, used_mb=share * LIMIT_MB))
        elif i < HEALTHY + BURST:
            keys -= 45_000
            found.append(
                sample(
                    t,
                    keys=keys,
                    used_mb=LIMIT_MB,
                    answered=60,
                    inserted=3_000,
                    evicted=48_000,
                    clients_mb=5.0,
                )
            )
        else:
            past = i + 1 - HEALTHY - BURST
            used, clients = 1.0 - 0.14 * past / RECOVERY, 20.0 - past
            found.append(
                sample(t, keys=keys, used_mb=used * LIMIT_MB, inserted=0, answered=150, clients_mb=clients)
            )
    return found


def _lengthen(plain: Plain, phase_id: str, seconds: float) -> None:
    """Set the length of a phase; the phases after it are moved."""
    phases = plain.facts.phases
    number = [phase.id for phase in phases].index(phase_id)
    more = seconds - phases[number].seconds
    phases[number].t1 += more
    for later in phases[number + 1 :]:
        later.t0 += more
        later.t1 += more


def _fill_in(plain: Plain, phase_id: str, **changes: float) -> None:
    phase = plain.phase(phase_id)
    for i in range(round(phase.seconds / SAMPLE_S)):
        plain.lines.append(
            {"phase": phase_id, "load": "crowd", **sample(phase.t0 + (i + 1) * SAMPLE_S, **changes)}
        )


def scene(scenario: Any) -> Plain:
    """Return a run of the scenario whose phase of cycles is long enough for three; it has no samples yet."""
    plain = Plain(scenario)
    _lengthen(plain, "cycle", CYCLES * CYCLE * SAMPLE_S)
    return plain


def healthy() -> Plain:
    """A run with three cycles, and with none in the phases that lack a condition or have a short TTL."""
    plain = scene(SCENARIO)
    for i in range(CYCLES):
        t0 = plain.phase("cycle").t0 + i * CYCLE * SAMPLE_S
        plain.lines += [{"phase": "cycle", "load": "crowd", **line} for line in cycle(t0)]
    slow = range(round(HEALTHY * SAMPLE_S / INTERVAL_S), round((HEALTHY + BURST) * SAMPLE_S / INTERVAL_S))
    plain.each_p99_ms["cycle"] = [
        1200.0 if i in slow else 2.0 for i in range(round(CYCLE * SAMPLE_S / INTERVAL_S))
    ] * CYCLES
    _fill_in(plain, "few-clients", used_mb=LIMIT_MB, evicted=10_000)
    _fill_in(plain, "spare-cpu", used_mb=LIMIT_MB, evicted=10_000)
    _fill_in(plain, "spare-memory", limit_mb=2 * LIMIT_MB, used_mb=1.1 * LIMIT_MB)
    _fill_in(plain, "short-ttl", expired=9_000)
    return plain


def control() -> Plain:
    """A run in which entries have a short TTL from the beginning: nothing is ever evicted."""
    plain = scene(CONTROL)
    for phase in ("cycle", "few-clients", "spare-cpu", "spare-memory", "short-ttl"):
        _fill_in(plain, phase, expired=9_000)
    return plain


def _lines(plain: Plain, phase_id: str) -> list[Line]:
    return [line for line in plain.lines if line["phase"] == phase_id]


def _all(phase_id: str, **changes: float) -> Callable[[Plain], None]:
    """Change all samples of a phase."""

    def change(plain: Plain) -> None:
        for line in _lines(plain, phase_id):
            line.update(changes)

    return change


def _in_cycles(part: range, number: int | None = None, **changes: float) -> Callable[[Plain], None]:
    """Change the samples in a part of every cycle, or of one cycle."""

    def change(plain: Plain) -> None:
        for i, line in enumerate(_lines(plain, "cycle")):
            if i % CYCLE in part and number in (None, i // CYCLE):
                line.update(changes)

    return change


def _p99(interval: Callable[[int], bool], value: float) -> Callable[[Plain], None]:
    """Change the bystander's p99 in some of the sixteen intervals of each cycle."""

    def change(plain: Plain) -> None:
        each = plain.each_p99_ms["cycle"]
        width = round(CYCLE * SAMPLE_S / INTERVAL_S)
        plain.each_p99_ms["cycle"] = [value if interval(i % width) else old for i, old in enumerate(each)]

    return change


def _slow_phase(phase_id: str, p99_ms: float) -> Callable[[Plain], None]:
    def change(plain: Plain) -> None:
        plain.p99_ms[phase_id] = p99_ms

    return change


def _cycles_in(phase_id: str) -> Callable[[Plain], None]:
    """Put a whole cycle into a phase that should have none."""

    def change(plain: Plain) -> None:
        plain.lines = [line for line in plain.lines if line["phase"] != phase_id]
        _lengthen(plain, phase_id, CYCLE * SAMPLE_S)
        found = cycle(plain.phase(phase_id).t0)
        plain.lines += [{"phase": phase_id, "load": "crowd", **line} for line in found]

    return change


BURSTS = range(HEALTHY, HEALTHY + BURST)
RECOVERIES = range(HEALTHY + BURST, CYCLE)
TWO_ONLY = Change("two cycles, not three", _in_cycles(BURSTS, 1, evicted=0))
"""Without the evictions between them the second and the third climb are one."""


def _gone(phase_id: str, evicting: int) -> list[Change]:
    return [
        Change("a cycle there", _cycles_in(phase_id)),
        Change("bystanders wait long", _slow_phase(phase_id, 150.0)),
        Change("too many evictions", _all(phase_id, evicted=evicting)),
        TWO_ONLY,
    ]


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "three-phases": [
            TWO_ONLY,
            Change("evictions while there is room", _in_cycles(range(1, 2), evicted=4_000)),
            Change("memory stays at the limit", _in_cycles(range(CYCLE), used_mb=0.985 * LIMIT_MB)),
        ],
        "burst-p99": [
            Change("bursts only seven times as slow", _p99(lambda i: i in (8, 9), 14.0)),
            Change("always slow", _p99(lambda i: True, 1000.0)),
            TWO_ONLY,
        ],
        "bursts-coincide": [
            Change("slow GETs after the bursts, too", _p99(lambda i: i in (12, 14), 1200.0)),
            TWO_ONLY,
        ],
        "responses-drop": [
            Change("nine tenths are answered", _in_cycles(BURSTS, answered=0.9 * RATE * SAMPLE_S)),
            Change("no better while memory climbs", _in_cycles(range(HEALTHY), answered=50)),
            TWO_ONLY,
        ],
        "evicts-more-than-inserts-need": [
            Change("as inserts need, and a fifth more", _in_cycles(BURSTS, inserted=40_000)),
            TWO_ONLY,
        ],
        "buffers-displace-keys": [
            Change("clients' memory does not grow", _in_cycles(range(CYCLE), clients_mb=3.0)),
            Change("hardly any keys go", _in_cycles(range(CYCLE), keys=1_300_000)),
            TWO_ONLY,
        ],
        "needs-many-clients": [
            *_gone("few-clients", 14_000),
            Change("never full", _all("few-clients", evicted=0)),
        ],
        "needs-cpu": [*_gone("spare-cpu", 14_000), Change("never full", _all("spare-cpu", evicted=0))],
        "needs-full-memory": _gone("spare-memory", 1),
        "ttl-cures": _gone("short-ttl", 1),
    },
    bearing={
        "three-phases": [Change("a few evictions below the limit", _in_cycles(range(1, 2), evicted=1_000))],
        "burst-p99": [Change("bursts twelve times as slow", _p99(lambda i: i in (8, 9), 28.0))],
        "bursts-coincide": [Change("one slow stretch elsewhere", _p99(lambda i: i == 13, 40.0))],
        "responses-drop": [
            Change("two thirds are answered", _in_cycles(BURSTS, answered=0.66 * RATE * SAMPLE_S))
        ],
        "evicts-more-than-inserts-need": [Change("a third more", _in_cycles(BURSTS, inserted=36_000))],
        "buffers-displace-keys": [Change("a third of the memory", _in_cycles(RECOVERIES, clients_mb=11.0))],
        "needs-many-clients": [Change("a fifth more evictions", _all("few-clients", evicted=12_000))],
        "needs-cpu": [Change("bystanders wait a little", _slow_phase("spare-cpu", 40.0))],
        "needs-full-memory": [Change("bystanders wait a little", _slow_phase("spare-memory", 40.0))],
        "ttl-cures": [Change("bystanders wait a little", _slow_phase("short-ttl", 40.0))],
    },
)
