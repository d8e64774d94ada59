"""Judges the evidence of an answer: is it true, does it show the cause, and which look-alikes does it rule out?

A figure is true if it agrees with the lab's own measurements of the same minutes (`Reading.agrees`). The true figures
are put into the readings of a healthy scene. If the cause is found there, the figures show it by themselves. They are
also put into the typical readings of each look-alike. If the look-alike is no longer found there, it is ruled out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from lab.blind.cause import Cause
from lab.blind.causes import CAUSES
from lab.blind.figures import NamedFigure, figures_in, with_figures
from lab.blind.readings import Readings, UserFigures

GUESS, SHOWN, EXCLUDED = 40, 25, 25
"""Points for the right cause alone, for figures that show it, and for figures that rule out all its look-alikes."""
UNTRUE_COSTS = 5
WHOLE = 1.05
"""The most that shares of one thread can add up to, rounding included."""
SYMPTOMS, SYMPTOM_WAIT_MS = UserFigures(60.0, 60.0, 5.0), 2.0
"""Figures of users that are all bad, and the mean of a bystander's waits then."""


def _number(figure: float) -> str:
    """Return a figure with three significant digits, or from 100 on as a whole number with thousands separators."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


@dataclass(frozen=True)
class JudgedFigure:
    """A figure of an answer, the range that the lab measured (None: unknown here), and whether it is true."""

    figure: NamedFigure
    range: tuple[float, float] | None
    true: bool

    @property
    def text(self) -> str:
        """The figure and its judgement in one line."""
        if self.range is None:
            return f"{self.figure.text}: the lab cannot measure it on this machine, so it counts as true"
        low, high = self.range
        unit = self.figure.reading.unit
        measured = f"{_number(low)} {unit}" if low == high else f"{_number(low)} to {_number(high)} {unit}"
        return f"{self.figure.text}: {'true' if self.true else 'not true'}, the lab measured {measured}"


@dataclass(frozen=True)
class AnswerJudgement:
    """The judgement of one answer. `excluded` and `possible` are ids of look-alikes of the named cause."""

    figures: tuple[JudgedFigure, ...]
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
    spans: Sequence[Readings],
    latest: Readings,
    present: Collection[str] = (),
) -> AnswerJudgement:
    """Judge the evidence for a cause against the lab's own readings.

    `spans` are readings over single spans of the same minutes, `latest` over the latest spans together. `present` are
    other causes at work: true figures cannot rule them out, and need not. Raises `UsageError` for a reading that does
    not exist, or a figure without a number or a unit.
    """
    judged = tuple(_judged(figure, [*spans, latest]) for figure in figures_in(evidence))
    true_figures = [each.figure for each in judged if each.true]
    healthy = latest.as_healthy()
    # The session shows the users' figures, so evidence need not name them, except for the answer that nothing is wrong.
    now = with_symptoms(healthy) if cause.finds_health else healthy.with_user_figures(latest.user_figures)
    shown = bool(true_figures) and cause.evidence(with_figures(now, true_figures)).found
    alike = [other for other in cause.alike if other not in present]
    possible = tuple(other for other in alike if _fits(CAUSES[other], true_figures, healthy))
    return AnswerJudgement(judged, shown, tuple(other for other in alike if other not in possible), possible)


def _judged(figure: NamedFigure, spans: Sequence[Readings]) -> JudgedFigure:
    measured = [value for span in spans if (value := figure.reading.value_in(span)) is not None]
    if not measured:
        return JudgedFigure(figure, None, True)
    low, high = min(measured), max(measured)
    return JudgedFigure(figure, (low, high), figure.reading.agrees(figure.value, low, high))


def with_symptoms(readings: Readings) -> Readings:
    """Return a copy of the readings in which all figures of users are bad."""
    return replace(readings.with_user_figures(SYMPTOMS), wait_ms=SYMPTOM_WAIT_MS)


def typical(cause: Cause, readings: Readings) -> Readings:
    """Return a copy of the readings with the typical figures of a cause, and with a symptom if it has one."""
    return with_figures(
        readings if cause.finds_health else with_symptoms(readings), figures_in(cause.typical)
    )


def _fits(cause: Cause, figures: Sequence[NamedFigure], healthy: Readings) -> bool:
    """Return whether this cause may have produced the figures."""
    if not figures:
        return True
    readings = with_figures(typical(cause, healthy), figures)
    return (
        cause.evidence(readings).found and sum(spent.share for spent in readings.commands.values()) <= WHOLE
    )
