"""What a participant wrote and asked for, with times, and the points that are left. The notes are a file that stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from lab.blind.cause import Cause
from lab.blind.causes import find
from lab.errors import UsageError

FULL = 100
HINT_COSTS = (5, 10, 20)
WRONG_COSTS = 20
FEWEST_WORDS = 4
NOTE, HINT, ANSWER = "note", "hint", "answer"


@dataclass(frozen=True)
class Entry:
    """One line: unix time, what it is, and its text."""

    at: float
    kind: str
    text: str


@dataclass
class Journal:
    """The participant's side of a session. Methods raise `UsageError` for what makes no sense now."""

    cause: Cause
    file: Path
    clock: Callable[[], float] = time.time
    entries: list[Entry] = field(default_factory=list)
    hints: int = 0
    wrong: list[str] = field(default_factory=list)
    right: Entry | None = None

    def write(self, kind: str, text: str) -> Entry:
        """Keep a line, here and in the file."""
        entry = Entry(self.clock(), kind, " ".join(text.split()))
        self.entries.append(entry)
        at = datetime.fromtimestamp(entry.at).isoformat(sep=" ", timespec="seconds")
        with self.file.open("a") as file:
            file.write(f"{at}  {kind:<6}  {entry.text}\n")
        return entry

    def note(self, text: str) -> str:
        """Keep a note."""
        if not text.strip():
            raise UsageError('the note is empty: bin/lab blind note "hypothesis ...".')
        self.write(NOTE, text)
        return f"noted in {self.file}"

    def hint(self) -> str:
        """The next hint, which costs points."""
        if self.right:
            raise UsageError(
                "there is nothing left to hint at: you have the answer. `bin/lab blind reveal` ends it."
            )
        if self.hints == len(self.cause.hints):
            raise UsageError(
                f"there were {self.hints} hints, and you have had them all. Answer, or `bin/lab blind reveal`."
            )
        text, cost = self.cause.hints[self.hints], HINT_COSTS[self.hints]
        self.hints += 1
        self.write(HINT, f"{self.hints} of {len(self.cause.hints)}: {text}")
        return f"{text}\n({cost} points; {self.points} of {FULL} left)"

    def answer(self, text: str, evidence: str) -> str:
        """Whether the answer is right; a wrong one costs points, one without evidence is none."""
        cause = find(text)
        if self.right:
            raise UsageError(
                "you have answered rightly already. `bin/lab blind reveal` shows the whole of it."
            )
        if len(evidence.split()) < FEWEST_WORDS:
            raise UsageError(
                'an answer needs evidence: --evidence "what you measured, and what it rules out", in a sentence.'
            )
        right = cause is self.cause
        if not right:
            self.wrong.append(cause.id)
        entry = self.write(ANSWER, f"{cause.id} ({'right' if right else 'wrong'}), because: {evidence}")
        if right:
            self.right = entry
            return f"right. {self.points} of {FULL} points. `bin/lab blind reveal` shows the whole, and ends the scene."
        return f"no, that is not it. ({WRONG_COSTS} points; {self.points} of {FULL} left)"

    @property
    def points(self) -> int:
        """What is left of all points."""
        return max(0, FULL - sum(HINT_COSTS[: self.hints]) - WRONG_COSTS * len(self.wrong))

    @property
    def score(self) -> int:
        """What the session is worth: nothing without the right answer."""
        return self.points if self.right else 0
