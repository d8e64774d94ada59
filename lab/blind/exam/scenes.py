"""Which scenes an examination has: drawn from a seed, so that several candidates can be given the same."""

from __future__ import annotations

import random
from dataclasses import dataclass

from lab.blind.cause import Cause
from lab.blind.causes import CAUSES, PAIRS
from lab.errors import UsageError

TWO = 2
PAIR_EVERY = 4
"""In a mixed examination every such scene has two causes."""


@dataclass(frozen=True)
class Scene:
    """One scene: its number from 1 on, and the causes that are at work."""

    number: int
    causes: tuple[Cause, ...]

    @property
    def kind(self) -> str:
        """The group in which its result is counted: one cause, two causes, or nothing."""
        if len(self.causes) > 1:
            return "two causes"
        return "nothing" if self.causes[0].finds_health else "one cause"


def draw(seed: int, number: int, causes: int | None) -> list[Scene]:
    """Scenes of a seed. `causes`: 1 or 2 in each; None: two in every fourth.

    A cause does not come again before all have come, and neither does a pair. Raises `UsageError` for fewer than one.
    """
    if number < 1:
        raise UsageError(f"--scenes must be 1 or more, not {number}.")
    chance = random.Random(seed)
    single, double = _Pile([(name,) for name in CAUSES], chance), _Pile(list(PAIRS), chance)
    scenes = []
    for at in range(1, number + 1):
        two = causes == TWO or (causes is None and at % PAIR_EVERY == 0)
        names = (double if two else single).next()
        scenes.append(Scene(at, tuple(CAUSES[name] for name in names)))
    return scenes


class _Pile:
    """Cards that are shuffled anew whenever all of them were drawn."""

    def __init__(self, cards: list[tuple[str, ...]], chance: random.Random) -> None:
        self._cards, self._chance = sorted(cards), chance
        self._left: list[tuple[str, ...]] = []

    def next(self) -> tuple[str, ...]:
        if not self._left:
            self._left = self._chance.sample(self._cards, len(self._cards))
        return self._left.pop()
