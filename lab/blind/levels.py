"""The levels of blind sessions: readings that are allowed, healthy values that are shown, causes and task."""

from __future__ import annotations

from dataclasses import dataclass

from lab.blind.cause import CURE, FIND


@dataclass(frozen=True)
class Level:
    """A level. `pings`: `look ping` is allowed. `figures`: healthy values are shown. `causes` and `task`: defaults."""

    pings: bool
    figures: bool
    causes: int
    task: str


LEVELS = {
    1: Level(pings=True, figures=True, causes=1, task=FIND),
    2: Level(pings=False, figures=False, causes=1, task=FIND),
    3: Level(pings=False, figures=False, causes=2, task=CURE),
}
MOST_CAUSES = 2
