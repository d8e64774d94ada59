"""Whether a phase was measured fairly: judged right after it, by what the machine did and never by what came out.

An unfair phase is measured again at once, and the first fair attempt counts. That chooses no results as long as the
conditions look at nothing that the server's answers, and so a claim, could sway: the hypervisor's share, other
programs' share, how late the probes were with *sending*, how many turns of the load came due. Latencies, errors and
refused requests are outcomes, and are not looked at here. (Judged per phase, because a mean over a run hides a minute
in which another program had half the machine.)
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.errors import NotFair
from lab.processes import CpuMeter
from lab.runfolder import PhaseRecord

STEAL_MOST = 0.10
OTHERS_MOST = 0.35
"""Shares of a core that the hypervisor, and programs that are not the run's, may take in a phase."""
LATE_MS = 20.0
"""p99 of a probe's own lateness: a scheduler takes that long now and then, even on a quiet machine."""
DUE_WITHIN = 0.05
"""Share of the load's turns that may come late or not at all, because the load generator got no processor."""
LOOKS, LOOK_S, HOPELESS = 5, 1.0, 2.0
"""How often and how long the machine is looked at before a run, and how many times beyond those shares is hopeless."""

TIMES = {2: "twice"}


def why_unfair(phase: PhaseRecord) -> list[str]:
    """Why a phase was not measured fairly, a clause each with its figure; none where it was."""
    found = _machine(phase.machine.get("steal", 0.0), phase.machine.get("others", 0.0))
    for name, probe in phase.probes.items():
        late = probe["lag_p99_us"] / 1000
        if late > LATE_MS:
            found.append(f"probe {name} sent {late:.0f} ms late")
    asked, due = phase.events.get("asked_per_s", 0.0), phase.events.get("due_per_s")
    if due is not None and asked - due > max(DUE_WITHIN * asked, 2 / phase.seconds):
        found.append(f"the load came to {due:.1f} of {asked:.1f} events a second")
    return found


def _machine(steal: float, others: float, times: float = 1.0) -> list[str]:
    found = []
    if steal > times * STEAL_MOST:
        found.append(f"the hypervisor took {steal:.0%} of a core")
    if others > times * OTHERS_MOST:
        found.append(f"other programs used {others:.0%} of a core")
    return found


def measured_again(kept: PhaseRecord, discarded: list[PhaseRecord]) -> str:
    """What is told of a phase that was measured more than once, as a sentence. `discarded`: attempts of all phases."""
    before = [attempt for attempt in discarded if attempt.id == kept.id]
    count = len(before) + 1
    why = "; ".join(", ".join(attempt.unfair) for attempt in before)
    still = f"; and the last time {', '.join(kept.unfair)}" if kept.unfair else ""
    return f"{kept.id} was measured {TIMES.get(count, f'{count} times')}: {why}{still}."


class Repetition:
    """Has a phase measured again while it was not measured fairly, as often as the pace allows.

    The first fair attempt counts, never the best. What is compared at the same moment is one phase, with probes and
    loads side by side, and so is repeated as one.
    """

    def __init__(self, attempts: int, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`attempts` a phase; `budget_s` seconds for all repetitions of a run together."""
        self._attempts, self._left, self._clock = attempts, budget_s, clock

    def measure(self, walk: Callable[[int], PhaseRecord]) -> tuple[PhaseRecord, list[PhaseRecord]]:
        """The attempt that counts, and those before it. `walk(n)` measures the phase for the nth time.

        Where no attempt was fair the last one counts, and says in `unfair` why the run cannot be valid.
        """
        discarded: list[PhaseRecord] = []
        while True:
            began = self._clock()
            record = walk(len(discarded) + 1)
            took = self._clock() - began
            record.attempt, record.unfair = len(discarded) + 1, why_unfair(record)
            self._left -= took if discarded else 0.0
            if not record.unfair or record.attempt == self._attempts or took > self._left:
                return record, discarded
            discarded.append(record)


def look_at_machine(
    shares: Callable[[], dict[str, float]] | None = None, wait: Callable[[float], None] = time.sleep
) -> None:
    """See in a second, five where the first is bad, whether a fair phase can be had on this machine at all.

    `shares()` tells the machine's ``steal`` and ``others`` since the last call, in cores. Raises `NotFair` where each
    look is far beyond what a phase may have: then no repetition would help.
    """
    meter = CpuMeter()
    shares = shares or (lambda: meter.shares({})[1])
    reasons: list[str] = []
    for _ in range(LOOKS):
        wait(LOOK_S)
        machine = shares()
        reasons = _machine(machine["steal"], machine["others"], HOPELESS)
        if not reasons:
            return
    cure = (
        "Close other programs"
        if machine["others"] > OTHERS_MOST
        else "Take another machine, or a calmer hour"
    )
    raise NotFair(
        f"nothing can be measured on this machine now: {' and '.join(reasons)} for {LOOKS * LOOK_S:g} s on end "
        f"(at most {STEAL_MOST:.0%} and {OTHERS_MOST:.0%} are fair). {cure}, and run it again."
    )
