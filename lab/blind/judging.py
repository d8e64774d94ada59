"""Judges the evidence of an answer: is it true, does it show the cause, and which look-alikes does it rule out?

A figure is true if it agrees with what the lab measured in the same minutes (`Reading.may_be`). The true figures are
put into the readings of a healthy scene. If the cause is found there, the figures show it by themselves. They are also
put into the typical readings of each look-alike. If the look-alike is no longer found there, it is ruled out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lab.blind.cause import Cause
from lab.blind.causes import CAUSES
from lab.blind.figures import Named, named_in, put
from lab.blind.readings import Readings, Seen

GUESS, SHOWN, EXCLUDED = 40, 25, 25
"""Points for the right cause alone, for figures that show it, and for figures that rule out all its look-alikes."""
UNTRUE_COSTS = 5
WHOLE = 1.05
"""The most that shares of one thread can add up to, rounding included."""
HURT, HURT_WAIT_MS = Seen(60.0, 60.0, 5.0), 2.0
"""What users see when all three figures are bad, and the mean of a bystander's waits then."""


def _plain(figure: float) -> str:
    """A figure as people write it: three digits, or a whole number with its thousands apart."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


@dataclass(frozen=True)
class Judged:
    """A figure of an answer, the range that the lab measured (None: unknown here), and whether it is true."""

    named: Named
    range: tuple[float, float] | None
    true: bool

    @property
    def text(self) -> str:
        """The figure and the judgement on it, in one line."""
        if self.range is None:
            return f"{self.named.text}: the lab cannot measure it on this machine, so it counts as true"
        low, high = self.range
        unit = self.named.reading.unit
        told = f"{_plain(low)} {unit}" if low == high else f"{_plain(low)} to {_plain(high)} {unit}"
        return f"{self.named.text}: {'true' if self.true else 'not true'}, the lab measured {told}"


@dataclass(frozen=True)
class Judgement:
    """The judgement of one answer. `excluded` and `possible` are ids of look-alikes of the named cause."""

    figures: tuple[Judged, ...]
    shown: bool
    excluded: tuple[str, ...]
    possible: tuple[str, ...]

    @property
    def points(self) -> int:
        """Points of the answer if its cause is right, at least 0."""
        untrue = sum(not figure.true for figure in self.figures)
        return max(0, GUESS + (SHOWN if self.shown else 0) + self.worth_of_excluded - UNTRUE_COSTS * untrue)

    @property
    def worth_of_excluded(self) -> int:
        """Points for look-alikes ruled out: their share of all look-alikes, of `EXCLUDED` points."""
        alike = len(self.excluded) + len(self.possible)
        return round(EXCLUDED * len(self.excluded) / alike) if alike else EXCLUDED

    @property
    def is_a_guess(self) -> bool:
        """True if the evidence neither shows the cause nor rules out a look-alike."""
        return not self.shown and not self.excluded


def judge(
    cause: Cause,
    evidence: str,
    stretches: Sequence[Readings],
    lately: Readings,
    present: Collection[str] = (),
) -> Judgement:
    """Judge the evidence for a cause against the lab's own readings.

    `stretches` are readings over single stretches of the same minutes, `lately` over the latest stretches together.
    `present` are causes that are at work beside it: no true figure rules them out, and none has to.
    Raises `UsageError` for a reading that does not exist, or a figure without a number or a unit.
    """
    figures = tuple(_judged(named, [*stretches, lately]) for named in named_in(evidence))
    true = [figure.named for figure in figures if figure.true]
    usual = lately.as_usual()
    # Everybody knows what users see, so evidence need not name it, except for the answer that nothing is wrong.
    seen = hurt(usual) if cause.finds_health else usual.as_seen(lately.seen)
    shown = bool(true) and cause.evidence(put(true, seen)).found
    alike = [other for other in cause.alike if other not in present]
    possible = tuple(other for other in alike if _fits(CAUSES[other], true, usual))
    return Judgement(figures, shown, tuple(other for other in alike if other not in possible), possible)


def _judged(named: Named, stretches: Sequence[Readings]) -> Judged:
    seen = [value for stretch in stretches if (value := named.reading.of(stretch)) is not None]
    if not seen:
        return Judged(named, None, True)
    low, high = min(seen), max(seen)
    return Judged(named, (low, high), named.reading.may_be(named.value, low, high))


def hurt(of: Readings) -> Readings:
    """The readings as if users suffered in every way."""
    return replace(of.as_seen(HURT), wait_ms=HURT_WAIT_MS)


def typical(cause: Cause, of: Readings) -> Readings:
    """These readings with the figures that are typical of a cause, and with a symptom if it has one."""
    return put(named_in(cause.typical), of if cause.finds_health else hurt(of))


def _fits(cause: Cause, named: Sequence[Named], usual: Readings) -> bool:
    """Return whether this cause may have produced the figures."""
    if not named:
        return True
    of = put(named, typical(cause, usual))
    return cause.evidence(of).found and sum(spent.share for spent in of.commands.values()) <= WHOLE
