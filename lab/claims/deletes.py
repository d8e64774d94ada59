"""Claims about deleting many keys: the cost of round trips, and the cost to bystanders of saving all of them.

Figures are those of `loadtest.incidents.deletes`. Phases of the arm ``rtt`` delete by every method at one round-trip
time; phases of the arm ``chunks`` delete by one method with one chunk size.
"""

from __future__ import annotations

from itertools import pairwise

from lab.claims.base import Claim, Result, need_arm, need_figure, need_param, need_phase, need_typical_p99
from lab.claims.ratio import at_least
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run

BLOCK = 4
"""Intervals of the probe that are judged together: about a second."""


def _by_rtt(run: Run) -> list[PhaseRecord]:
    return sorted(need_arm(run, "rtt", 2), key=lambda phase: need_param(phase, "rtt_ms"))


def pipelining_pays(times: float) -> Claim:
    """Even without a network a pipeline saves two context switches and two system calls per key on either side."""
    return at_least(
        "pipeline-pays",
        times,
        lambda run: [
            need_figure(_by_rtt(run)[0], f"{method}_keys_per_s") for method in ("pipelined", "one_by_one")
        ],
        lambda many, one: f"{many / one:.1f} × on loopback ({one:,.0f} → {many:,.0f} keys a second)",
        names=("pipelined_per_s", "one_by_one_per_s"),
    )


def gain_grows(step: float) -> Claim:
    """The longer the round trip, the more a pipeline gains: so the time was waiting, not work."""

    def check(run: Run) -> Result:
        phases = _by_rtt(run)
        gains = [need_figure(phase, "pipelined_gain_x") for phase in phases]
        smallest = min(later / earlier for earlier, later in pairwise(gains))
        text = ", ".join(
            f"{gain:,.0f} × at {need_param(phase, 'rtt_ms'):g} ms"
            for phase, gain in zip(phases, gains, strict=True)
        )
        return Result(smallest >= step, text, {"smallest_step": smallest, "largest_gain": max(gains)})

    return worded("gain-grows", check, step=step)


def variadic_first(times: float) -> Claim:
    """A single command for many keys saves not only the round trips but also the server's work for each command."""

    def check(run: Run) -> Result:
        leads = {}
        for phase in _by_rtt(run):
            variadic = need_figure(phase, "variadic_keys_per_s")
            rivals = (need_figure(phase, f"{method}_keys_per_s") for method in ("pipelined", "one_by_one"))
            leads[need_param(phase, "rtt_ms")] = min(variadic / rival for rival in rivals)
        text = ", ".join(f"{lead:.2f} × at {rtt:g} ms" for rtt, lead in leads.items())
        return Result(
            min(leads.values()) >= times,
            f"against the better of the two: {text}",
            {"least": min(leads.values())},
        )

    return worded("variadic-first", check, times=times)


def stalls(claim_id: str, all_at_once: str, gentle: str, times: float) -> Claim:
    """In the phase `all_at_once` bystanders wait a multiple of what they wait in the phase `gentle`."""
    return at_least(
        claim_id,
        times,
        lambda run: [need_typical_p99(run, need_phase(run, name), BLOCK) for name in (all_at_once, gentle)],
        lambda high, low: (
            f"p99 of bystanders in a typical second {high:.1f} ms against {low:.2f} ms: {high / low:.1f} ×"
        ),
        names=("high_ms", "low_ms"),
    )


def chunks_keep_the_speed(chunked: str, whole: str, share: float, times: float) -> Claim:
    """A few hundred keys per call already bring most of the gain.

    If one call for all keys gained nothing, there would be nothing to keep. So the chunks must also be `times` as fast
    as one key after the other.
    """

    def check(run: Run) -> Result:
        one = need_figure(_by_rtt(run)[0], "one_by_one_keys_per_s")
        some = need_figure(need_phase(run, chunked), "keys_per_s")
        all_ = need_figure(need_phase(run, whole), "keys_per_s")
        return Result(
            some >= share * all_ and some >= times * one,
            f"{some / all_:.0%} of the speed of all in one call, {some / one:.1f} × one by one",
            {"share": some / all_, "over_one_by_one": some / one},
        )

    return worded("chunks-keep-speed", check, share=share, times=times)
