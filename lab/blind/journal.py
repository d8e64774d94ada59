"""Keeps a participant's notes, hints and answers with their times, and counts the points. The notes stay in a file.

The right cause earns points, and so do figures that show it and rule out its look-alikes (`lab.blind.judging`), and
hypotheses noted before the answer. Hints, wrong answers and time cost points. Where the task is a cure, the cure earns
points, and a lever that did not cure costs some. If two causes are at work together, each is worth half.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from lab.blind.cause import CURE, FIND, Cause
from lab.blind.causes import find
from lab.blind.checking import CureOutcome
from lab.blind.judging import EXCLUDED, GUESS, SHOWN, UNTRUE_COSTS, AnswerJudgement
from lab.errors import UsageError

HYPOTHESIS_WORTH, HYPOTHESES = 5, 2
"""Points for a hypothesis noted before the answer, and the most hypotheses that count: one to refute, one to keep."""
MOST_POINTS = GUESS + SHOWN + EXCLUDED + HYPOTHESIS_WORTH * HYPOTHESES
HINT_COSTS = (5, 10, 20)
WRONG_COSTS = 20
CURE_WORTH, NO_CURE_COSTS = 25, 10
"""Points for the cure, and the cost of each lever whose check found no cure."""
UNHURRIED_MIN, SLOWEST_COSTS = 15, 10
"""Minutes without cost; each further minute costs a point, up to `SLOWEST_COSTS` points."""
FEWEST_WORDS = 4
NOTE, HYPOTHESIS, HINT, ANSWER, LEVER = "note", "hypothesis", "hint", "answer", "lever"
Judge = Callable[[Cause, str], AnswerJudgement]


@dataclass(frozen=True)
class JournalEntry:
    """A line of the journal: unix time, kind and text."""

    at: float
    kind: str
    text: str


@dataclass
class Journal:
    """The participant's side of a session. Methods raise `UsageError` when a request makes no sense at this point.

    `hints` counts the given hints by cause, `judgements` has the right answers by cause, and `right` is the entry of
    the answer that named the last cause.
    """

    causes: tuple[Cause, ...]
    file: Path
    judge: Judge
    clock: Callable[[], float] = time.time
    entries: list[JournalEntry] = field(default_factory=list)
    hints: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    hypotheses: list[str] = field(default_factory=list)
    judgements: dict[str, AnswerJudgement] = field(default_factory=dict)
    right: JournalEntry | None = None
    began: float = 0.0
    task: str = FIND
    outcomes: list[CureOutcome] = field(default_factory=list)

    def write(self, kind: str, text: str) -> JournalEntry:
        """Add a line to the entries and to the file."""
        entry = JournalEntry(self.clock(), kind, " ".join(text.split()))
        self.entries.append(entry)
        at = datetime.fromtimestamp(entry.at).isoformat(sep=" ", timespec="seconds")
        with self.file.open("a") as file:
            file.write(f"{at}  {kind:<10}  {entry.text}\n")
        return entry

    def note(self, text: str, hypothesis: str = "") -> str:
        """Keep a note. With `hypothesis`, the id of the supposed cause, the text is optional."""
        if hypothesis:
            cause = find(hypothesis)
            self.write(HYPOTHESIS, f"{cause.id}{f': {text}' if text.strip() else ''}")
            # A cause that was named already is not a hypothesis.
            if cause.id not in (*self.hypotheses, *self.judgements) and not self.right:
                self.hypotheses.append(cause.id)
        elif not text.strip():
            raise UsageError('the note is empty: bin/lab blind note "...", or note --hypothesis CAUSE.')
        else:
            self.write(NOTE, text)
        return f"noted in {self.file}"

    def hint(self) -> str:
        """Return the next hint, which costs points, of the first cause that is not named yet and has hints left."""
        if self.right:
            raise UsageError(
                "there are no more hints: you have the answer. `bin/lab blind reveal` ends the session."
            )
        for cause in self.causes:
            given = self.hints.get(cause.id, 0)
            if cause.id not in self.judgements and given < len(cause.hints):
                break
        else:
            raise UsageError(
                f"there were {sum(self.hints.values())} hints, and you have had them all. Answer, or "
                "`bin/lab blind reveal`."
            )
        text, cost = cause.hints[given], HINT_COSTS[given]
        self.hints[cause.id] = given + 1
        self.write(HINT, f"{given + 1} of {len(cause.hints)}: {text}")
        return f"{text}\n({cost} points; {self.points} of {self.full} left)"

    def answer(self, answer: str, evidence: str) -> str:
        """Return whether an answer is right, and the worth of its evidence, as text. Refuses one without evidence."""
        cause = find(answer)
        if self.right:
            raise UsageError(
                "your answer was right already. `bin/lab blind reveal` shows the cause with its evidence."
            )
        if cause.id in self.judgements:
            raise UsageError(f"{cause.id} was right already. Another cause is at work, too.")
        if len(evidence.split()) < FEWEST_WORDS:
            raise UsageError(
                'an answer needs evidence: --evidence "link.p50 = 42 ms; server.p50 = 0.1 ms", and words if you like. '
                "`bin/lab blind readings` lists what can be named."
            )
        judgement = self.judge(cause, evidence)
        figures = [f"  {figure.text}" for figure in judgement.figures]
        right = cause in self.causes
        entry = self.write(ANSWER, f"{cause.id} ({'right' if right else 'wrong'}), because: {evidence}")
        if not right:
            self.wrong.append(cause.id)
            reply = f"no, that is not it. ({WRONG_COSTS} points; {self.points} of {self.full} left)"
            return "\n".join([reply, *figures, *self.cure_lines()])
        self.judgements[cause.id] = judgement
        if len(self.judgements) < len(self.causes):
            reply = f"right, and another cause is at work, too. ({self.points} of {self.full} points left)"
            return "\n".join([reply, *figures, *self.worth(cause.id)])
        self.right = entry
        reply = f"right. {self.points} of {self.full} points. `bin/lab blind reveal` ends the scene and shows why."
        return "\n".join(
            [reply, *figures, *self.worth(cause.id), *self.hypothesis_lines(), *self.cure_lines()]
        )

    def add_outcome(self, outcome: CureOutcome) -> str:
        """Add the outcome of a lever's check; return it as text, with the points."""
        failed = self.failed_levers
        self.outcomes.append(outcome)
        costs = f" ({NO_CURE_COSTS} points)" if self.failed_levers > failed else ""
        result = "cured" if outcome.cured else f"not cured{costs}"
        text = f"{outcome.lever}: {result}. {outcome.text}"
        self.write(LEVER, text)
        return text

    @property
    def cured(self) -> CureOutcome | None:
        """The first outcome that says that the scene is cured, or None."""
        return next((outcome for outcome in self.outcomes if outcome.cured), None)

    def cure_lines(self) -> list[str]:
        """Return a line on whether the scene is cured, by which lever and after how long; none if a cure is no task."""
        if self.task != CURE:
            return []
        if not (outcome := self.cured):
            return ["Not cured. `bin/lab blind levers` lists what you can do."]
        pulled_s, healthy_s = outcome.pulled_at - self.began, outcome.healthy_after_s or 0.0
        return [
            f"Cured by {outcome.lever}, pulled {pulled_s:.0f} s after the cause began; "
            f"users were well {healthy_s:.0f} s later."
        ]

    def worth(self, cause: str) -> list[str]:
        """Return lines that explain the points of the right answer for a cause; none without such an answer."""
        judgement = self.judgements.get(cause)
        if not judgement:
            return []
        lines = []
        if judgement.is_a_guess:
            lines.append(
                f"The name is right, but no figure separates it from other causes: the {GUESS} points of a guess."
            )
        elif judgement.shown:
            lines.append("The figures show the cause.")
        else:
            lines.append("The figures do not show the cause yet: other causes would give the same figures.")
        if judgement.excluded:
            lines.append(f"They rule out {', '.join(judgement.excluded)}.")
        lines += [f"Still possible is {other}: {find(cause).alike[other]}" for other in judgement.possible]
        return lines

    def hypothesis_lines(self) -> list[str]:
        """Return a line if fewer hypotheses were noted than earn points; none before all causes are named."""
        if not self.right or len(self.hypotheses) >= HYPOTHESES:
            return []
        return [
            f"{len(self.hypotheses)} of {HYPOTHESES} hypotheses were noted before the answer "
            "(bin/lab blind note --hypothesis CAUSE)."
        ]

    def account(self) -> list[tuple[str, int]]:
        """Return the items of the score: rows of (item, points), negative for costs."""
        rows = []
        for cause, judgement in self.judgements.items():
            alike = len(judgement.excluded) + len(judgement.possible)
            untrue = sum(not figure.true for figure in judgement.figures)
            parts = [
                ("the right name", GUESS),
                ("figures that show the cause", SHOWN if judgement.shown else 0),
                (f"{len(judgement.excluded)} of {alike} look-alikes ruled out", judgement.worth_of_excluded),
                (f"{untrue} figures that are not true", -UNTRUE_COSTS * untrue),
            ]
            if len(self.causes) == 1:
                rows += parts
            else:
                rows.append(
                    (
                        f"{cause}: {', '.join(f'{item} {n}' for item, n in parts)}; halved",
                        self._share(judgement),
                    )
                )
        if self.judgements:
            counted = min(HYPOTHESES, len(self.hypotheses))
            item = f"{counted} of {HYPOTHESES} hypotheses noted before the answer"
            rows.append((item, HYPOTHESIS_WORTH * counted))
        if self.task == CURE:
            rows += [
                ("the cure", CURE_WORTH if self.cured else 0),
                (f"{self.failed_levers} levers that did not cure", -NO_CURE_COSTS * self.failed_levers),
            ]
        given = sum(self.hints.values())
        return [
            *rows,
            (f"{given} of {sum(len(cause.hints) for cause in self.causes)} hints", -self._hint_cost),
            (f"{len(self.wrong)} wrong answers", -WRONG_COSTS * len(self.wrong)),
            (f"{self.minutes:.0f} minutes", -self.time_cost),
        ]

    def _share(self, judgement: AnswerJudgement) -> int:
        """Return the points of a right answer: all of them, or half where two causes are at work."""
        return round(judgement.points / len(self.causes))

    @property
    def failed_levers(self) -> int:
        """Levers that did not cure and cost points. Each of two causes needs its own, so the first failure is free."""
        failed = sum(not outcome.cured for outcome in self.outcomes)
        return max(0, failed - (len(self.causes) - 1))

    @property
    def _hint_cost(self) -> int:
        return sum(sum(HINT_COSTS[:given]) for given in self.hints.values())

    @property
    def full(self) -> int:
        """The most points that a session can earn."""
        return MOST_POINTS + (CURE_WORTH if self.task == CURE else 0)

    @property
    def minutes(self) -> float:
        """Minutes from the beginning of the cause to the right answer, or until now without one."""
        return ((self.right.at if self.right else self.clock()) - self.began) / 60 if self.began else 0.0

    @property
    def time_cost(self) -> int:
        """Points that the time costs."""
        return int(min(SLOWEST_COSTS, max(0.0, self.minutes - UNHURRIED_MIN)))

    @property
    def deducted(self) -> int:
        """Points that hints, wrong answers, levers without a cure and time cost."""
        failed = NO_CURE_COSTS * self.failed_levers
        return self._hint_cost + WRONG_COSTS * len(self.wrong) + failed + self.time_cost

    @property
    def points(self) -> int:
        """Points that can still be earned, or were earned if the answer is right; less all deductions, at least 0."""
        if self.right:
            return max(0, self._earned - self.deducted)
        whole = GUESS + SHOWN + EXCLUDED
        missing = sum(
            round(whole / len(self.causes)) - self._share(judgement) for judgement in self.judgements.values()
        )
        return max(0, self.full - missing - self.deducted)

    @property
    def _earned(self) -> int:
        worth = sum(self._share(judgement) for judgement in self.judgements.values())
        worth += HYPOTHESIS_WORTH * min(HYPOTHESES, len(self.hypotheses)) if self.judgements else 0
        return worth + (CURE_WORTH if self.cured else 0)

    @property
    def score(self) -> int:
        """Points of the session. Without a right answer only a cure earns some."""
        return max(0, self._earned - self.deducted)
