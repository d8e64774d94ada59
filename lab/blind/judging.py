"""What the evidence of an answer is worth: is it true, does it show the cause, which look-alikes does it rule out?

A figure is true where the lab, which looked at the same minutes, may have seen it (`Reading.may_be`). The true ones are
then put in place of what a healthy scene would have, and the cause is looked for in that: what is named must bear it by
itself. A look-alike is ruled out where it is not to be found in its own typical readings with these figures in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab.blind.cause import Cause
from lab.blind.causes import CAUSES
from lab.blind.figures import Named, named_in, put
from lab.blind.readings import Readings, Seen

GUESS, SHOWN, EXCLUDED = 40, 25, 25
"""Points of the right name alone; of figures that show the cause; and of those that leave none of its look-alikes."""
UNTRUE_COSTS = 5
WHOLE = 1.05
"""Shares of one thread come to no more than this together, rounding and all."""
HURT = Seen(60.0, 60.0, 5.0)
"""What users see of a common cause: all three figures bad."""


@dataclass(frozen=True)
class Judged:
    """A figure, between which values the lab saw the same (None: it does not see it here), and whether it is true."""

    named: Named
    range: tuple[float, float] | None
    true: bool

    @property
    def text(self) -> str:
        """In a line."""
        if self.range is None:
            return f"{self.named.text}: this machine does not tell the lab; believed"
        low, high = self.range
        unit = self.named.reading.unit
        told = f"{low:.3g} {unit}" if low == high else f"{low:.3g} to {high:.3g} {unit}"
        return f"{self.named.text}: {'true' if self.true else 'not so'}, the lab measured {told}"


@dataclass(frozen=True)
class Judgement:
    """Of one answer. `excluded` and `possible` are ids of look-alikes of the cause that was named."""

    figures: tuple[Judged, ...]
    shown: bool
    excluded: tuple[str, ...]
    possible: tuple[str, ...]

    @property
    def points(self) -> int:
        """What it is worth where the cause is right; never less than nothing."""
        untrue = sum(not figure.true for figure in self.figures)
        return max(0, GUESS + (SHOWN if self.shown else 0) + self.worth_of_excluded - UNTRUE_COSTS * untrue)

    @property
    def worth_of_excluded(self) -> int:
        """Points of the look-alikes that are ruled out: their part of all."""
        return round(EXCLUDED * len(self.excluded) / (len(self.excluded) + len(self.possible)))

    @property
    def is_a_guess(self) -> bool:
        """Whether nothing separates it from any other answer."""
        return not self.shown and not self.excluded


def judge(cause: Cause, evidence: str, looks: Sequence[Readings], lately: Readings) -> Judgement:
    """What the evidence for a cause is worth beside what the lab saw: readings over stretches of the same minutes, and
    over the latest of them together.

    Raises `UsageError` for a reading that does not exist, or a figure without a number or a unit.
    """
    figures = tuple(_held(named, [*looks, lately]) for named in named_in(evidence))
    true = [figure.named for figure in figures if figure.true]
    well = _well(lately)
    # Users' complaint is known to everybody: it need not be named, but for the answer that there is nothing.
    seen = HURT if cause.finds_health else lately.seen
    shown = bool(true) and cause.evidence(put(true, replace(well, seen=seen))).found
    possible = tuple(other for other in cause.alike if _fits(CAUSES[other], true, well))
    return Judgement(figures, shown, tuple(other for other in cause.alike if other not in possible), possible)


def _held(named: Named, looks: Sequence[Readings]) -> Judged:
    seen = [value for look in looks if (value := named.reading.of(look)) is not None]
    if not seen:
        return Judged(named, None, True)
    low, high = min(seen), max(seen)
    return Judged(named, (low, high), named.reading.may_be(named.value, low, high))


def _well(of: Readings) -> Readings:
    """The same scene with nothing wrong."""
    return replace(
        of, seen=of.healthy, busy=0.1, waited=None if of.waited is None else 0.0, neighbours=0.0, evicted_per_s=0.0,
        memory=0.6, link_ms=0.1, direct_ms=0.1, past_cache_per_s=0.0, commands={}, slow={},
    )  # fmt: skip


def _fits(cause: Cause, named: Sequence[Named], well: Readings) -> bool:
    """Whether a cause may be what made these figures."""
    if not named:
        return True
    seen = well.seen if cause.finds_health else HURT
    of = put(named, replace(well, **{"seen": seen, **cause.typical}))
    return cause.evidence(of).found and sum(spent.share for spent in of.commands.values()) <= WHOLE
