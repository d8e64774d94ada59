"""Claims about the waits of bystanders: judged on the open-loop probe, from the intended send time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lab.claims.base import (
    Claim,
    Missing,
    Result,
    differ,
    elevation,
    need_arm,
    need_latencies,
    need_p99,
    need_phase,
)
from lab.claims.ratio import at_least
from lab.claims.texts import worded
from lab.results import formulas, operational, stats
from lab.results.correlation import spearman
from lab.results.folder import PhaseRecord, Run
from lab.results.knee import PATTERNS_PER_EVENT
from lab.results.numbers import sig

FEWEST = 3
"""The fewest plateaus for a slope, or for a typical figure."""
SHARE = 0.05
"""The least share of the time that searches must take. With much less, p99 is as much about everything else."""
MEET = 2 / 3
"""From this share of the time on, events meet now and then although they are sent at even distances: the storefront
hands them on with delays of its own."""


def with_time(run: Run, rising: str) -> list[PhaseRecord]:
    """The plateaus of an arm on which the server has time to spare: demand up to nine tenths of its capacity."""
    grow = need_arm(run, rising, 4)
    demands = {phase.id: operational.demand(phase, run.facts) for phase in grow}
    return [phase for phase in grow if (demands[phase.id] or 0.0) <= operational.TIME_LEFT]


def follows_keys(claim_id: str, statement: str, rising: str, rank: float, times: float = 0.0) -> Claim:
    """p99 rises with the key count: in rank (Spearman), by a slope whose interval lies above 0, and by `times` in all.

    A rank below 1 allows neighbours to change places: below saturation a plateau's p99 depends on how many of its few
    events happened to overlap. The slope is that of the plateaus below the knee, if there are three. Beyond the knee
    p99 grows for as long as the phase lasts, and a line through both sides says nothing.
    """

    def check(run: Run) -> Result:
        plateaus = need_arm(run, rising, 4)
        keys, p99s = [p.keys for p in plateaus], [need_p99(run, p) for p in plateaus]
        rho, rise = spearman(keys, p99s), p99s[-1] / p99s[0]
        below = with_time(run, rising)
        fitted = below if len(below) >= FEWEST else plateaus
        slope = stats.bootstrap(
            [need_latencies(run, p) for p in fitted],
            lambda p99s: stats.theil_sen_slope([p.keys for p in fitted], p99s) * 1e5,
            run.facts.seed,
        )
        return Result(
            round(rho, 6) >= rank and slope.low > 0 and rise >= times,
            f"rank correlation {rho:.3f}; {p99s[0]:.1f} → {p99s[-1]:.1f} ms ({rise:.1f} ×), {slope.value:.1f} ms per "
            f"100 000 keys{'' if fitted == plateaus else ' below the knee'} (95 % interval {slope.low:.1f} to "
            f"{slope.high:.1f})",
            {
                "spearman": rho,
                "rise": rise,
                "slope_ms_per_100k": slope.value,
                "slope_low": slope.low,
                "slope_high": slope.high,
            },
        )

    total_rise = f"≥ {times:g} × from first to last, " if times else ""
    return Claim(
        claim_id,
        statement,
        f"{total_rise}rank correlation ≥ {rank:g} and the slope's interval above 0",
        check,
    )


def is_one_search(rising: str, low: float, high: float) -> Claim:
    """As long as events do not meet, a bystander's p99 is the time of one event's searches, by the server's own clock.

    The figure is the ratio of p99 to the result of `formulas.wait_of_absences`, the median over the plateaus. The
    machine's speed and the calibrated event rate cancel out in it. So of all figures of a run it is the one to compare
    with other runs and other machines. The interval is that of this run; `bench.repeat` measures the spread over runs.
    """

    def check(run: Run) -> Result:
        found = [
            (phase, wait)
            for phase in with_time(run, rising)
            if (wait := _wait_of_searches(phase, run.facts.scan_count)) is not None
        ]
        if not found:
            return Result(False, "no event searched the keyspace while the server had time")
        if len(found) < FEWEST:
            raise Missing(f"{len(found)} of at least {FEWEST} plateaus have searches that do not meet")
        waits = np.array([wait for _, wait in found])

        def typical(p99s: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(np.median((p99s.T / waits).T, axis=0))

        ratio = stats.bootstrap([need_latencies(run, phase) for phase, _ in found], typical, run.facts.seed)
        return Result(
            low <= ratio.value <= high,
            f"{ratio.value:.2f} × (95 % interval {ratio.low:.2f} to {ratio.high:.2f}), the median of {len(found)} "
            "plateaus on which events do not meet",
            {"ratio": ratio.value, "low": ratio.low, "high": ratio.high},
        )

    return worded("p99-is-one-search", check, low=low, high=high)


def _wait_of_searches(phase: PhaseRecord, count: int) -> float | None:
    """The p99 (ms) that the searches of single events make; None unless they take `SHARE` to `MEET` of the time."""
    call_us, rate = phase.execution_us("SCAN"), phase.events["offered_per_s"]
    event_ms = PATTERNS_PER_EVENT * math.ceil(phase.keys / count) * (call_us or 0.0) / 1000
    share = rate * event_ms / 1000
    return formulas.wait_of_absences(event_ms, share) if SHARE <= share <= MEET else None


def rises(rising: str, times: float) -> Claim:
    """p99 at the top plateau is a multiple of the first."""
    return at_least(
        "p99-rises",
        times,
        lambda run: [need_p99(run, need_arm(run, rising, 2)[place]) for place in (-1, 0)],
        lambda top, first: f"{top / first:.1f} × ({first:.2f} → {top:.1f} ms)",
    )


def cures(claim_id: str, search: str, cure: str, rising: str, arm: str, times: float) -> Claim:
    """p99 on the last plateau of `rising` is a multiple of that on the last of `arm`, at the same keys and load."""

    def check(run: Run) -> Result:
        before, after = need_arm(run, rising, 2)[-1], need_arm(run, arm)[-1]
        ratio = need_p99(run, before) / need_p99(run, after)
        differs = differ(before, after)
        return Result(
            ratio >= times and not differs,
            f"{ratio:.1f} × at {after.keys:,.0f} keys "
            f"({need_p99(run, before):.1f} → {need_p99(run, after):.2f} ms){differs}",
            {"ratio": ratio},
        )

    return Claim(
        claim_id,
        f"at the same keys and load, p99 under {search} is a multiple of p99 under {cure}",
        f"≥ {times:g} ×",
        check,
    )


def flat_under_index(rising: str, cured: str, share: float, times: float) -> Claim:
    """Under the index p99 is flat, by an equivalence bound: the index's largest rise against the cause's smallest.

    The upper end of the rise under the index must stay within `share` of the lower end of the rise before the fix, and
    p99 at its top below `times` its own first. If p99 before the fix did not rise that much (at the top less than
    `times` the first, or a lower end not above zero), there is no rise to compare with, and the claim fails.
    """

    def check(run: Run) -> Result:
        before, after = _rise(run, need_arm(run, rising, 4)), _rise(run, need_arm(run, cured, 4))
        worst = max(after.high, 0.0)
        moves = f"rises by {after.value:.2f}" if after.value >= 0 else f"falls by {-after.value:.2f}"
        index = need_arm(run, cured, 4)
        own = need_p99(run, index[-1]) / need_p99(run, index[0])
        return Result(
            before.low > 0 and worst <= share * before.low and own < times <= elevation(run, rising),
            f"{moves} ms (at most {after.high:.2f}, {own:.1f} ×) under the index, "
            f"by {before.value:.1f} ms (at least {before.low:.1f}) before",
            {"index_high_ms": after.high, "cause_low_ms": before.low},
        )

    return worded("index-flat", check, share=share, times=times)


def _rise(run: Run, phases: list[PhaseRecord]) -> stats.Estimate:
    return stats.bootstrap(
        [need_latencies(run, p) for p in phases], stats.rise_over([p.keys for p in phases]), run.facts.seed
    )


def restart_restores(rising: str, share: float, times: float) -> Claim:
    """A restart takes the rise away while keys are few, and the returning keys bring it back."""

    def check(run: Run) -> Result:
        grow = need_arm(run, rising, 2)
        first, top = need_p99(run, grow[0]), need_p99(run, grow[-1])
        after, back = need_p99(run, need_phase(run, "restart")), need_p99(run, need_phase(run, "return"))
        taken = (top - after) / (top - first) if top > first else 0.0
        return Result(
            top / first >= times and taken >= share and back / first >= times,
            f"the restart took {max(0.0, taken):.0%} of the rise away ({top:.1f} → {after:.2f} ms), the keys brought "
            f"{back:.1f} ms back",
            {"taken_away": taken, "back_ratio": back / first},
        )

    return worded("restart-restores", check, share=share, times=times)


def wrong_turn(
    claim_id: str, rising: str, phase_id: str, probe: str, what: str, within: float, times: float
) -> Claim:
    """`what` reduces p99 by less than `within` while p99 is high. (Making p99 worse is no help either.)

    p99 varies by more than that from one moment to the next, so the two are not measured one after the other: a second
    probe (`probe`) with `what` runs beside the main one, through the same moments on the same server, and only their
    ratio is judged. It is judged below the knee, where a connection without a queue would be fast. (A
    pool may well be slower there: a GET on the one busy connection can still be read in the current turn of the
    server's loop; a GET on an idle connection waits for the next turn.)
    """

    def check(run: Run) -> Result:
        phase = need_phase(run, phase_id)
        plain, changed = need_p99(run, phase), need_p99(run, phase, probe)
        change = changed / plain - 1
        trouble = plain / need_p99(run, need_arm(run, rising, 2)[0])
        return Result(
            change > -within and trouble >= times,
            f"p99 {plain:.1f} → {changed:.1f} ms ({change:+.1%}) while p99 was {sig(trouble)} × the first plateau",
            {"change": change, "trouble": trouble},
        )

    return Claim(
        claim_id,
        f"{what} do not help"
        if what.endswith("s") and not what.startswith("a ")
        else f"{what} does not help",
        f"p99 falls by < {within:.0%} while it is ≥ {times:g} × the first plateau",
        check,
    )
