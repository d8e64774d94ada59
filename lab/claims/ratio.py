"""The commonest claims: a figure of a run is so many times another one, or at most a share of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lab.claims.base import Claim, Finding, differ, need_latencies, need_p99
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run

Figures = Callable[[Run], Sequence[float]]
"""Reads the two figures that a claim compares, and more for its words. Raises `Missing` for one that is not there."""
Words = Callable[..., str]
"""What was measured in words, from all these figures."""
Phases = Callable[[Run], tuple[PhaseRecord, PhaseRecord]]


def at_least(
    claim_id: str, times: float, figures: Figures, words: Words, kept: tuple[str, str] | None = None
) -> Claim:
    """The claim that the first figure is at least `times` the second; `kept` names both in the outcome's figures."""

    def check(run: Run) -> Finding:
        high, low, *_ = found = figures(run)
        named = dict(zip(kept, (high, low), strict=True)) if kept else {}
        return Finding(high / low >= times, words(*found), {"ratio": high / low, **named})

    return worded(claim_id, check, times=times)


def at_most(claim_id: str, share: float, figures: Figures, words: Words) -> Claim:
    """The claim that the first figure is at most a share of the second."""

    def check(run: Run) -> Finding:
        part, whole, *_ = found = figures(run)
        return Finding(part <= share * whole, words(*found), {"share": part / whole})

    return worded(claim_id, check, share=share)


def waits_longer(claim_id: str, times: float, phases: Phases, words: str, in_keys: bool) -> Claim:
    """The claim that bystanders wait `times` as long in the first phase as in the second, at p99 and at p90.

    p90 too, because a single stall of the machine for 50 ms moves the p99 of a few seconds, whatever the strategy.
    `words` may name {high} and {low} (the p99s in ms), {ratio} and {at_p90}. `in_keys`: see `differ`.
    """

    def check(run: Run) -> Finding:
        both = phases(run)
        high, low = (need_p99(run, phase) for phase in both)
        p90s = [float(np.percentile(np.concatenate(need_latencies(run, phase)), 90)) for phase in both]
        ratio, at_p90, differs = high / low, p90s[0] / p90s[1], differ(*both, in_keys=in_keys)
        return Finding(
            min(ratio, at_p90) >= times and not differs,
            words.format(high=high, low=low, ratio=ratio, at_p90=at_p90) + differs,
            {"ratio": ratio, "p90_ratio": at_p90},
        )

    return worded(claim_id, check, times=times)
