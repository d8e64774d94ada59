"""Claims about one user's giant index set: how invalidating it at once stalls bystanders, and what chunks save.

Phases come in two arms, ``naive`` and ``chunked``, each with the same sizes of the set (param ``entries``). The load
is `loadtest.incidents.giant`, which invalidates that user alone.
"""

from __future__ import annotations

from collections import Counter

from lab.claims.base import Claim, Missing, Result, need_arm, need_p99, need_param
from lab.claims.ratio import at_least
from lab.claims.texts import worded
from lab.results.folder import PhaseRecord, Run

AT_ONCE, IN_CHUNKS = ("SMEMBERS", "DEL"), ("SSCAN", "UNLINK")
"""Commands that distinguish an invalidation at once from one in chunks."""
DELETING = (*AT_ONCE, *IN_CHUNKS, "SREM")
"""All commands of an invalidation but MULTI, which does no work, and EXEC, whose time repeats that of the others."""


def _sizes(run: Run, arm: str) -> list[PhaseRecord]:
    """The phases of an arm, the smallest set first."""
    return sorted(need_arm(run, arm, 3), key=lambda phase: need_param(phase, "entries"))


def _rounds(phase: PhaseRecord) -> float:
    """Return how often the load of a phase invalidated the giant. Raises `Missing` if it never did."""
    rounds = phase.figures.get("rounds", 0.0)
    if not rounds:
        raise Missing(f"the load of {phase.id!r} finished no round")
    return rounds


def _work_ms(phase: PhaseRecord) -> float:
    """Execution time on the server of one invalidation."""
    rounds = _rounds(phase)
    return sum(phase.commands.get(name, {}).get("usec", 0.0) for name in DELETING) / rounds / 1000


def _compared(worse: PhaseRecord, better: PhaseRecord, run: Run) -> tuple[float, ...]:
    """p99 of bystanders in two phases, and the entries of both."""
    phases = (worse, better)
    return *(need_p99(run, phase) for phase in phases), *(need_param(phase, "entries") for phase in phases)


def giant_stalls(times: float) -> Claim:
    """The same set, the same work, the same events beside it: only the size of the pieces differs."""
    return at_least(
        "giant-stalls",
        times,
        lambda run: _compared(_sizes(run, "naive")[-1], _sizes(run, "chunked")[-1], run),
        lambda high, low, *_: (
            f"p99 of bystanders {high:.1f} ms in one piece, {low:.2f} ms in chunks: {high / low:.0f} ×"
        ),
        names=("naive_ms", "chunked_ms"),
    )


def ordinary_harmless(times: float) -> Claim:
    """By the same strategy, a user of ordinary size costs bystanders nothing: the strategy seemed harmless."""
    return at_least(
        "ordinary-harmless",
        times,
        lambda run: _compared(_sizes(run, "naive")[-1], _sizes(run, "naive")[0], run),
        lambda high, low, many, few: (
            f"{low:.2f} ms with {few:,.0f} entries, {high:.1f} ms with {many:,.0f}: {high / low:.0f} ×"
        ),
    )


def stall_follows_size(times: float) -> Claim:
    """Ten times the entries stall bystanders about ten times as long: there is no safe size."""
    return at_least(
        "stall-follows-size",
        times,
        lambda run: _compared(_sizes(run, "naive")[-1], _sizes(run, "naive")[-2], run),
        lambda high, low, many, few: (
            f"{low:.1f} ms with {few:,.0f} entries, {high:.1f} ms with {many / few:g} × as many: {high / low:.1f} ×"
        ),
    )


def slowlog_names_them(share: float) -> Claim:
    """For once the slow log agrees with the bystanders: it names the culprits.

    Both arms have commands of their own, so entries of the whole run can be assigned to them. Each invalidation of the
    giant at once must have left one. In chunks there may be `share` as many, because the log times by the wall clock
    and holds commands during which the machine took the server off its core.
    """

    def check(run: Run) -> Result:
        rounds = _rounds(_sizes(run, "naive")[-1])
        entries = Counter(row["command"] for row in run.slowlog)
        many, few = (sum(entries[name] for name in names) for names in (AT_ONCE, IN_CHUNKS))
        named = ", ".join(f"{entries[name]} {name}" for name in (*AT_ONCE, *IN_CHUNKS))
        return Result(
            many > 0 and many >= rounds and few <= share * many,
            f"the slow log holds {named}; the giant was invalidated at once {rounds:.0f} times",
            {"at_once": many, "in_chunks": few, "rounds": rounds},
        )

    return worded("slowlog-names", check, share=share)


def same_work(most: float, times: float) -> Claim:
    """Chunks save no work: they only let other requests in between. (So p99 must have fallen too, or the claim fails.)

    They even cost some work: SSCAN takes several times as long per member as SMEMBERS.
    """

    def check(run: Run) -> Result:
        naive, chunked = (_sizes(run, arm)[-1] for arm in ("naive", "chunked"))
        at_once, pieces = _work_ms(naive), _work_ms(chunked)
        relief = need_p99(run, naive) / need_p99(run, chunked)
        return Result(
            pieces <= most * at_once and relief >= times,
            f"{at_once:.0f} ms of the server's time at once, {pieces:.0f} ms in chunks ({pieces / at_once:.2f} ×), "
            f"while p99 fell to 1/{relief:.0f}",
            {"ratio": pieces / at_once, "naive_ms": at_once, "chunked_ms": pieces},
        )

    return worded("same-work", check, most=most, times=times)
