"""Counters that go on where the server sets its own back: a participant may type CONFIG RESETSTAT."""

from __future__ import annotations


class Onward:
    """What was counted since the first reading, and before it, by name."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._total: dict[str, float] = {}

    def read(self, name: str, value: float) -> float:
        """The total after a reading. A value below the last one was set back to zero before, and counts from there."""
        last = self._last.get(name, 0.0)
        self._last[name] = value
        self._total[name] = self._total.get(name, 0.0) + (value if value < last else value - last)
        return self._total[name]
