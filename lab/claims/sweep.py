"""Claims about full iterations: the effect of COUNT on one iteration, and of many iterations at once on bystanders.

Phases of the arm ``alone`` have the bystander load and nothing else. In phases of the arm ``sweep`` clients iterate
beside it. COUNT is in the phase's `params`; `loadtest.incidents.iterations` reports the number of clients. An iteration
returns every key once, whatever COUNT means to the server. So it is equal work, and its time compares servers.
"""

from __future__ import annotations

import statistics
from itertools import pairwise

from lab.claims.base import Claim, Missing, Result, need_arm, need_figure, need_param, need_typical_p99
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run

Cells = dict[int, dict[int, PhaseRecord]]


def _cells(run: Run) -> Cells:
    """Phases of the sweep by COUNT, then by the number of clients at once, both ascending."""
    found: Cells = {}
    for phase in need_arm(run, "sweep", 2):
        found.setdefault(int(need_param(phase, "count")), {})[int(need_figure(phase, "concurrent"))] = phase
    return {count: dict(sorted(found[count].items())) for count in sorted(found)}


def _one_at_a_time(run: Run) -> dict[int, PhaseRecord]:
    """COUNT → the phase in which a single client iterated."""
    return {count: row[1] for count, row in _cells(run).items() if 1 in row}


def _times(run: Run) -> dict[int, float]:
    return {count: need_figure(phase, "iteration_s") for count, phase in _one_at_a_time(run).items()}


def _need(times: dict[int, float], *counts: int) -> list[float]:
    if missing := [count for count in counts if count not in times]:
        raise Missing(f"no client iterated alone with COUNT {missing[0]:,}")
    return [times[count] for count in counts]


def small_count_is_slow(times: float, share: float) -> Claim:
    """From COUNT 10 to 1 000 the round trips of an iteration fall to a hundredth, and with them its time.

    Beyond that there is little left to save: the work on each key remains, and is the same for every COUNT.
    """

    def check(run: Run) -> Result:
        ten, thousand, more = _need(_times(run), 10, 1_000, 10_000)
        first, last_gain = ten / thousand, thousand / more
        return Result(
            first >= times and last_gain <= share * first,
            f"{first:.1f} × from COUNT 10 to 1,000, then {last_gain:.2f} × to 10,000 "
            f"({ten:.3g} → {thousand:.3g} → {more:.3g} s)",
            {"ratio": first, "after": last_gain},
        )

    return worded("iteration-time-falls", check, times=times, share=share)


def call_grows(times: float) -> Claim:
    """A larger COUNT saves round trips but makes each call longer, and other clients are served only after it.

    Judged by the server's own mean execution time of a call. (The longest call that a client saw is a figure of the
    phases too, but with a small COUNT that is a moment in which another process had the core.)
    """

    def check(run: Run) -> Result:
        phases = _one_at_a_time(run)
        if len(phases) < 2:
            raise Missing("no two COUNTs were tried by a client alone")
        took = {count: phase.execution_us("SCAN") or 0.0 for count, phase in phases.items()}
        smallest, largest = min(took), max(took)
        growth = took[largest] / took[smallest] if took[smallest] else 0.0
        rises = all(later > earlier for earlier, later in pairwise(took.values()))
        text = ", ".join(f"{us:,.0f} µs with COUNT {count:,}" for count, us in took.items())
        return Result(
            rises and growth >= times,
            f"{growth:.0f} × on the server ({text})" if growth else "no SCAN was executed",
            {"ratio": growth},
        )

    return worded("stall-grows", check, times=times)


def throughput_falls(step: float, counts: tuple[int, ...], whole: float) -> Claim:
    """Whatever COUNT is, the more clients iterate at once, the less the server has left for the others.

    Every call in the server's queue runs before a bystander's next pipeline does. The rates are the server's own counts
    of GETs, including those of the storefront and the probe, which are few. The steps are judged on the geometric mean
    over the COUNTs, so that one moment's noise does not decide. The whole fall is judged for each COUNT.
    """

    def check(run: Run) -> Result:
        alone = statistics.mean(_gets(phase) for phase in need_arm(run, "alone"))
        cells = _cells(run)
        if missing := [count for count in counts if count not in cells]:
            raise Missing(f"COUNT {missing[0]:,} was not tried")
        clients = list(cells[counts[0]])
        rates = {count: [alone, *(_gets(phase) for phase in cells[count].values())] for count in counts}
        if any(list(cells[count]) != clients for count in counts):
            raise Missing("the COUNTs were not all tried by as many clients")
        means = [statistics.geometric_mean(column) for column in zip(*rates.values(), strict=True)]
        worst = max(later / earlier for earlier, later in pairwise(means))
        left = max(row[-1] / alone for row in rates.values())
        text = [f"COUNT {count:,}: {_thousands(row)}" for count, row in rates.items()]
        return Result(
            worst <= step and left <= whole,
            f"{means[-1] / alone:.0%} left beside {clients[-1]:,} iterations; thousand GETs a second beside 0, "
            f"{', '.join(f'{n:,}' for n in clients)}: {_thousands(means)} in the mean, {'; '.join(text)}",
            {"ratio": alone / means[-1], "worst_step": worst, "most_left": left},
        )

    return worded("throughput-falls", check, step=step, whole=whole)


def _gets(phase: PhaseRecord) -> float:
    """GETs per second, at least 1: means and ratios need a figure above 0, also of a server that answered none."""
    return max(phase.rate("GET"), 1.0)


def _thousands(rates: list[float]) -> str:
    return " → ".join(f"{rate / 1000:,.0f}" for rate in rates)


def waits_grow(times: float) -> Claim:
    """The other price of a large COUNT: with as many iterations, each call is longer, and a bystander waits for all.

    Judged on the median quarter of a second, so that a moment in which the machine itself stood still decides nothing.
    """

    def check(run: Run) -> Result:
        cells = _cells(run)
        crowd = max(max(row) for row in cells.values())
        waits = {count: need_typical_p99(run, row[crowd]) for count, row in cells.items() if crowd in row}
        if len(waits) < 2:
            raise Missing("no two COUNTs were tried by as many clients")
        smallest, largest = min(waits), max(waits)
        alone = statistics.mean(need_typical_p99(run, phase) for phase in need_arm(run, "alone"))
        growth = waits[largest] / waits[smallest]
        return Result(
            growth >= times and waits[largest] / alone >= times,
            f"{growth:.1f} × from COUNT {smallest:,} to {largest:,} ({waits[smallest]:.2f} → {waits[largest]:.1f} ms) "
            f"beside {crowd:,} iterations; {alone:.2f} ms beside none",
            {"ratio": growth, "alone_ms": alone, "largest_ms": waits[largest]},
        )

    return worded("waits-grow", check, times=times)
