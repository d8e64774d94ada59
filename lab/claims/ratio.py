"""The commonest claims: one figure of a run is at least a multiple of another, or at most a share of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lab.claims.base import Claim, Result, differ, need_latencies, need_p99
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run

Figures = Callable[[Run], Sequence[float]]
"""Reads the two figures that a claim compares, and more for its words. Raises `Missing` for one that is not there."""
Words = Callable[..., str]
"""Describes the measurement in words, from all these figures."""
Phases = Callable[[Run], tuple[PhaseRecord, PhaseRecord]]


def at_least(
    claim_id: str, times: float, figures: Figures, words: Words, names: tuple[str, str] | None = None
) -> Claim:
    """The claim that the first figure is at least `times` the second; `kept` names both in the outcome's figures."""

    def check(run: Run) -> Result:
        high, low, *_ = found = figures(run)
        named = dict(zip(names, (high, low), strict=True)) if names else {}
        return Result(high / low >= times, words(*found), {"ratio": high / low, **named})

    return worded(claim_id, check, times=times)


def at_most(claim_id: str, share: float, figures: Figures, words: Words) -> Claim:
    """The claim that the first figure is at most a share of the second."""

    def check(run: Run) -> Result:
        part, total, *_ = found = figures(run)
        return Result(part <= share * total, words(*found), {"share": part / total})

    return worded(claim_id, check, share=share)


def waits_longer(claim_id: str, times: float, phases: Phases, words: str, in_keys: bool) -> Claim:
    """The claim that bystanders wait `times` as long in the first phase as in the second, at p99 and at p90.

    p90 too, because a single stall of the machine for 50 ms moves the p99 of a few seconds, whatever the strategy.
    `words` may name {high} and {low} (the p99s in ms), {ratio} and {at_p90}. `in_keys`: see `differ`.
    """

    def check(run: Run) -> Result:
        pair = phases(run)
        high, low = (need_p99(run, phase) for phase in pair)
        p90s = [float(np.percentile(np.concatenate(need_latencies(run, phase)), 90)) for phase in pair]
        ratio, at_p90, differs = high / low, p90s[0] / p90s[1], differ(*pair, in_keys=in_keys)
        return Result(
            min(ratio, at_p90) >= times and not differs,
            words.format(high=high, low=low, ratio=ratio, at_p90=at_p90) + differs,
            {"ratio": ratio, "p90_ratio": at_p90},
        )

    return worded(claim_id, check, times=times)
