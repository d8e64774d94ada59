"""One scene of an examination: a blind session whose requests are counted, and which a program may work on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.blind.causes import CAUSES
from lab.blind.diagnostics import HISTORY, KEY, KINDS
from lab.blind.exam.candidates import Program
from lab.blind.exam.scenes import Scene
from lab.blind.figures import FIXED, OF_COMMANDS
from lab.blind.levels import Level
from lab.blind.levers import LEVERS
from lab.blind.scene import SceneStack
from lab.blind.session import Say, Session
from lab.errors import LabError
from lab.stacks.processes import uninterrupted

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Row:
    """The result of one scene.

    `answers`: the causes that were named, in order; `right`: all that are at work were named, and nothing else;
    `wrong`: number of answers that name none of them; `points` of `full`, which is 0 where points do not matter;
    `minutes` from the beginning of the cause to the last right answer, or to the end; `cured`: None where that was not
    the task; `ended`: why the candidate ended early, or why there was no scene. `held`: the scene came up.
    """

    number: int
    kind: str
    causes: tuple[str, ...]
    answers: tuple[str, ...] = ()
    right: bool = False
    wrong: int = 0
    points: int = 0
    full: int = 0
    minutes: float = 0.0
    hints: int = 0
    cured: bool | None = None
    ended: str = ""
    held: bool = True

    @property
    def good(self) -> bool:
        """True if all causes were named, and where that was asked, cured."""
        return self.right and self.cured is not False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Sitting(Session):
    """A session of an examination. Without a `candidate` a person works on it in a second terminal."""

    def __init__(
        self,
        scene: Scene,
        of: int,
        minutes: float,
        folder: Path,
        say: Say,
        make: Callable[[Path], SceneStack],
        task: str,
        level: Level,
        candidate: Program | None,
    ) -> None:
        super().__init__(scene.causes, None, minutes, folder, say, make=make, task=task, level=level)
        self._scene, self._of, self._candidate = scene, of, candidate
        self._answers: list[str] = []
        self._ended_early = ""

    def reply(self, words: dict[str, Any]) -> str:
        """Answer a request, and keep which causes were named. Raises `LabError`."""
        said = super().reply(words)
        if words["verb"] == "answer":
            self._answers.append(str(words["cause"]))
        return said

    def _watch(self) -> None:
        if self._candidate is None:
            super()._watch()
            return
        thread = threading.Thread(target=self._sit, name="candidate", daemon=True)
        thread.start()
        try:
            super()._watch()
        finally:
            with uninterrupted():
                self._candidate.stop()
                thread.join(PATIENCE_S)

    def _sit(self) -> None:
        """Let the candidate work, then reveal, which ends the scene."""
        assert self._candidate is not None
        try:
            self._ended_early = self._candidate.sit(self.paper(), self.reply)
            if not self._ended.is_set():
                self.reply({"verb": "reveal"})
        except LabError as error:
            self._ended_early = str(error)
        except Exception as error:  # a fault of the lab in one scene must not keep the next from its turn
            self._ended_early = f"a fault in the lab itself, {error!r}"
        finally:
            self._ended.set()

    def paper(self) -> dict[str, Any]:
        """What a program is told at the beginning of the scene."""
        places = self.stack.shown()
        usual = {
            "page_p99_ms": self.healthy.page_ms,
            "get_p99_ms": self.healthy.get_ms,
            "oldest_s": self.healthy.oldest_s,
        }
        return {
            "scene": self._scene.number,
            "of": self._of,
            "complaint": self._announced,
            "task": self._task,
            "causes": len(self.causes),
            "seconds": 60 * self._minutes,
            "server": f"{places['server']}/0",
            "link": self.stack.link_url(),
            "places": places,
            "usual": usual if self._level.figures else None,
            "answers": {cause.id: cause.line for cause in CAUSES.values()},
            "looks": [
                what for what in ("users", HISTORY, *KINDS, KEY) if what != "ping" or self._level.pings
            ],
            "readings": {
                name: {"unit": unit, "meaning": meaning}
                for name, unit, meaning in (
                    *((each.name, each.unit, each.meaning) for each in FIXED.values()),
                    *((name, unit, meaning) for name, unit, meaning, _ in OF_COMMANDS),
                )
            },
            "levers": {lever.form: lever.meaning for lever in LEVERS.values()},
        }

    def row(self, ended: str = "") -> Row:
        """The result, after `run`. `ended`: why the scene ended early. Without a beginning there was no scene."""
        if not self.begun_at:
            names = tuple(cause.id for cause in self.causes)
            return Row(self._scene.number, self._scene.kind, names, ended=ended, held=False)
        journal = self.journal
        return Row(
            self._scene.number,
            self._scene.kind,
            tuple(cause.id for cause in self.causes),
            tuple(self._answers),
            journal.right is not None and not journal.wrong,
            len(journal.wrong),
            journal.score,
            journal.full,
            round(journal.minutes, 1),
            sum(journal.hints.values()),
            None if not journal.cure_lines() else journal.cured is not None,
            ended or self._ended_early,
        )
