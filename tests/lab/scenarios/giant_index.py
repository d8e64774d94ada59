"""Proofs that the claims of `giant-index` can fail."""

from __future__ import annotations

from collections.abc import Callable

from lab.results.folder import PhaseRecord
from lab.scenarios.giant_index import CONTROL, ORDINARY, SCENARIO, SIZES
from tests.lab.plain import Change, Plain, Proofs

NAIVE, CHUNKED = "naive-100000", "chunked-100000"
NAIVE_P99 = {ORDINARY: 1.0, 1_000: 3.0, 10_000: 15.0, 100_000: 150.0}
ROUNDS = 4
EVERYBODY = 200.0
"""Calls by ordinary users' events, beside the rounds."""


def work(phase: PhaseRecord, entries: int) -> None:
    """Set the server's work in a phase: 2 µs an entry, spread over the commands of its way."""
    ways = {"naive": ("SMEMBERS", "DEL", "SREM"), "chunked": ("SSCAN", "UNLINK", "SREM")}
    for name, share in zip(ways[phase.arm], (0.2, 0.5, 0.3), strict=True):
        phase.commands[name] = {"calls": ROUNDS + EVERYBODY, "usec": ROUNDS * entries * 2.0 * share}
    phase.figures |= {"entries": entries, "rounds": ROUNDS, "fill_s": 0.6, "invalidation_s": 0.4}


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = Plain(SCENARIO)
    for arm in ("naive", "chunked"):
        for phase, size in zip(plain.arm(arm), SIZES, strict=True):
            work(phase, size)
            plain.p99_ms[phase.id] = NAIVE_P99[size] if arm == "naive" else 1.5
    logged(SMEMBERS=ROUNDS, DEL=ROUNDS, SREM=ROUNDS)(plain)
    return plain


def control() -> Plain:
    """A run in which all users have as many entries: same waits up to chance, same work, an empty slow log."""
    plain = Plain(CONTROL)
    for arm in ("naive", "chunked"):
        for i, phase in enumerate(plain.arm(arm)):
            work(phase, ORDINARY)
            plain.p99_ms[phase.id] = 1.0 + 0.1 * i
    return plain


def waits(phase_id: str, ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of a phase."""
    return lambda plain: plain.p99_ms.update({phase_id: ms})


def logged(**entries: int) -> Callable[[Plain], object]:
    """Replace the entries of the slow log."""

    def change(plain: Plain) -> None:
        plain.slowlog = [(name, 30_000) for name, count in entries.items() for _ in range(count)]

    return change


def costs(phase_id: str, times: float) -> Callable[[Plain], object]:
    """Multiply the time of a phase's commands."""

    def change(plain: Plain) -> None:
        for counters in plain.phase(phase_id).commands.values():
            counters["usec"] *= times

    return change


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "giant-stalls": [
            Change("chunks that stall a quarter as much", waits(CHUNKED, 38.0)),
            Change("a giant that stalls little", waits(NAIVE, 7.0)),
        ],
        "ordinary-harmless": [
            Change("an ordinary user who stalls as well", waits("naive-20", 40.0)),
            Change("a giant that stalls little", waits(NAIVE, 4.5)),
        ],
        "stall-follows-size": [
            Change("a tenth of the entries that stalls half as much", waits("naive-10000", 75.0)),
            Change("a giant that stalls little", waits(NAIVE, 40.0)),
        ],
        "slowlog-names": [
            Change("an empty slow log", logged()),
            Change("a slow log that holds others only", logged(GET=9, SCAN=9, SREM=9)),
            Change("a slow log that missed some rounds", logged(DEL=ROUNDS - 1)),
            Change("chunks in the slow log", logged(DEL=ROUNDS, SMEMBERS=ROUNDS, UNLINK=3)),
        ],
        "same-work": [
            Change("chunks at 2.1 times the work", costs(CHUNKED, 2.1)),
            Change("work that was never trouble", waits(NAIVE, 7.0)),
        ],
    },
    bearing={
        "giant-stalls": [Change("5.3 times", waits(NAIVE, 8.0))],
        "ordinary-harmless": [Change("5.3 times", waits("naive-20", 28.0))],
        "stall-follows-size": [Change("3.2 times", waits("naive-10000", 47.0))],
        "slowlog-names": [
            Change("one entry a round", logged(DEL=ROUNDS)),
            Change(
                "two chunks that the machine held up", logged(DEL=ROUNDS, SMEMBERS=ROUNDS, UNLINK=1, SSCAN=1)
            ),
        ],
        "same-work": [Change("chunks at 1.9 times the work", costs(CHUNKED, 1.9))],
    },
)
