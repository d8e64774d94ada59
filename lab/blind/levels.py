"""How much a blind session helps, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass

from lab.blind.cause import CURE, FIND


@dataclass(frozen=True)
class Level:
    """`pings`: `look ping` may be asked, and `figures`: what was usual is told. `causes` and `task`: unless chosen."""

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
