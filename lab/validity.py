"""Validity before verdict: was this run a fair experiment? Judged from the run folder alone.

A run that fails a check has no verdict: its figures may come from the machine rather than from the cause. Each
check names the figure that made it fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.runfolder import PhaseRecord, Run

COMPARED = ("grow", "index")
LOAD_WITHIN = 0.05
PROBE_WITHIN = 0.02
LATE_SHARE = 0.25
LATE_MS = 20.0
STEAL_MOST = 0.10
OTHERS_MOST = 0.35
CLIENT_CPU_MOST = 0.80


@dataclass(frozen=True)
class Check:
    """One condition of a fair experiment."""

    check: str
    ok: bool
    detail: str


def validate(run: Run) -> list[Check]:
    """All checks; the run is valid when all are ok."""
    return [judge(run) for judge in CHECKS]


def _compared(run: Run) -> list[PhaseRecord]:
    return [phase for phase in run.phases if phase.arm in COMPARED]


def _complete(run: Run) -> Check:
    done = len(run.phases) > 0 and not run.facts.interrupted
    return Check("the run was completed", done, f"{len(run.phases)} phases measured")


def _delivered(run: Run) -> Check:
    """Offered = accepted by the service. One event more or less in a short phase is rounding, not a shortfall."""
    asked = run.facts.load.get("events_per_second", 0.0)
    worst, ok = 0.0, asked > 0
    for phase in _compared(run):
        short = abs(phase.events["offered_per_s"] - asked)
        worst = max(worst, short / asked if asked else 1.0)
        ok = ok and short <= max(LOAD_WITHIN * asked, 2 / phase.seconds)
    return Check(
        "the offered load was delivered", ok, f"{asked:.1f} events/s asked; farthest from it {worst:.1%}"
    )


def _equal(run: Run) -> Check:
    grow, index = run.arm("grow"), run.arm("index")
    if not grow or not index:
        return Check("both sides got the same load", False, "one side was not measured")
    before, after = grow[-1].events["offered_per_s"], index[-1].events["offered_per_s"]
    slack = max(LOAD_WITHIN * before, 2 / min(grow[-1].seconds, index[-1].seconds))
    return Check(
        "both sides got the same load",
        abs(before - after) <= slack,
        f"{before:.2f} and {after:.2f} events/s at the top",
    )


def _probed(run: Run) -> Check:
    asked = run.facts.load.get("probe_per_second", 0.0)
    errors = sum(phase.probes["main"]["errors"] for phase in _compared(run))
    rates = [phase.probes["main"]["rate"] for phase in _compared(run)]
    slack = max(
        PROBE_WITHIN * asked, 3 * asked**0.5 / min((p.seconds for p in _compared(run)), default=1.0) ** 0.5
    )
    ok = bool(rates) and errors == 0 and all(abs(rate - asked) <= slack for rate in rates)
    return Check(
        "the probe sent its GETs, and all were answered",
        ok,
        f"{asked:g}/s asked, {min(rates, default=0):.0f} to {max(rates, default=0):.0f} sent, {errors:.0f} errors",
    )


def _on_time(run: Run) -> Check:
    """The probe's own lateness must be small beside what it measures, where that is largest.

    LATE_MS is allowed in any case: a busy machine's scheduler takes that long now and then. Where p99 is small
    such lateness only makes it look larger, which under the index speaks against the claims, not for them.
    """
    grow = run.arm("grow")
    top = run.p99_ms(grow[-1]) if grow else None
    late = max((phase.probes["main"]["lag_p99_us"] for phase in _compared(run)), default=0.0) / 1000
    bound = max(LATE_SHARE * (top or 0.0), LATE_MS)
    return Check(
        "the probe was on time",
        top is not None and late <= bound,
        f"at most {late:.2f} ms late, allowed {bound:.1f}",
    )


def _quiet(run: Run) -> Check:
    seconds = sum(phase.seconds for phase in _compared(run)) or 1.0
    mean = {
        key: sum(phase.machine.get(key, 0.0) * phase.seconds for phase in _compared(run)) / seconds
        for key in ("steal", "others")
    }
    ok = mean["steal"] <= STEAL_MOST and mean["others"] <= OTHERS_MOST
    return Check(
        "the machine was quiet",
        ok,
        f"other programs used {mean['others']:.0%} of a core (at most {OTHERS_MOST:.0%}), the hypervisor took "
        f"{mean['steal']:.0%} (at most {STEAL_MOST:.0%})",
    )


def _spare(run: Run) -> Check:
    busiest, share = "none", 0.0
    for phase in _compared(run):
        for name, used in phase.processes.items():
            if name != "store" and used > share:
                busiest, share = name, used
    return Check(
        "the clients had CPU to spare", share <= CLIENT_CPU_MOST, f"busiest: {busiest}, {share:.0%} of a core"
    )


CHECKS: tuple[Callable[[Run], Check], ...] = (
    _complete,
    _delivered,
    _equal,
    _probed,
    _on_time,
    _quiet,
    _spare,
)
