"""Simulates the turns of a server's loop under searches: a bystander's wait where no formula holds.

One turn executes every call that has arrived, and sends the replies at its end, as Redis and Valkey do. Each event has
one walk for each pattern, all begun at once; a walk asks for its next page after the reply to the last. Clients take
replies one after the other, `gap_s` for each. A bystander's request takes no time of its own: if it arrives in a turn,
it is answered at the end of the next turn, or at the end of this one if nothing else has arrived by then.

The simulation is a heap and a loop. A library for discrete events (SimPy) would have a process for every walk, and
would need a rule that a turn takes all waiting calls: more code than this, and another dependency.

It is deterministic: random moments come from a seed. Bystanders' requests come at evenly spread moments.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Moments = NDArray[np.float64]
MOMENTS = 100_000
"""Moments at which a bystander asks, over the whole simulated time."""


def arrivals(events_per_second: float, events: int, even: bool, seed: int) -> list[float]:
    """Return the moments at which the events arrive (s): at even distances, or at random moments (Poisson)."""
    if even:
        return [number / events_per_second for number in range(1, events + 1)]
    dice, now, found = random.Random(seed), 0.0, []
    for _ in range(events):
        now += dice.expovariate(events_per_second)
        found.append(now)
    return found


def turns(
    events: Sequence[float], patterns: int, pages: int, page_s: float, gap_s: float
) -> tuple[Moments, Moments]:
    """Return the beginnings and ends of all turns (s), until all events that arrive at these moments are done."""
    calls = [(moment, walk, pages) for moment in events for walk in range(patterns)]
    heapq.heapify(calls)
    begins: list[float] = []
    ends: list[float] = []
    now, number = 0.0, patterns
    while calls:
        now = max(now, calls[0][0])
        begins.append(now)
        took, unfinished = 0, []
        while calls and calls[0][0] <= now:
            left = heapq.heappop(calls)[2] - 1
            took += 1
            if left:
                unfinished.append(left)
        now += took * page_s
        ends.append(now)
        for place, left in enumerate(unfinished, start=1):
            number += 1  # calls of one moment are taken in the order in which they were sent
            heapq.heappush(calls, (now + place * gap_s, number, left))
    return np.array(begins), np.array(ends)


def waits(begins: Moments, ends: Moments, until: float, count: int = MOMENTS) -> Moments:
    """Return the waits (s) of bystanders at evenly spread moments from 0 to `until`; the turns are those of `turns`."""
    moments = (np.arange(count) + 0.5) * until / count
    turn = np.maximum(np.searchsorted(begins, moments, side="right") - 1, 0)
    within = (begins[turn] <= moments) & (moments < ends[turn])
    following = np.minimum(turn + 1, len(begins) - 1)
    follows_at_once = begins[following] <= ends[turn]
    answered = np.where(follows_at_once, ends[following], ends[turn])
    return np.where(within, answered - moments, 0.0)


def wait_s(
    events_per_second: float,
    patterns: int,
    pages: int,
    page_s: float,
    gap_s: float,
    events: int,
    even: bool,
    seed: int = 1,
    percentile: float = 99.0,
) -> float:
    """A percentile of a bystander's wait (s) from the first of so many events to the last one's arrival."""
    moments = arrivals(events_per_second, events, even, seed)
    begins, ends = turns(moments, patterns, pages, page_s, gap_s)
    return float(np.percentile(waits(begins, ends, moments[-1]), percentile))
