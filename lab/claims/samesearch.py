"""Claims about one search on many servers: how long bystanders wait for it, and its CPU cost on the server.

An event's CPU time is that of the whole server process, less what the same load takes under the index. It does not
depend on what a server's clock for a command counts, so it compares servers. A bystander's wait is the p99 of a typical
half second, in which about one event comes: a moment in which the machine stood still is one of many.
"""

from __future__ import annotations

from lab.claims.base import Claim, Inapplicable, Missing, Result, need_arm, need_phase, need_typical_p99
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run
from lab.results.numbers import ms, sig

HALF_SECOND = 2
"""Intervals of a probe in half a second."""


def event_ms(run: Run, phase: PhaseRecord) -> float:
    """The CPU time (ms) that the searches of one event take of the server. Raises `Missing`."""
    quiet = need_phase(run, "index")
    for each in (phase, quiet):
        if "store" not in each.processes or not each.events["finished_per_s"]:
            raise Missing(f"the CPU time of an event was not measured in phase {each.id!r}")
    return 1000 * (phase.processes["store"] - quiet.processes["store"]) / phase.events["finished_per_s"]


def waits_stay(rising: str, share: float, times: float) -> Claim:
    """p99 hardly rises with the keys, and is a small share of an event's CPU time: searches let other requests in.

    Without searches an event takes next to no CPU time, and so the claim fails.
    """

    def check(run: Run) -> Result:
        if run.facts.server != "dragonfly":
            raise Inapplicable("others wait until a call is over, and a call searches all keys")
        grow = need_arm(run, rising, 3)
        first, last = (need_typical_p99(run, phase, HALF_SECOND) for phase in (grow[0], grow[-1]))
        cost = event_ms(run, grow[-1])
        return Result(
            last <= share * cost and last < times * first,
            f"{ms(first)} → {ms(last)} ({last / first:.1f} ×), while an event takes {sig(cost)} ms of the server's CPU",
            {"ratio": last / first, "share": last / cost},
        )

    return worded("waits-stay", check, share=share, times=times)


def work_stays(rising: str, within: float, times: float) -> Claim:
    """An event's CPU time grows in step with the keys, even if no client waits for it: the cost of a visited key stays.

    Compared are the second plateau and the last: with the fewest keys an event's work drowns in the load's own.
    """

    def check(run: Run) -> Result:
        few, many = (need_arm(run, rising, 3)[place] for place in (1, -1))
        before, after = event_ms(run, few), event_ms(run, many)
        ratio = after / many.keys / (before / few.keys)
        busier = many.processes["store"] / need_phase(run, "index").processes["store"]
        return Result(
            1 / within <= ratio <= within and busier >= times,
            f"an event takes {sig(before)} ms of CPU at {few.keys:,.0f} keys and {sig(after)} ms at {many.keys:,.0f}, "
            f"{sig(ratio)} × for each key; the server is {sig(busier)} × as busy as under the index",
            {"ratio": ratio, "busier": busier, "event_ms": after},
        )

    return worded("work-stays", check, within=within, times=times)
