"""Judges a history of the cache: reads, puts, events and their handling, each with its begin and end.

The habit is Jepsen's: first a history, then a checker that sees nothing else. No search for an order of the operations
is needed, because one number gives the order. Each event of a user first raises the user's *version*, as an order
changes the data before it is announced; each put remembers the version it read when it began to compute. So a value is
older than an event exactly if its version is lower. The rest is a comparison of intervals within one user. All times
are seconds of the machine's monotonic clock, which all its processes share.

What is accused, of an event `e`, a put `p`, a read `r` and a handling `h` (one carried out attempt of a strategy):

- **lost event**: `e` was accepted, and is still in the outbox when all should be handled; or it has left the outbox,
  and no handling of its user lies between the moment it was sent and the moment it was seen to be handled.
- **stale read**: `r` serves the value of `p`, which is older than `e`; `r` began after `e` was seen to be handled; and
  `p` had ended before a handling of `e` began. That handling has forgotten the entry. Also: `r` began later than one
  TTL after `p` ended.
- **lost index entry**: an entry that no index set of its user names, seen in one transaction (`bench.history_load`).
- **old epoch**: `r` serves a value put in another epoch or layout than the one `r` read in; or, under `generation`, any
  value older than an event that was seen to be handled before `r` began: the number was read old.
- **invented**: `r` serves a value that no put of the history wrote there before.

Not accused, but counted, is the **race of cache-aside** (`app.cache`): `r` serves the value of `p`, which is older
than `e`, but `p` had not ended when the last handling of `e` began. The put may have come after the deletes. Its bound
is one TTL: later than that the read is stale. `generation` does not have it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS = ("lost event", "stale read", "lost index entry", "old epoch", "invented")
CLOCKS_S = 0.2
"""A put's TTL ends by the server's wall clock, which it reads every few milliseconds only: so much is tolerated."""
SHOWN = 5
"""Accusations of a kind that are kept in words; all are counted."""


class EventRecord(NamedTuple):
    """An event. `version`: of the user's data from it on (1, 2, ...); `begin`: when it was sent; `accepted`: False if
    it was refused; `handled`: when it was first seen to have left the outbox, None if it never was.
    """

    version: int
    begin: float
    accepted: bool
    handled: float | None


class Handling(NamedTuple):
    """A strategy carried out for a user, from beginning to end."""

    begin: float
    end: float


class Put(NamedTuple):
    """A value computed and put. `number`: its own, never 0; `version`: of the data it was computed from; `end`:
    infinity if the put failed, because the server may have it all the same.
    """

    number: int
    name: int
    layout: str
    epoch: int
    version: int
    begin: float
    end: float


class Read(NamedTuple):
    """A read that found a value. `source`: the number of the put that wrote it; `layout` and `epoch`: where it looked.

    It began before it learned the epoch and, under `generation`, the user's number.
    """

    name: int
    layout: str
    epoch: int
    source: int
    begin: float
    end: float


class UserHistory(NamedTuple):
    """All that happened to one user's entries."""

    user: int
    events: Sequence[EventRecord]
    handlings: Sequence[Handling]
    puts: Sequence[Put]
    reads: Sequence[Read]


@dataclass
class Judgement:
    """The faults found in histories. `accused` counts by kind; `examples` has some of each in words.

    `raced`: reads that served a value of the race; `late`: how many such values there were; `longest_s`: how long one
    of them was served, counted from its put's end or from the event's, whichever came later.
    """

    accused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    raced: int = 0
    late: int = 0
    longest_s: float = 0.0

    def accuse(self, kind: str, words: str) -> None:
        """Count an accusation."""
        self.accused[kind] += 1
        if len(self.examples[kind]) < SHOWN:
            self.examples[kind].append(words)

    @property
    def clean(self) -> bool:
        """True if nothing was accused."""
        return not any(self.accused.values())


def judge(histories: Iterable[UserHistory], ttl_s: float) -> Judgement:
    """Judge the histories of all users."""
    found = Judgement()
    for history in histories:
        swept = _judge_events(history, found)
        _judge_reads(history, swept, ttl_s, found)
    return found


def _judge_events(history: UserHistory, found: Judgement) -> list[float]:
    """Accuse lost events. For each event: when the last of its handlings began; infinity for one that was lost."""
    handlings = sorted(history.handlings)
    begins = [handling.begin for handling in handlings]
    swept = []
    for number, event in enumerate(history.events, start=1):
        if event.version != number:
            raise ValueError(f"user {history.user}: event {number} has the version {event.version}")
        last = float("inf")
        handled = event.handled
        if handled is not None:
            first, beyond = bisect_left(begins, event.begin), bisect_left(begins, handled)
            own = [handling.begin for handling in handlings[first:beyond] if handling.end <= handled]
            last = max(own, default=last)
        if event.accepted and last == float("inf"):
            fate = "still in the outbox" if handled is None else "gone from the outbox, never carried out"
            found.accuse("lost event", f"user {history.user}, event {number}: {fate}")
        swept.append(last)
    return swept


def _judge_reads(history: UserHistory, swept: Sequence[float], ttl_s: float, found: Judgement) -> None:
    puts = {put.number: put for put in history.puts}
    late = set()
    for read in history.reads:
        where = f"user {history.user}, entry {read.name}, read at {read.begin:.4f} s"
        put = puts.get(read.source)
        if put is None or put.name != read.name or put.begin > read.end:
            found.accuse("invented", f"{where}: no put wrote this value there")
            continue
        if (put.layout, put.epoch) != (read.layout, read.epoch):
            found.accuse(
                "old epoch",
                f"{where} in epoch {read.epoch} ({read.layout}): put in epoch {put.epoch} ({put.layout})",
            )
            continue
        if read.begin > put.end + ttl_s + CLOCKS_S:
            beyond = read.begin - put.end - ttl_s
            found.accuse("stale read", f"{where}: {beyond:.3f} s after its TTL")
            continue
        newer = [
            (event.handled, begun)
            for event, begun in zip(history.events[put.version :], swept[put.version :], strict=True)
            if event.handled is not None and event.handled <= read.begin
        ]
        if not newer:
            continue
        handled = min(moment for moment, _ in newer)
        words = (
            f"{where}: version {put.version}, put from {put.begin:.4f} to {put.end:.4f} s, "
            f"event {put.version + 1} or a later one was handled at {handled:.4f} s"
        )
        if read.layout == "generation":
            found.accuse("old epoch", words)
        elif put.end <= max(begun for _, begun in newer):
            found.accuse("stale read", words)
        else:
            found.raced += 1
            late.add(put.number)
            found.longest_s = max(found.longest_s, read.begin - max(handled, put.end))
    found.late += len(late)
