"""Judges one cell of the fault matrix from what its load recorded: which events were lost, which entries were stale.

Every request is recorded with the moments (monotonic seconds) at which it began and ended. A read that found nothing
computes the value anew and caches it. So what a later read finds in the cache was computed by one of the requests
before it, and at the latest when that request ended. From this follows, without a look into any process:

- An entry is **surely old** for an event if every request that may have computed it had ended before the event was
  sent. A request that overlaps the event proves nothing, so nothing is accused wrongly.
- An accepted event is **lost** if it is still in the outbox when the backlog should be empty, or if a read after that
  finds a surely old entry of its user.
- A read is **stale** if it began after its event was known to be handled, and finds a surely old entry.
- A surely old entry is **late** instead of lost or stale where the layout admits it: a frozen server carries out a put
  when it wakes up, although the client gave up long before, and perhaps after the event (`app.layouts`: "computed
  before the event and put after it"). It is late if one of the requests that may have computed it overlaps the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

CACHES = ("put", "miss", "failed")
"""Requests that may leave a value in the cache. One without an answer may have been carried out all the same."""


@dataclass
class Event:
    """One event of a user. `end`: when it was answered; `number`: its id, None if it was not accepted; `handled`: when
    it was first known to be handled.
    """

    user: int
    begin: float
    end: float
    number: int | None
    handled: float | None = None


@dataclass(frozen=True)
class Read:
    """One request for an entry. `result`: hit, miss, bypass or failed, and put where entries are cached in bulk."""

    user: int
    name: str
    begin: float
    end: float
    result: str


@dataclass(frozen=True)
class Window:
    """When the fault began and ended. `admits`: a put under way meanwhile may be carried out after the event."""

    begin: float
    end: float
    admits: bool = False

    def holds(self, begin: float, end: float) -> bool:
        """True if the interval overlaps the fault."""
        return begin < self.end and end > self.begin


@dataclass
class Found:
    """What a cell shows. `lost`: users whose accepted event was lost; `stale` and `late`: numbers of reads."""

    lost: set[int] = field(default_factory=set)
    stale: int = 0
    late: int = 0


def judge(
    events: Iterable[Event],
    reads: Iterable[Read],
    fault: Window,
    drained: float | None,
    left: Collection[int] = (),
    given_up: Collection[int] = (),
) -> Found:
    """Judge a cell.

    `drained`: when the outbox was empty after the load; `left`: users of the events in it if it never was.
    `given_up`: users whose events went with a state folder; they are counted elsewhere. (A user has one event.)
    """
    found = Found(lost=set(left) - set(given_up))
    by_entry: dict[tuple[int, str], list[Read]] = defaultdict(list)
    for read in sorted(reads, key=lambda read: read.begin):
        by_entry[read.user, read.name].append(read)
    accepted = {event.user: event for event in events if event.number is not None}
    for (user, _), history in by_entry.items():
        event = accepted.get(user)
        if event is None or user in given_up:
            continue
        handled = event.handled if event.handled is not None else drained
        for read in history:
            if read.result != "hit" or handled is None or read.begin <= handled:
                continue
            sources = [other for other in history if other.result in CACHES and other.begin < read.end]
            if any(other.end >= event.begin for other in sources):
                continue  # perhaps computed after the event
            if fault.admits and any(fault.holds(other.begin, other.end) for other in sources):
                found.late += 1
                continue
            found.stale += 1
            if drained is not None and read.begin > drained:
                found.lost.add(user)
    return found
