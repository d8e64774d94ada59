"""Proofs that the claims of `pipelined-delete` can fail."""

from __future__ import annotations

from collections.abc import Callable

from lab.scenarios.pipelined_delete import CONTROL, RTTS_MS, SCENARIO
from tests.lab.plain import Change, Plain, Proofs

ONE_BY_ONE, PIPELINED, VARIADIC = (
    {"rtt-0": 40_000.0, "rtt-half": 1_400.0, "rtt-1": 760.0, "rtt-5": 180.0},
    dict.fromkeys(RTTS_MS, 600_000.0),
    dict.fromkeys(RTTS_MS, 900_000.0),
)
RATES = {"variadic-100": 750_000.0, "variadic-1000": 900_000.0, "variadic-10000": 900_000.0}
WHOLE_MS = {"variadic-all": 60.0, "transaction-all": 80.0, "variadic-10000": 9.0}


def rates(plain: Plain, phase_id: str, one: float, many: float, variadic: float) -> None:
    """Set the rates of the three ways at one round-trip time."""
    plain.phase(phase_id).figures |= {
        "one_by_one_keys_per_s": one,
        "pipelined_keys_per_s": many,
        "variadic_keys_per_s": variadic,
        "pipelined_gain_x": many / one,
        "variadic_gain_x": variadic / one,
    }


def healthy() -> Plain:
    """A run on a quiet machine, in which every claim holds."""
    plain = Plain(SCENARIO)
    for name in RTTS_MS:
        rates(plain, name, ONE_BY_ONE[name], PIPELINED[name], VARIADIC[name])
    for phase in plain.arm("chunks"):
        phase.figures["keys_per_s"] = RATES.get(phase.id, 950_000.0)
        plain.p99_ms[phase.id] = WHOLE_MS.get(phase.id, 1.0)
    return plain


def control() -> Plain:
    """A run in which each way waits for each reply: rates and waits are the same, up to chance."""
    plain = Plain(CONTROL)
    for i, name in enumerate(RTTS_MS):
        one = ONE_BY_ONE[name]
        rates(plain, name, one, one * (1.03 if i % 2 else 0.98), one * 1.02)
    for i, phase in enumerate(plain.arm("chunks")):
        phase.figures["keys_per_s"] = 40_000.0 + 1_000 * i
        plain.p99_ms[phase.id] = 1.0 + 0.1 * i
    return plain


def at(phase_id: str, one: float, many: float, variadic: float) -> Callable[[Plain], object]:
    """Change the rates at one round-trip time."""
    return lambda plain: rates(plain, phase_id, one, many, variadic)


def waits(phase_id: str, ms: float) -> Callable[[Plain], object]:
    """Change the bystanders' p99 of a phase."""
    return lambda plain: plain.p99_ms.update({phase_id: ms})


def speed(phase_id: str, keys_per_s: float) -> Callable[[Plain], object]:
    """Change the speed of deleting in a phase of chunks."""
    return lambda plain: plain.phase(phase_id).figures.update(keys_per_s=keys_per_s)


PROOFS = Proofs(
    healthy,
    control,
    refuting={
        "pipeline-pays": [
            Change("a pipeline 4.9 times as fast", at("rtt-0", 40_000, 196_000, 900_000)),
        ],
        "gain-grows": [
            Change("no more gained at 1 ms than at 0.5", at("rtt-1", 1_400, 600_000, 900_000)),
            Change("less gained at 5 ms than at 1", at("rtt-5", 800, 600_000, 900_000)),
        ],
        "variadic-first": [
            Change("behind the pipeline at 5 ms", at("rtt-5", 180, 600_000, 590_000)),
            Change("level with the pipeline on loopback", at("rtt-0", 40_000, 600_000, 630_000)),
        ],
        "whole-stalls": [
            Change("one UNLINK of everything that stalls little", waits("variadic-all", 3.5)),
            Change("chunks that stall as much", waits("variadic-1000", 40.0)),
        ],
        "transaction-stalls": [
            Change("a transaction that stalls little", waits("transaction-all", 3.5)),
            Change("a plain pipeline that stalls as much", waits("pipelined-all", 60.0)),
        ],
        "chunks-keep-speed": [
            Change("chunks at half the speed", speed("variadic-1000", 0.49 * 950_000)),
            Change("chunks hardly faster than one by one", speed("variadic-1000", 190_000)),
            Change("nothing to keep", at("rtt-0", 200_000, 600_000, 900_000)),
        ],
    },
    bearing={
        "pipeline-pays": [Change("5.1 times as fast", at("rtt-0", 40_000, 204_000, 900_000))],
        "gain-grows": [
            Change("1.25 times as much at 1 ms as at 0.5", at("rtt-1", 1_120, 600_000, 900_000)),
        ],
        "variadic-first": [Change("1.12 times at one", at("rtt-1", 760, 600_000, 672_000))],
        "whole-stalls": [Change("about 8 times", waits("variadic-all", 8.0))],
        "transaction-stalls": [Change("about 8 times", waits("transaction-all", 8.0))],
        "chunks-keep-speed": [Change("just enough of the speed", speed("variadic-1000", 0.52 * 950_000))],
    },
)
