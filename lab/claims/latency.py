"""Claims about what bystanders wait: judged on the open-loop probe, from the intended send time."""

from __future__ import annotations

from lab.claims.base import Claim, Finding, differ, elevation, need_arm, need_latencies, need_p99, need_phase
from lab.results import stats
from lab.results.correlation import spearman
from lab.results.folder import PhaseRecord, Run


def follows_keys(claim_id: str, statement: str, rank: float, times: float = 0.0) -> Claim:
    """p99 rises with the key count: in rank (Spearman), by a slope whose interval lies above zero, and `times` in all.

    A rank below 1 allows neighbours to change places: below saturation a plateau's p99 depends on how many of its few
    events happened to meet.
    """

    def check(run: Run) -> Finding:
        plateaus = need_arm(run, "grow", 4)
        keys, p99s = [p.keys for p in plateaus], [need_p99(run, p) for p in plateaus]
        rho, rise = spearman(keys, p99s), p99s[-1] / p99s[0]
        slope = stats.bootstrap(
            [need_latencies(run, p) for p in plateaus],
            lambda p99s: stats.theil_sen_slope(keys, p99s) * 1e5,
            run.facts.seed,
        )
        return Finding(
            round(rho, 6) >= rank and slope.low > 0 and rise >= times,
            f"rank correlation {rho:.3f}; {p99s[0]:.1f} → {p99s[-1]:.1f} ms ({rise:.1f} ×), {slope.value:.1f} ms per "
            f"100 000 keys (95 % interval {slope.low:.1f} to {slope.high:.1f})",
            {
                "spearman": rho,
                "rise": rise,
                "slope_ms_per_100k": slope.value,
                "slope_low": slope.low,
                "slope_high": slope.high,
            },
        )

    whole = f"≥ {times:g} × from first to last, " if times else ""
    return Claim(
        claim_id, statement, f"{whole}rank correlation ≥ {rank:g} and the slope's interval above 0", check
    )


def rises(times: float) -> Claim:
    """p99 at the top plateau is a multiple of the first."""

    def check(run: Run) -> Finding:
        grow = need_arm(run, "grow", 2)
        first, top = need_p99(run, grow[0]), need_p99(run, grow[-1])
        return Finding(
            top / first >= times, f"{top / first:.1f} × ({first:.2f} → {top:.1f} ms)", {"ratio": top / first}
        )

    return Claim("p99-rises", "p99 at the top plateau is far above the first", f"≥ {times:g} ×", check)


def cures(claim_id: str, search: str, cure: str, arm: str, times: float) -> Claim:
    """p99 under a search against p99 under its cure (`arm`), both at the full key count and the same offered load."""

    def check(run: Run) -> Finding:
        before, after = need_arm(run, "grow", 2)[-1], need_arm(run, arm)[-1]
        ratio = need_p99(run, before) / need_p99(run, after)
        differs = differ(before, after)
        return Finding(
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


def flat_under_index(share: float, times: float) -> Claim:
    """Under the index p99 is flat: an equivalence bound, the index's worst rise against the cause's least.

    The upper end of the rise under the index must stay within `share` of the lower end of the rise before the fix, and
    p99 at its top below `times` its own first. Where p99 before the fix did not rise so (at the top less than `times`
    the first, or a lower end not above zero) there is nothing to be flat beside, and the claim fails.
    """

    def check(run: Run) -> Finding:
        before, after = _rise(run, need_arm(run, "grow", 4)), _rise(run, need_arm(run, "index", 4))
        worst = max(after.high, 0.0)
        index = need_arm(run, "index", 4)
        own = need_p99(run, index[-1]) / need_p99(run, index[0])
        return Finding(
            before.low > 0 and worst <= share * before.low and own < times <= elevation(run),
            f"rises by {after.value:.2f} ms (at most {after.high:.2f}, {own:.1f} ×) under the index, "
            f"by {before.value:.1f} ms (at least {before.low:.1f}) before",
            {"index_high_ms": after.high, "cause_low_ms": before.low},
        )

    return Claim(
        "index-flat",
        "under the index p99 does not rise with the key count",
        f"rise ≤ {share:.0%} of the rise before the fix, and < {times:g} × its own first",
        check,
    )


def _rise(run: Run, phases: list[PhaseRecord]) -> stats.Estimate:
    return stats.bootstrap(
        [need_latencies(run, p) for p in phases], stats.rise_over([p.keys for p in phases]), run.facts.seed
    )


def restart_restores(share: float, times: float) -> Claim:
    """A restart takes the rise away while keys are few, and the returning keys bring it back."""

    def check(run: Run) -> Finding:
        grow = need_arm(run, "grow", 2)
        first, top = need_p99(run, grow[0]), need_p99(run, grow[-1])
        after, back = need_p99(run, need_phase(run, "restart")), need_p99(run, need_phase(run, "return"))
        taken = (top - after) / (top - first) if top > first else 0.0
        return Finding(
            top / first >= times and taken >= share and back / first >= times,
            f"the restart took {taken:.0%} of the rise away ({top:.1f} → {after:.2f} ms), the keys brought "
            f"{back:.1f} ms back",
            {"taken_away": taken, "back_ratio": back / first},
        )

    return Claim(
        "restart-restores",
        "a restart takes the rise away until the keys return",
        f"≥ {share:.0%} of the rise gone, then ≥ {times:g} × the first plateau again",
        check,
    )


def wrong_turn(claim_id: str, phase_id: str, probe: str, what: str, within: float, times: float) -> Claim:
    """`what` takes less than `within` of p99 away while the trouble is there; making p99 worse is no help either.

    Near saturation p99 wanders by more than that from one moment to the next, so the two are not measured one
    after the other: a second probe (`probe`) with `what` runs beside the main one, through the same moments on the same
    server, and only their ratio is judged. It is judged at the top, past the knee, for a reason: a GET on the
    one busy connection can still be read in the turn of the server's loop that is under way, one on an idle
    connection waits for the next turn. So a pool's GET may come a SCAN later, which is much of a short
    wait (measured below the knee: 134 against 209 ms) and little of a long one.
    """

    def check(run: Run) -> Finding:
        phase = need_phase(run, phase_id)
        plain, changed = need_p99(run, phase), need_p99(run, phase, probe)
        change = changed / plain - 1
        trouble = plain / need_p99(run, need_arm(run, "grow", 2)[0])
        return Finding(
            change > -within and trouble >= times,
            f"p99 {plain:.1f} → {changed:.1f} ms ({change:+.1%}) while p99 was {trouble:.0f} × the first plateau",
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


__all__ = [
    "cures",
    "elevation",
    "flat_under_index",
    "follows_keys",
    "restart_restores",
    "rises",
    "wrong_turn",
]
