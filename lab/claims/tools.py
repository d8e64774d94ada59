"""Claims about a tool that browses keys: what it costs bystanders, what its filter saves, and what a limit does."""

from __future__ import annotations

import numpy as np

from lab.claims.base import Claim, Result, differ, need_figure, need_latencies, need_phase, need_utilisation
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run


def makes_wait(times: float) -> Claim:
    """The median wait of a bystander is a multiple of that before, at the same keys.

    The median, because short calls delay every GET a little and none for long: the tail is the machine's own.
    """

    def check(run: Run) -> Result:
        before, storm = need_phase(run, "before"), need_phase(run, "storm")
        low, high = _median_ms(run, before), _median_ms(run, storm)
        differs = differ(before, storm)
        return Result(
            high >= times * low and not differs,
            f"the median GET waits {low:.2f} → {high:.2f} ms, {high / low:.1f} ×{differs}",
            {"ratio": high / low},
        )

    return worded("tool-makes-wait", check, times=times)


def type_saves_nothing(within: float) -> Claim:
    """A look with TYPE makes as many calls as one without: the server filters what it has visited."""

    def check(run: Run) -> Result:
        typed, untyped = (
            need_figure(need_phase(run, name), "calls_per_event") for name in ("storm", "untyped")
        )
        return Result(
            untyped > 0 and abs(typed / untyped - 1) <= within,
            f"{typed:,.0f} calls a look with TYPE, {untyped:,.0f} without",
            {"typed": typed, "untyped": untyped},
        )

    return worded("type-saves-nothing", check, within=within)


def limit_cures(busy_times: float, wait_times: float) -> Claim:
    """With few calls a look the server is idle and bystanders do not wait, at the same keys."""

    def check(run: Run) -> Result:
        before, after = need_phase(run, "storm"), need_phase(run, "limited")
        used = need_utilisation(before), need_utilisation(after)
        waits = _median_ms(run, before), _median_ms(run, after)
        return Result(
            used[0] >= busy_times * used[1] and waits[0] >= wait_times * waits[1],
            f"the main thread is busy {used[0]:.0%} → {used[1]:.0%}, the median GET waits {waits[0]:.2f} → "
            f"{waits[1]:.2f} ms",
            {"busy_ratio": used[0] / max(used[1], 1e-9), "wait_ratio": waits[0] / waits[1]},
        )

    return worded("limit-cures", check, busy_times=busy_times, wait_times=wait_times)


def _median_ms(run: Run, phase: PhaseRecord) -> float:
    """Return the median wait of the main probe's requests in ms. Raises `Missing` without any."""
    return float(np.median(np.concatenate(need_latencies(run, phase)))) / 1000
