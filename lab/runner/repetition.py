"""Checks the machine before a run, and measures a phase again that was not measured fairly.

`lab.claims.fairness` defines what is fair.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.claims.check import NOT_JUDGED
from lab.claims.fairness import OTHERS_MOST, STEAL_MOST, machine_unfair, why_unfair
from lab.errors import NotFair
from lab.results.folder import PhaseRecord
from lab.server.processes import CpuMeter

SAMPLES, SAMPLE_S, HOPELESS = 5, 1.0, 2.0
"""Before a run: most samples of the machine, seconds of each, and the hopeless multiple of the fair shares."""


class Repetition:
    """Measures a phase again until it was measured fairly, as often as the pace allows.

    The first fair attempt counts, never the best. Probes and loads that are compared at the same moment belong to one
    phase, and so are repeated together.
    """

    def __init__(self, attempts: int, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """At most `attempts` for each phase, and `budget_s` seconds for all repetitions of a run together."""
        self._attempts, self._left, self._clock = attempts, budget_s, clock

    def measure(
        self, walk: Callable[[int], PhaseRecord], again: Callable[[PhaseRecord], None] = lambda _: None
    ) -> tuple[PhaseRecord, list[PhaseRecord]]:
        """Return the attempt that counts, and the discarded ones. `walk(n)` measures the phase for the nth time.

        If no attempt was fair the last one counts, and its `unfair` has the reasons why the run cannot be valid. A
        phase without a claim is measured once. `again` is called with each discarded attempt.
        """
        discarded: list[PhaseRecord] = []
        while True:
            began = self._clock()
            record = walk(len(discarded) + 1)
            took = self._clock() - began
            record.attempt = len(discarded) + 1
            record.unfair = [] if record.arm in NOT_JUDGED else why_unfair(record)
            self._left -= took if discarded else 0.0
            if not record.unfair or record.attempt == self._attempts or took > self._left:
                return record, discarded
            discarded.append(record)
            again(record)


def noise(
    shares: Callable[[], dict[str, float]] | None = None, wait: Callable[[float], None] = time.sleep
) -> str:
    """Return the reason why no phase can be fair on this machine now; empty without one. Takes one to five seconds.

    `shares()` returns the machine's `steal` and `others` since the last call, in cores. There is a reason only if
    every sample is far beyond the fair shares: then no repetition would help.
    """
    meter = CpuMeter()
    shares = shares or (lambda: meter.shares({})[1])
    reasons: list[str] = []
    for _ in range(SAMPLES):
        wait(SAMPLE_S)
        reasons = machine_unfair(shares(), HOPELESS)
        if not reasons:
            return ""
    return " and ".join(reasons)


def check_machine(despite: bool, seen: Callable[[], str] = noise) -> str:
    """Return the disturbance of a run on this machine; empty without one. Raises `NotFair` for it, unless `despite`."""
    reason = seen()
    if reason and not despite:
        cure = (
            "Close other programs" if "other programs" in reason else "Take another machine, or a calmer hour"
        )
        raise NotFair(
            f"no run is fair on this machine now: {reason} for {SAMPLES * SAMPLE_S:g} s (at most {STEAL_MOST:.0%} and "
            f"{OTHERS_MOST:.0%} of a core beyond the spare ones are fair). {cure}, or let it run with --despite-noise "
            "and see what it shows without a verdict."
        )
    return reason
