"""The moments at which the machine let nobody run."""

from __future__ import annotations

import threading
import time

STALL_TICK_S, STALL_S = 0.01, 0.06
"""How often a stall of the machine is looked for, and from which length on it is one: twice the healthy p99 of a slow
machine."""
WINDOW_S = 10.0
"""Seconds over which the scene's p99 is taken."""


class Stalls(threading.Thread):
    """Notes, as a context, the moments at which this machine let nobody run: a sleep that ends far too late.

    p99 is that of ten seconds, so one stall of a tenth of a second makes it bad for that long, whatever the cache does.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.at: list[float] = []
        self.lengths: list[float] = []
        self._ended = threading.Event()

    def run(self) -> None:
        """Sleep again and again until the context ends."""
        while True:
            due = time.monotonic() + STALL_TICK_S
            if self._ended.wait(STALL_TICK_S):
                return
            late = time.monotonic() - due
            if late > STALL_S:
                self.at.append(due + late)
                self.lengths.append(late)

    def undisturbed(self, began: float, took: float) -> float:
        """Of `took` seconds since `began` (of the monotonic clock) those in which no stall made p99 bad by itself.

        A stall is in the p99 for `WINDOW_S`. Stalls in the same ten seconds are counted once.
        """
        spoiled, end = 0.0, 0.0
        for at in sorted(self.at):
            first = max(at - began, end)
            end = max(end, min(at - began + WINDOW_S, took))
            spoiled += max(0.0, end - first)
        return took - spoiled

    def __enter__(self) -> Stalls:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self.join()
