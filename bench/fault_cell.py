"""One cell of the fault matrix: a load on the storefront, a fault in the middle of it, and what became of the events.

Each event has a user of its own. Every other user's entries are cached before the load begins. An entry of each user is
read shortly before the event, so that values are found, computed and cached while the fault lasts. A part of the
entries is read again while the load goes on, and all of them when the backlog is empty. `bench.fault_judge` says what
follows from the answers.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bench.fault_judge import Event, Found, Read, Window, judge
from bench.fault_kinds import Fault
from bench.fault_service import WARM_KEYS, AnyScene, ask

NAMES = ("page-0", "cart-0", "offer-0")
SWITCH = "switch"
TURNS = ("index", "generation", "scan", "hash")
"""The strategies that take turns where a switch is under way."""
STRATEGIES = ("scan", "keys", "exact", "index", "hash", "generation", SWITCH)
READ_AHEAD_S, CHECK_AFTER_S, CHECK_EVERY = 0.4, 0.7, 3
RECOVERED_S = 10.0
"""From the end of the fault to the first success, and to an empty outbox: more is red."""
DRAIN_MAX_S = 30.0
"""How long the backlog is waited for."""
NOTICE_S = 1.5
"""How long readiness may stay green after the state folder broke."""
POLL_S, ALARMS_S = 0.1, 2.0
SENDERS, READERS = 16, 8


@dataclass(frozen=True)
class Plan:
    """A cell's load: that many events, sent at `rate` a second; the fault begins after `before_s`, and lasts."""

    events: int = 400
    rate: float = 60.0
    before_s: float = 1.0
    fault_s: float = 5.0
    turn_s: float = 1.0

    def slower(self, share: float) -> Plan:
        """The same number of events at a share of the rate."""
        return Plan(self.events, self.rate * share, self.before_s, self.fault_s / share, self.turn_s)

    @property
    def seconds(self) -> float:
        """About how long a cell takes: filling, load, an empty outbox, the last reads."""
        return 2.0 + max(self.events / self.rate, self.before_s + self.fault_s) + 2.0 + self.events / 150


class Load:
    """Sends the events and reads of one cell, and records each answer."""

    def __init__(self, scene: AnyScene, plan: Plan, first_user: int) -> None:
        self._scene, self._plan, self._first = scene, plan, first_user
        self.events: dict[int, Event] = {}
        self.reads: list[Read] = []
        self._sent: set[int] = set()
        self._senders = ThreadPoolExecutor(SENDERS, "events")
        self._readers = ThreadPoolExecutor(READERS, "reads")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send, name="load", daemon=True)

    def _names(self, user: int) -> tuple[str, ...]:
        """The entries of a user: all areas, or one where they are not cached before the load."""
        return NAMES if self._is_filled(user) else (NAMES[user // 2 % len(NAMES)],)

    def _is_filled(self, user: int) -> bool:
        return user % 2 == 0

    def fill(self) -> None:
        """Cache the entries of every other user."""
        list(self._readers.map(self._fill, filter(self._is_filled, self._users())))

    def _users(self) -> range:
        return range(self._first, self._first + self._plan.events)

    def _fill(self, user: int) -> None:
        begin = time.monotonic()
        try:
            done = ask("PUT", f"{self._scene.base}/users/{user}/fragments", {"count": len(NAMES)})[0] == 200
        except OSError:
            done = False
        end = time.monotonic()
        result = "put" if done else "failed"
        self.reads += [Read(user, name, begin, end, result) for name in NAMES]

    def begin(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until everything was sent and answered."""
        self._thread.join()
        self._senders.shutdown()
        self._readers.shutdown()

    def stop(self) -> None:
        """Send nothing more; do not wait."""
        self._stopped.set()
        self._senders.shutdown(wait=False, cancel_futures=True)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _send(self) -> None:
        started = time.monotonic() + READ_AHEAD_S
        due: list[tuple[float, int, Callable[[int], None]]] = []
        for number, user in enumerate(self._users()):
            at = started + number / self._plan.rate
            due.append((at, user, self._event))
            due.append((at - READ_AHEAD_S, user, self._read_ahead))
            if number % CHECK_EVERY == 0:
                due.append((at + CHECK_AFTER_S, user, self._check))
        with suppress(RuntimeError):  # the pools were closed by `stop`
            for at, user, what in sorted(due, key=lambda row: row[0]):
                if self._stopped.wait(max(0.0, at - time.monotonic())):
                    return
                (self._senders if what == self._event else self._readers).submit(what, user)

    def _event(self, user: int) -> None:
        self._sent.add(user)
        begin, number = time.monotonic(), None
        with suppress(OSError):
            status, _, body = ask("POST", f"{self._scene.base}/users/{user}/events", {"type": "order"})
            number = int(json.loads(body)["event"]) if status == 202 else None
        self.events[user] = Event(user, begin, time.monotonic(), number)

    def _read_ahead(self, user: int) -> None:
        if user not in self._sent:
            self.read(user, self._names(user)[-1])

    def _check(self, user: int) -> None:
        """Read an entry again, if the user's event is known to be handled."""
        event = self.events.get(user)
        if event is None or event.number is None:
            return
        with suppress(OSError):
            status, _, body = ask("GET", f"{self._scene.base}/users/{user}/events/{event.number}")
            if status == 200 and json.loads(body)["state"] == "done":
                event.handled = time.monotonic()
                self.read(user, self._names(user)[-1])

    def read(self, user: int, name: str) -> str:
        """Read an entry; returns and records what the storefront says of the cache."""
        begin, result = time.monotonic(), "failed"
        with suppress(OSError):
            status, headers, _ = ask("GET", f"{self._scene.base}/users/{user}/fragments/{name}")
            if status == 200:
                result = headers["Cache-Status"].rpartition("; ")[2].removeprefix("fwd=")
        self.reads.append(Read(user, name, begin, time.monotonic(), result))
        return result

    def last_reads(self) -> int:
        """Read all entries whose user had an accepted event; returns how many could not be read."""
        wanted = [
            (event.user, name)
            for event in self.events.values()
            if event.number is not None
            for name in self._names(event.user)
        ]
        with ThreadPoolExecutor(READERS, "last") as pool:
            return list(pool.map(lambda row: self.read(*row), wanted)).count("failed")


@dataclass(frozen=True)
class Sample:
    """What was heard at a moment. `kind` is healthz, readyz, read, pending or alarms; `said` a status, a result, a
    number, names.
    """

    kind: str
    begin: float
    end: float
    said: str


@dataclass
class Watch:
    """Asks, ten times a second until it is stopped: health, readiness, an entry of another user, the backlog.

    Where there are alarms it asks for them too, every two seconds.
    """

    scene: AnyScene
    samples: list[Sample] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Begin to ask."""
        for kind, question in (
            ("healthz", lambda: str(self.scene.status("/healthz", 6.0))),
            ("readyz", lambda: str(self.scene.status("/readyz", 11.0))),
            ("read", self._read),
            ("pending", self._pending),
        ):
            threading.Thread(target=self._keep_asking, args=(kind, question), name=kind, daemon=True).start()
        if self.scene.has_alarms:
            words = ("alarms", lambda: ", ".join(self.scene.alarms()), ALARMS_S)
            threading.Thread(target=self._keep_asking, args=words, name="alarms", daemon=True).start()

    def stop(self) -> None:
        """Ask nothing more."""
        self._stopped.set()

    def _keep_asking(self, kind: str, question: Callable[[], str], every_s: float = POLL_S) -> None:
        while not self._stopped.wait(every_s):
            begin = time.monotonic()
            said = question()
            self.samples.append(Sample(kind, begin, time.monotonic(), said))

    def _read(self) -> str:
        """One of the warmer's entries, which no event concerns."""
        user = random.randrange(1, WARM_KEYS // 20)
        try:
            status, headers, _ = ask("GET", f"{self.scene.base}/users/{user}/fragments/page-0")
        except OSError:
            return "failed"
        return headers["Cache-Status"].rpartition("; ")[2] if status == 200 else str(status)

    def _pending(self) -> str:
        with suppress(OSError):
            self.metrics = self.scene.metrics()
        with suppress(sqlite3.Error):
            return str(len(self.scene.outbox()))
        return "unknown"

    def first(self, kind: str, after: float, good: Callable[[str], bool]) -> float | None:
        """When the first good answer of a kind came, to a question asked after a moment."""
        return min(
            (s.end for s in self.samples if s.kind == kind and s.begin >= after and good(s.said)),
            default=None,
        )

    def said(self, kind: str, begin: float, end: float) -> Counter[str]:
        """What was said of a kind, to questions asked between two moments."""
        return Counter(s.said for s in self.samples if s.kind == kind and begin <= s.begin < end)

    def largest_backlog(self, after: float) -> int:
        """The most events that were in the outbox at once, after a moment."""
        numbers = [int(said) for said in self.said("pending", after, float("inf")) if said.isdigit()]
        return max(numbers, default=0)

    def empty(self, after: float) -> float | None:
        """When the outbox was empty, asked after a moment; None if it was not yet."""
        return self.first("pending", after, lambda said: said == "0")


def wait(find: Callable[[], float | None]) -> float | None:
    """Wait until `find` finds a moment, and return it; None if it finds none within `DRAIN_MAX_S`."""
    end = time.monotonic() + DRAIN_MAX_S
    while (moment := find()) is None and time.monotonic() < end:
        time.sleep(POLL_S / 2)
    return moment


class Turns:
    """Switches the strategy again and again, until it is stopped."""

    def __init__(self, scene: AnyScene, every_s: float) -> None:
        self._scene, self._every = scene, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._switch, name="turns", daemon=True)
        self.done = 0

    def begin(self) -> None:
        """Begin to switch."""
        self._thread.start()

    def end(self) -> None:
        """Switch no more. Safe to call twice, or before `begin`."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(15.0)

    def _switch(self) -> None:
        while not self._stopped.wait(self._every):
            with suppress(OSError):
                self._scene.use(TURNS[(self.done + 1) % len(TURNS)])
                self.done += 1


def admits_late(fault: Fault, strategy: str) -> bool:
    """True if a value computed before an event may be put after it: the server froze, and the layout admits it."""
    return fault.freezes and strategy != "generation"


def run_cell(scene: AnyScene, fault: Fault, strategy: str, plan: Plan, first_user: int) -> dict[str, Any]:
    """Run one cell; return what it showed. Raises `StackError` or OSError where the scene does not come up or back."""
    plan = plan.slower(fault.slower)
    tracebacks = scene.tracebacks()
    scene.prepare(TURNS[0] if strategy == SWITCH else strategy)
    load, watch, turns = Load(scene, plan, first_user), Watch(scene), Turns(scene, plan.turn_s)
    try:
        load.fill()
        watch.begin()
        load.begin()
        if strategy == SWITCH:
            turns.begin()
        time.sleep(READ_AHEAD_S + plan.before_s)
        before = dict(watch.metrics)
        began = time.monotonic()
        fault.act(scene, plan.fault_s)
        window = Window(began, time.monotonic(), admits_late(fault, strategy))
        load.wait()
        turns.end()
        # The last reads prove nothing before the storefront answers again.
        recovered = wait(lambda: _recovered(watch, window))
        emptied = wait(lambda: watch.empty(window.end))
        ended = time.monotonic()
        drained = wait(lambda: watch.empty(ended)) if emptied is not None else None
        left = scene.outbox() if drained is None else set()
        unread = load.last_reads()
    finally:
        load.stop()
        turns.end()
        watch.stop()
    if strategy == SWITCH:
        scene.notes["switches"] = turns.done
    events = list(load.events.values())
    found = judge(events, load.reads, window, drained, left, scene.given_up)
    row = figures(events, load.reads, found)
    row["unread"] = unread
    row["recovered_s"] = _after(window, recovered)
    row["drained_s"] = _after(window, emptied)
    row["backlog"] = watch.largest_backlog(window.begin)
    row["said"] = told(watch, window, before, scene.notes)
    row["tracebacks"] = scene.tracebacks() - tracebacks
    if fault.corrupts:
        row["accepted_corrupt"] = _accepted_between(events, scene.corrupt_from, window.end)
        row["ready_corrupt"] = watch.said("readyz", scene.corrupt_from + NOTICE_S, window.end)["200"]
    row["red"] = red(row)
    return row


def figures(events: Iterable[Event], reads: Iterable[Read], found: Found) -> dict[str, Any]:
    """The numbers of a cell."""
    events, results = list(events), Counter(read.result for read in reads)
    accepted = sum(event.number is not None for event in events)
    return {
        "accepted": accepted,
        "refused": len(events) - accepted,
        "lost": len(found.lost),
        "stale": found.stale,
        "late": found.late,
        "reads": sum(results.values()),
        "failed": results["failed"],
    }


def _recovered(watch: Watch, fault: Window) -> float | None:
    """When the storefront was ready again, and an entry was read through the cache."""
    moments = (
        watch.first("readyz", fault.end, lambda said: said == "200"),
        watch.first("read", fault.end, lambda said: said in ("hit", "fwd=miss")),
    )
    return None if None in moments else max(moment for moment in moments if moment is not None)


def _after(fault: Window, moment: float | None) -> float | None:
    return None if moment is None else round(moment - fault.end, 2)


def _accepted_between(events: Iterable[Event], begin: float, end: float) -> int:
    """How many events were sent and accepted between two moments."""
    return sum(event.number is not None and begin < event.begin and event.end < end for event in events)


def told(watch: Watch, fault: Window, before: dict[str, float], notes: dict[str, int]) -> str:
    """What health, readiness and metrics said while the fault lasted, and what the fault counted."""
    parts = [f"{count} {name}" for name, count in notes.items()]
    for kind in ("healthz", "readyz"):
        said = watch.said(kind, fault.begin, fault.end)
        good = said["200"]
        if sum(said.values()):
            parts.append(
                f"{kind} {'green' if good == sum(said.values()) else f'green {good} of {sum(said.values())}'}"
            )
    if watch.scene.has_alarms:
        heard = watch.said("alarms", fault.begin, float("inf"))
        names = sorted({name for said in heard for name in said.split(", ") if name})
        parts.append(f"alarms ({'; '.join(names)})" if names else "no alarm")
    parts.append(f"backlog up to {watch.largest_backlog(fault.begin)}")
    key = "cache_invalidation_events_total retried"
    # An invalidator that was started again counts from 0.
    retried = watch.metrics.get(key, 0.0)
    retried -= before.get(key, 0.0) if retried >= before.get(key, 0.0) else 0.0
    return ", ".join([*parts, f"{retried:.0f} retries"])


def red(row: dict[str, Any]) -> list[str]:
    """Why a cell is red, a few words each; empty if it is green."""
    reasons = []
    if row["accepted"] == 0:
        reasons.append("no event was accepted")
    if row["lost"]:
        reasons.append(f"{row['lost']} lost")
    if row["stale"]:
        reasons.append(f"{row['stale']} stale")
    if row["unread"]:
        reasons.append(f"{row['unread']} of the last reads failed")
    for name, what in (("recovered_s", "success"), ("drained_s", "empty outbox")):
        if row[name] is None:
            reasons.append(f"no {what} within {DRAIN_MAX_S:.0f} s")
        elif row[name] > RECOVERED_S:
            reasons.append(f"{what} after {row[name]:.1f} s")
    if row["tracebacks"]:
        reasons.append(f"{row['tracebacks']} tracebacks")
    if row.get("accepted_corrupt"):
        reasons.append(f"{row['accepted_corrupt']} accepted while the state folder was corrupt")
    if row.get("ready_corrupt"):
        reasons.append(f"ready {row['ready_corrupt']} times while the state folder was corrupt")
    return reasons
