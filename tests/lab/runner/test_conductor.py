"""What the conductor does with a phase that was not measured fairly, on a made-up stack."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.errors import StackError
from lab.results.folder import Run, RunFacts, RunWriter
from lab.runner import phases
from lab.runner.phases import Conductor
from lab.scenarios.model import Pace, Phase, Scenario
from lab.server.http import Metrics
from lab.server.server_stats import Snapshot
from loadtest.probe.record import Interval
from tests.lab.synthetic import facts_of

KEYS = 100_000
PACE = Pace(plateau_s=0.3, settle_s=0.0, keys=KEYS, attempts=3)
SCENARIO = Scenario(
    id="made-up",
    title="Two phases",
    story="",
    source="",
    phases=(
        Phase("first", "a", "first", "scan", 0.5, events=0.0),
        Phase("second", "b", "second", "index", 1.0, events=0.0),
    ),
    claims=(),
    paces={"quick": PACE},
    knee_at=None,
    scan_count=1000,
)


class Line:
    """A probe that prints its two lines without errors, an hour ahead of every phase, and waits until the run ends."""

    kinds: tuple[str, ...] = ("arrival", "due")

    def __init__(self, over: threading.Event) -> None:
        self._over = over

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, and return at the run's end."""
        interval = Interval(0)
        interval.end(0, 0, None, last_error=None)
        line = json.loads(interval.line("main")) | {"t": time.time() + 3600, "interval_s": 0.25}
        for by in self.kinds:
            yield json.dumps(line | {"by": by}).encode()
        self._over.wait()


class MadeUp:
    """A stack on which each measured phase has the next of `others`: other programs' share of a core.

    Its server has as many keys as it was asked to fill in, and `surplus` more after each measured phase, in which
    `events` are finished.
    """

    owns_server, has_replica, key_prefix, web_url = True, False, "shop", "http://localhost"

    def __init__(self, others: list[float], surplus: int = 0, events: int = 0) -> None:
        self.over = threading.Event()
        self.done: list[str] = []
        self._others, self._surplus, self._keys, self._meters = iter(others), surplus, 0, 0
        self._events, self._finished = events, 0.0
        self.web = SimpleNamespace(use=self._use, warm=self._warm)
        self.locust = SimpleNamespace(load=self._load, reset=lambda: None, tallies=self._tallies)
        self.server = SimpleNamespace(
            shown="made-up",
            snapshot=lambda: Snapshot(time.time(), self._keys, {}, 1.0, 1.0, 1, "run", 1),
            ping_us=lambda: [50.0],
            slowlog=list,
            refusal=str,
            keys_everywhere=lambda: self._keys,
        )

    def _use(self, strategy: str, count: int) -> None:
        self.done.append(f"use {strategy}")

    def _warm(self, keys: int, restart: bool, seconds: float, check: object) -> None:
        self.done.append(f"fill {keys}{' anew' if restart else ''}")
        self._keys = keys

    def _load(self, reads: float, events: float, population: int) -> None:
        self.done.append(f"offer {events:g}")

    def _tallies(self) -> dict[str, Any]:
        self._keys += self._surplus
        self._finished += self._events
        counts = {"count": 0, "failures": 0, "missed": 1, "due": 4, "p99_ms": 1.0}
        return {"seconds": 0.3, "events": counts, "reads": counts}

    def meter(self) -> Any:
        """The recorder's meter sees a quiet machine; each of a phase's own sees the next share when the phase ends."""
        self._meters += 1
        shares = iter(()) if self._meters == 1 else iter([0.0, next(self._others)])
        return SimpleNamespace(sample=lambda: ({}, {"busy": 0.1, "steal": 0.0, "others": next(shares, 0.0)}))

    def start_probe(self, spec: object, rate: float) -> Line:
        """Return a probe that is always in order."""
        return Line(self.over)

    def observe(self) -> Metrics:
        """Return the counters of a storefront that is idle."""
        return Metrics({}, self._finished, 0.0, 0.0)

    def empty(self, shards: int) -> None:
        """Restart the server."""
        self.done.append("empty")
        self._keys = 0

    def check(self) -> None:
        """Do nothing: no process ever ends."""

    def memory_mb(self) -> dict[str, float]:
        """Return no part's memory."""
        return {}


def walked(folder: Path, stack: MadeUp, pace: Pace = PACE) -> tuple[RunFacts, list[str]]:
    """Walk the scenario on a stack. Returns the facts of the run, and what it said."""
    folder.mkdir(exist_ok=True)
    said: list[str] = []
    display = SimpleNamespace(
        say=said.append, phase=lambda *_: None, row=lambda _: None, finished=lambda *_: None, lost=said.append
    )
    facts = replace(facts_of(SCENARIO, KEYS, 0.0), phases=[], discarded=[], marks=[])
    writer = RunWriter(folder)
    try:
        Conductor(SCENARIO, pace, cast(Any, stack), writer, facts, cast(Any, display)).run()
    finally:
        stack.over.set()
        writer.close()
    return facts, said


@pytest.fixture(autouse=True)
def others_are_counted_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other client is there, so half a second of counting its GETs shows nothing."""
    monkeypatch.setattr(phases, "OTHERS_S", 0.01)


def test_a_fair_phase_is_measured_once(tmp_path: Path) -> None:
    """On a quiet machine nothing is repeated, and nothing is said of it."""
    facts, said = walked(tmp_path, MadeUp([0.0, 0.0]))

    assert [(record.id, record.attempt) for record in facts.phases] == [("first", 1), ("second", 1)]
    assert facts.discarded == [] and not any("fair" in line for line in said)
    assert facts.phases[0].events["offered_per_s"] == 10, "3 of 4 in 0.3 s were sent: none is answered yet"


def test_a_phase_whose_probe_gets_no_reply_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the replies to requests that were due in it, a phase would have no p99: its longest waits would lack."""
    monkeypatch.setattr(Line, "kinds", ("arrival",))
    monkeypatch.setattr(phases, "REPLIES_S", 0.1)
    with pytest.raises(StackError, match=r"probe main has waited 0\.1 s for a reply"):
        walked(tmp_path, MadeUp([0.0, 0.0]))


def test_an_unfair_phase_is_measured_again_at_once(tmp_path: Path) -> None:
    """It is repeated before the next phase. The first attempt is kept, and a line says why it does not count."""
    stack = MadeUp([0.9, 0.0, 0.0])
    facts, said = walked(tmp_path, stack)

    assert [(record.id, record.attempt, record.unfair) for record in facts.phases] == [
        ("first", 2, []),
        ("second", 1, []),
    ]
    assert [(record.id, record.attempt) for record in facts.discarded] == [("first", 1)]
    assert "  that was not fair, and is measured again: other programs used 90% of a core" in said
    assert [record.id for record in Run(tmp_path).facts.discarded] == ["first"]


def test_each_attempt_begins_as_the_first_did(tmp_path: Path) -> None:
    """Before every attempt the load stops, the strategy is set and the keys are filled in."""
    stack = MadeUp([0.9, 0.9, 0.0, 0.0])
    walked(tmp_path, stack)

    prepared = ["offer 0", "use scan", "fill 50000", "offer 0", "offer 0"]
    assert stack.done[: 3 * len(prepared)] == 3 * prepared


def test_surplus_keys_of_an_attempt_are_taken_away_before_the_next(tmp_path: Path) -> None:
    """Where the reads of an unfair attempt brought many keys in, the server is emptied and filled anew."""
    kept, emptied = MadeUp([0.9, 0.0, 0.0], surplus=10), MadeUp([0.9, 0.0, 0.0], surplus=KEYS)
    walked(tmp_path / "kept", kept)
    facts, _ = walked(tmp_path / "emptied", emptied)

    assert "empty" not in kept.done
    assert emptied.done.count("empty") == 1
    assert [mark.kind for mark in facts.marks].count("restart") == 1


@pytest.mark.parametrize(("events", "anew"), [(10, False), (30, True)])
def test_keys_that_events_took_are_filled_in_again(events: int, anew: bool, tmp_path: Path) -> None:
    """Where the events of a phase took many keys, the next one begins with all of them; a few are left missing."""
    stack = MadeUp([0.0, 0.0], events=events)
    walked(tmp_path, stack)

    fills = [did for did in stack.done if did.startswith("fill")]
    assert fills == [f"fill {KEYS // 2}", f"fill {KEYS}{' anew' if anew else ''}"]


def test_a_phase_that_is_never_fair_ends_with_its_reason(tmp_path: Path) -> None:
    """After the last attempt the run goes on, and the phase says why no verdict can rest on it."""
    facts, said = walked(tmp_path, MadeUp([0.9, 0.9, 0.5, 0.9]))

    first = facts.phases[0]
    assert facts.phases[1].attempt == 1  # the verdict is lost: nothing is measured again
    assert (first.attempt, first.unfair) == (3, ["other programs used 50% of a core"])
    assert len(facts.discarded) == 2
    assert said.count("  that was not fair, and is measured again: other programs used 90% of a core") == 2
    assert [line for line in said if "50%" in line] == ["other programs used 50% of a core"]


def test_repetitions_end_with_their_budget(tmp_path: Path) -> None:
    """A pace without time for repetitions measures each phase once, fair or not."""
    facts, _ = walked(tmp_path, MadeUp([0.9, 0.9]), replace(PACE, repeats=0.0))

    assert [record.attempt for record in facts.phases] == [1, 1]
    assert all(record.unfair for record in facts.phases)
