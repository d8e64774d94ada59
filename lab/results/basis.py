"""The basis of a prediction: the measured cost of a visited key, a call and an event on one server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from statistics import fmean, median

from lab.errors import UsageError
from lab.results.folder import PhaseRecord, Run
from lab.results.knee import PATTERNS_PER_EVENT

SEARCHES = {"scan": "SCAN", "keys": "KEYS"}
"""Strategies that visit every key, and the command with which they do."""
WITHOUT_SEARCH = {"exact": ("UNLINK",), "index": ("SSCAN", "UNLINK")}
"""Strategies that delete by name, and commands that only their events use."""
DRIFT = 4 / 3
"""The factor by which the time of a visited key changes within seconds on a machine shared with strangers (see
`lab.runner.calibration`). It is the interval of a cost that was measured only a few times."""
GROWTH = 0.6
"""The share of its cost by which a visited key may become dearer with each tenfold of the keys, where no tenfold was
measured. docs/scale.md shows how it grows from 100,000 keys on. Its series differ, because the machine is shared: this
lies within a factor of two of the dearest one."""
ENOUGH = 6
"""Measurements from which the interval comes from their own spread."""
OTHER_SEARCHES = ("scan-tagged", "slot")
"""Strategies whose searches differ, so that nothing is predicted from them."""
QUIET = 0.05
"""Up to this utilisation a server is quiet, if nothing searches."""
UNFIT = {
    "dragonfly": "serves others in the middle of a search: its p99 cannot be predicted",
    "keydb": "leaves most of a search out of its execution times: from those nothing can be predicted",
}
"""Products whose searches the formulas do not describe, and why. (KeyDB: see `ServerObserver.scan_cost_us`.)"""


def why_unfit(product: str) -> str | None:
    """Return the reason why a product cannot be predicted; None if it can."""
    return next((why for name, why in UNFIT.items() if name in product.lower()), None)


@dataclass(frozen=True)
class Range:
    """A figure that is not known exactly: the likely value, and the interval around it."""

    low: float
    likely: float
    high: float

    def times(self, other: Range) -> Range:
        """The product, at worst and at best."""
        return Range(self.low * other.low, self.likely * other.likely, self.high * other.high)


CALL_S = Range(5e-6, 15e-6, 35e-6)
"""Time of a call beside its execution (reading, parsing, replying, system calls), where it was not measured: that of
the runs in docs/runs."""
KEYS_OVER_SCAN = Range(0.35, 0.45, 1.0)
"""Time of a key under KEYS over that under SCAN, which collects keys before it filters them. 0.37 to 0.40 in
docs/runs/cures, about 0.45 in docs/runs/keys-command; taken as 1 at most."""
SCAN_OVER_KEYS = Range(1.0, 1 / KEYS_OVER_SCAN.likely, 1 / KEYS_OVER_SCAN.low)
CALLS_PER_EVENT = {"exact": Range(1, 1, 3), "index": Range(4, 8, 12)}
"""Calls that an event takes, where the strategy's cost was not measured: see `app.strategies`."""


@dataclass(frozen=True)
class Costs:
    """The cost of a visited key (s) at some key counts.

    `points`: (keys, seconds of the server's time per key visited). `ratio`: they were measured under another command,
    which costs this much less or more.
    """

    points: tuple[tuple[float, float], ...]
    ratio: Range = field(default_factory=lambda: Range(1.0, 1.0, 1.0))

    @property
    def largest(self) -> float:
        """The largest key count at which the cost was measured."""
        return max(keys for keys, _ in self.points)

    @property
    def tenfold_measured(self) -> bool:
        """True if the cost was also measured at a tenth of the largest key count, or at less."""
        return min(keys for keys, _ in self.points) <= self.largest / 10

    @property
    def spread(self) -> float:
        """The factor of the interval around the likely cost: two standard deviations, or `DRIFT` with few points."""
        if len(self.points) < ENOUGH:
            return DRIFT
        off = [math.log(cost / self._at(keys)) for keys, cost in self.points]
        freedom = len(off) - len(self._steps)
        return max(1.1, math.exp(2 * math.sqrt(sum(x * x for x in off) / max(1, freedom))))

    @cached_property
    def _steps(self) -> list[tuple[float, float, int]]:
        """A key does not get cheaper with more keys: points that say so are pooled (isotonic regression).

        (log of the keys, cost, points in it), ascending. Each pool stands at the mean of its logs.
        """
        steps: list[tuple[float, float, int]] = []
        merged = [
            (keys, fmean(cost for _, cost in same))
            for keys, same in groupby(sorted(self.points), lambda p: p[0])
        ]
        for keys, cost in merged:
            step = (math.log(keys), cost, 1)
            while steps and steps[-1][1] >= step[1]:
                at, before, count = steps.pop()
                both = count + step[2]
                step = (
                    (at * count + step[0] * step[2]) / both,
                    (before * count + step[1] * step[2]) / both,
                    both,
                )
            steps.append(step)
        return steps

    def _at(self, keys: float) -> float:
        """The likely cost: straight lines over the logarithm of the keys, level outside the measured counts."""
        steps, at = self._steps, math.log(max(keys, 1.0))
        if at <= steps[0][0]:
            return steps[0][1]
        for (left, low, _), (right, high, _) in pairwise(steps):
            if at <= right:
                return low + (high - low) * (at - left) / (right - left)
        return steps[-1][1]

    def at(self, keys: float) -> Range:
        """The cost of a key (s) among so many keys.

        Beyond the largest measured count the cost may stay as it is, or may go on growing by as much for each tenfold
        as it did in the last tenfold, or by `GROWTH` where none was measured: caches and address tables run out at
        sizes that are not known here.
        """
        likely, spread = self._at(keys), self.spread
        most = self._at(self.largest)
        each = most - self._at(self.largest / 10) if self.tenfold_measured else GROWTH * most
        grown = likely + math.log10(max(1.0, keys / self.largest)) * each
        return Range(likely / spread, likely, grown * spread).times(self.ratio)


@dataclass(frozen=True)
class Basis:
    """The known figures of one server and its load.

    `source` names where it was measured, in words. `strategy`, `keys`, `events` (a second; 0: unknown) and `count` are
    those of the measured run. `patterns`: searches of one event. `base`: the share of the main thread that everything
    else takes. `costs`: of a visited key, by command. `call_s`: time of a call beside its execution. `event_s`: time of
    a whole event, by strategy that does not search. `floor_ms`: p99 of a bystander without searches. `room_keys`: how
    many keys fit into the memory of the server, or of its machine; None if unknown. `notes`: assumptions behind these
    figures.
    """

    source: str
    strategy: str
    patterns: int
    keys: float
    events: float
    count: int
    base: float
    costs: Mapping[str, Costs]
    call_s: Range
    event_s: Mapping[str, Range]
    floor_ms: float
    room_keys: float | None = None
    notes: tuple[str, ...] = ()

    def cost(self, strategy: str) -> Costs:
        """The costs of the command with which a strategy searches; of the other command if it was not measured."""
        wanted = SEARCHES[strategy]
        if wanted in self.costs:
            return self.costs[wanted]
        [other] = self.costs.values()
        return Costs(other.points, KEYS_OVER_SCAN if wanted == "KEYS" else SCAN_OVER_KEYS)

    def event(self, strategy: str) -> Range:
        """The time of an event (s) under a strategy that does not search."""
        return self.event_s.get(strategy) or CALLS_PER_EVENT[strategy].times(self.call_s)


def read_basis(run: Run, only: Sequence[PhaseRecord] | None = None, calibration: bool = True) -> Basis:
    """Return the costs that a run measured, in its calibration and all phases, or only in these.

    `calibration`: use the calibrated cost of a key.

    Raises:
        UsageError: it measured no events that search, or the formulas do not describe its server.
    """
    facts = run.facts
    if why := why_unfit(facts.server if facts.whole_scans else "dragonfly"):
        raise UsageError(
            f"{run.folder} was made on {facts.server}, which {why}. Name a run on valkey or redis."
        )
    phases = facts.phases if only is None else only
    calibrated = facts.calibration
    costly = calibrated if calibration else {}
    costs = {
        command: Costs(points)
        for strategy, command in SEARCHES.items()
        if (points := tuple(_points(facts.scan_count, strategy, command, phases, costly)))
    }
    if not costs:
        others = [phase.strategy for phase in phases if phase.strategy in OTHER_SEARCHES]
        has = f"whose events search by {others[0]}" if others else "which has no events that search"
        raise UsageError(
            f"{run.folder} is a run of {facts.scenario}, {has}: name a run of key-growth, keys-command or cures."
        )
    base = max(0.0, calibrated.get("base_utilisation", 0.0))
    searched = [phase.strategy for phase in phases if SEARCHES.get(phase.strategy) in costs]
    key_bytes = _key_bytes(phases)
    events = facts.load.get("events_per_second") or calibrated.get("events_per_second", 0.0)
    calls = _call_s(phases)
    return Basis(
        source=f"{run.folder} ({facts.scenario} on {facts.server} {facts.server_version}, "
        f"{facts.host.get('cores', '?')} cores of {facts.host.get('processor', 'an unknown processor')})",
        strategy=searched[0] if searched else "scan",
        patterns=PATTERNS_PER_EVENT,
        keys=facts.keys,
        events=events,
        count=facts.scan_count,
        base=base,
        costs=costs,
        call_s=calls or CALL_S,
        event_s={name: cost for name in WITHOUT_SEARCH if (cost := _event_s(name, phases, base))},
        floor_ms=_floor_ms(run, phases),
        room_keys=1e9 * float(facts.host["memory_gb"]) / key_bytes
        if key_bytes and "memory_gb" in facts.host
        else None,
        notes=(
            "the lab's own events come at even distances",
            *(() if calls else ("the time of a call beside its execution is that of other runs",)),
        ),
    )


def _points(
    count: int, strategy: str, command: str, phases: Iterable[PhaseRecord], calibrated: Mapping[str, float]
) -> Iterable[tuple[float, float]]:
    """(keys, seconds per visited key) of each phase by the server's own clock, and of a calibration by whole calls.

    A calibration with a small COUNT is left out: its cost of a key contains the cost of many calls.
    """
    for phase in phases:
        call_us = phase.execution_us(command)
        if phase.strategy == strategy and call_us and phase.keys >= 1:
            visited = min(count, phase.keys) if strategy == "scan" else phase.keys
            yield phase.keys, call_us / 1e6 / visited
    keys_held, cost = calibrated.get("keys", 0.0), calibrated.get("cost_us_per_key", 0.0)
    if strategy == "scan" and cost > 0 and 1 <= keys_held <= count:
        yield keys_held, cost / 1e6


def _executing(phase: PhaseRecord) -> float:
    return sum(each["usec"] for each in phase.commands.values()) / 1e6 / phase.seconds


def _call_s(phases: Iterable[PhaseRecord]) -> Range | None:
    """The main thread's time outside of executions, for each call; from phases in which there is enough of it to see.

    At low rates it contains wake-ups and periodic work that busier times share among many calls: hence the low end.
    """
    found = []
    for phase in phases:
        calls = sum(each["calls"] for each in phase.commands.values()) / phase.seconds
        executing, busy = _executing(phase), phase.utilisation or 0.0
        if calls > 0 and executing < 0.8 * busy:
            found.append((busy - executing) / calls)
    return Range(min(found) / 2, min(found), max(found)) if found else None


def _event_s(strategy: str, phases: Iterable[PhaseRecord], base: float) -> Range | None:
    """Time of an event by name: at least what its own commands take, at most all that is not the base load."""
    least, upper = [], []
    for phase in phases:
        finished = phase.events.get("finished_per_s", 0.0)
        if phase.strategy != strategy or finished <= 0 or phase.utilisation is None:
            continue
        executed = sum(phase.commands.get(name, {}).get("usec", 0.0) for name in WITHOUT_SEARCH[strategy])
        least.append(executed / 1e6 / phase.seconds / finished)
        upper.append((phase.utilisation - base) / finished)
    if not least:
        return None
    low = max(min(least), CALLS_PER_EVENT[strategy].low * CALL_S.low)
    return Range(low, max(low, median(upper)), max(low, *upper))


def _floor_ms(run: Run, phases: Sequence[PhaseRecord]) -> float:
    """The median p99 of quiet phases without searches; else the least p99 of all; else the idle server's round trip."""
    known = [(phase, p99) for phase in phases if (p99 := run.p99_ms(phase)) is not None]
    quiet = [
        p99 for phase, p99 in known if phase.strategy not in SEARCHES and (phase.utilisation or 1.0) < QUIET
    ]
    if quiet:
        return median(quiet)
    return min((p99 for _, p99 in known), default=run.facts.calibration.get("ping_floor_us", 0.0) / 1000)


def _key_bytes(phases: Iterable[PhaseRecord]) -> float | None:
    """Resident bytes that one more key takes, between the phases with the fewest and with the most keys."""
    keys_held = sorted(
        (phase.keys, phase.memory_mb["store"] * 1e6)
        for phase in phases
        if phase.strategy in SEARCHES and "store" in phase.memory_mb
    )
    if len(keys_held) < 2 or keys_held[-1][0] < 2 * keys_held[0][0] or keys_held[-1][1] <= keys_held[0][1]:
        return None
    return (keys_held[-1][1] - keys_held[0][1]) / (keys_held[-1][0] - keys_held[0][0])
