"""A blind session that takes readings in place of a participant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab.blind.cause import FIND, LEVELS, Cause, Level
from lab.blind.readings import Readings
from lab.blind.scene import BlindStack, SessionScene
from lab.blind.session import Session


class Trial(Session):
    """Takes `looks` samples after the start, calls `inspect`, and ends without a reveal."""

    def __init__(
        self,
        cause: Cause | tuple[Cause, ...],
        folder: Path,
        looks: int = 1,
        inspect: Callable[[Trial], None] = lambda _: None,
        make: Callable[[Path], SessionScene] = BlindStack,
        task: str = FIND,
        level: Level = LEVELS[1],
    ) -> None:
        self.output: list[str] = []
        causes = (cause,) if isinstance(cause, Cause) else cause
        super().__init__(causes, 0, 60.0, folder, self.output.append, make=make, task=task, level=level)
        self._inspect = inspect
        self._looks = looks
        self.taken: Readings | None = None

    def _watch(self) -> None:
        for _ in range(self._looks):
            self._wait(5.0)
            self.observer.take_sample()
        self._inspect(self)
        self.taken = self.readings()

    def outcome(self) -> Readings:
        """Return the readings since the cause began."""
        assert self.taken is not None, "the trial did not run"
        return self.taken
