"""Predicts utilisation, knee and a bystander's p99 for other keys, event rates, COUNTs, shards and strategies.

Utilisation and knee are those of `lab.results.knee`. The wait is that of `lab.results.formulas` while the server has
time to spare, and of `lab.results.simulation` near the knee and a little beyond it. Costs are known as ranges, so each
result is one: it is calculated with the low, the likely and the high costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from lab.results import formulas, numbers
from lab.results.basis import ENOUGH, GROWTH, SEARCHES, Basis, Range
from lab.results.knee import demand, saturating_events
from lab.results.operational import TIME_LEFT
from lab.results.simulation import wait_s

RANDOM_TO = 0.85
"""Up to this utilisation `formulas.wait_at_random` agrees with the simulation within 10 %. At 0.9 it is a fifth too
high: in a few thousand events from a calm beginning the queue does not get as long as in the long run."""
SIMULATED_TO = 1.5
"""Up to this utilisation p99 is simulated. With more, it only shows how long the overload has lasted."""
EVENTS = 2000
"""Events that are simulated, from a calm beginning."""
PAGES = 20
"""Pages of a walk in the simulation. Longer walks are simulated with longer pages: the wait is then longer by the same
factor, because it is a number of turns."""
GAP = 0.1
"""Time from a page's reply to the next call, in pages. Up to a whole page it makes no difference to the wait."""
STRATEGIES = ("scan", "keys", "exact", "index")
MOST_KEYS = 1e18


@dataclass(frozen=True)
class Question:
    """The case to predict: `keys` in all, `events` a second in all, COUNT of SCAN, number of shards, strategy."""

    keys: float
    events: float
    count: float
    shards: int
    strategy: str


@dataclass(frozen=True)
class Prediction:
    """The answer, for one shard unless named otherwise.

    `cost_us`: of a visited key. `event_s`: the server's time for one event. `utilisation`: above 1 it is the demand.
    `knee_keys` and `knee_events`: where the utilisation is 1, in all shards together; `knee_keys` is None where the
    work does not depend on the keys. `even_ms` and `random_ms`: p99 of a bystander if events come at even distances, or
    at random moments; infinite where it grows for as long as the overload lasts.
    """

    question: Question
    cost_us: Range | None
    event_s: Range
    utilisation: Range
    knee_keys: Range | None
    knee_events: Range
    even_ms: Range
    random_ms: Range
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: null stands for a p99 without a limit, and for what does not apply."""

        def finite(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: finite(part) for name, part in value.items()}
            return None if isinstance(value, float) and not math.isfinite(value) else value

        return dict(finite(asdict(self)))


@dataclass(frozen=True)
class _Work:
    """The work on one shard, with costs at one end of their range. Times in seconds.

    `event_s`: the server's time for one event; `unit_s`: the part of it that is at the server at once. `events`: a
    second on this shard.
    """

    event_s: float
    unit_s: float
    events: float
    base: float
    patterns: int
    pages: int

    @property
    def utilisation(self) -> float:
        """The share of the server's time that arrives as work."""
        return demand(self.base, self.events, 1, self.event_s, 1)

    def p99_ms(self, even: bool) -> float:
        """The wait of a bystander. Other work takes its share of every turn, so turns are longer by that."""
        if self.utilisation > SIMULATED_TO or self.base >= 1:
            return math.inf
        event_s, unit_s = self.event_s / (1 - self.base), self.unit_s / (1 - self.base)
        share = self.events * event_s
        if self.utilisation <= (TIME_LEFT if even else RANDOM_TO):
            known = formulas.wait_of_absences if even else formulas.wait_at_random
            return 1000 * known(unit_s, share)
        pages = min(self.pages, PAGES)
        page_s = event_s / self.patterns / pages
        waited = wait_s(self.events, self.patterns, pages, page_s, GAP * page_s, EVENTS, even)
        return 1000 * waited * unit_s / (self.patterns * page_s)


ENDS: tuple[Callable[[Range], float], ...] = (
    lambda range_: range_.low,
    lambda range_: range_.likely,
    lambda range_: range_.high,
)


def predict(basis: Basis, question: Question) -> Prediction:
    """Answer the question from the measured costs."""
    works = [_work(basis, question, question.keys, end) for end in ENDS]
    searching = question.strategy in SEARCHES
    even, at_random = (
        Range(*(basis.floor_ms + work.p99_ms(kind) for work in works)) for kind in (True, False)
    )
    each = question.keys / question.shards
    cost = basis.cost(question.strategy).at(each) if searching else None
    spread = 1 if searching else question.shards  # an event that searches goes to every shard
    events = [spread * max(0.0, saturating_events(work.base, 1, work.event_s, 1)) for work in reversed(works)]
    return Prediction(
        question=question,
        cost_us=cost and cost.times(Range(1e6, 1e6, 1e6)),
        event_s=Range(*(work.event_s for work in works)),
        utilisation=Range(*(work.utilisation for work in works)),
        knee_keys=knee_keys(basis, question) if searching else None,
        knee_events=Range(*events),
        even_ms=even,
        random_ms=at_random,
        assumptions=tuple(_assumptions(basis, question)),
        warnings=tuple(_warnings(basis, question, works[1])),
    )


def _work(basis: Basis, question: Question, keys: float, end: Callable[[Range], float]) -> _Work:
    base = basis.base / question.shards
    if question.strategy not in SEARCHES:
        event_s = end(basis.event(question.strategy))
        return _Work(event_s, event_s, question.events / question.shards, base, 1, 1)
    shard_keys = max(1.0, keys / question.shards)
    visited = shard_keys if question.strategy == "keys" else min(shard_keys, question.count)
    pages = math.ceil(shard_keys / visited)
    cost_s, call_s = end(basis.cost(question.strategy).at(shard_keys)), end(basis.call_s)
    walk_s = shard_keys * cost_s + (pages + 1) * call_s  # the last call deletes what was found
    unit_s = basis.patterns * min(walk_s, visited * cost_s + call_s)
    return _Work(basis.patterns * walk_s, unit_s, question.events, base, basis.patterns, pages)


def knee_keys(basis: Basis, question: Question) -> Range:
    """The number of keys, in all shards, at which the utilisation is 1, for a strategy that searches."""
    return Range(*(_knee_keys(basis, question, end) for end in reversed(ENDS)))


def _knee_keys(basis: Basis, question: Question, end: Callable[[Range], float]) -> float:
    """The same with costs at one end of their range. By bisection: the cost of a key grows."""
    low, high = 0.0, math.log(MOST_KEYS)
    while high - low > 1e-6:
        middle = (low + high) / 2
        fits = _work(basis, question, math.exp(middle), end).utilisation < 1
        low, high = (middle, high) if fits else (low, middle)
    return math.exp(low) if low > 0 else 0.0


def _assumptions(basis: Basis, question: Question) -> list[str]:
    """Return every assumption, a sentence each."""
    sentences = [
        "one thread executes every command, and it has a whole core for itself",
        f"everything else takes {numbers.share(basis.base)} of that thread's time"
        + (f", evenly spread over the {question.shards:,} shards" if question.shards > 1 else "")
        + ", and does not grow with the events",
        f"a bystander waits {numbers.ms(basis.floor_ms)} (p99) where nothing searches",
        *basis.notes,
    ]
    if question.strategy in SEARCHES:
        costs, each = basis.cost(question.strategy), question.keys / question.shards
        few = len(costs.points) < ENOUGH
        sentences.append(
            f"the cost of a visited key is known within a factor of {costs.spread:.2f}: "
            + (
                "the speed of memory changes by a third within seconds"
                if few
                else "the spread of its measurements"
            )
        )
        if each > 1.05 * costs.largest:
            sentences.append(
                f"a key among {each:,.0f} costs as much as among {costs.largest:,.0f}, the most that was measured, or "
                + (
                    "goes on growing by as much for each tenfold as in the last one"
                    if costs.tenfold_measured
                    else f"{numbers.percent(GROWTH)} of that more for each tenfold (docs/scale.md): none was measured"
                )
            )
        if costs.ratio.high != costs.ratio.low:
            sentences.append(
                f"{SEARCHES[question.strategy]} visits a key in {costs.ratio.low:.2f} to {costs.ratio.high:.2f} of the "
                "time that the measured command takes"
            )
        what = "one search" if basis.patterns == 1 else f"{basis.patterns} searches, all begun at once"
        sentences.append(f"an event is {what}; clients ask for the next page at once, and none gives up")
        sentences.append(
            f"a call takes {numbers.us(basis.call_s.low * 1e6)} to {numbers.us(basis.call_s.high * 1e6)} beside its "
            "execution"
        )
        if question.shards > 1:
            sentences.append("keys are spread evenly over the shards, and every search goes to every shard")
    else:
        how = (
            "as it was measured"
            if question.strategy in basis.event_s
            else ("from the calls it takes: it was not measured")
        )
        sentences.append(f"an event of `{question.strategy}` costs the same at any number of keys, {how}")
        if question.shards > 1:
            sentences.append(
                "a user's entries are all on one shard (hash tags), so an event goes to that one only"
            )
    # Events that do not search are shared by the shards, and each is simulated with its own.
    rate = question.events if question.strategy in SEARCHES else question.events / question.shards
    sentences.append(
        "events at even distances wait for no other event; at random moments they do (at work they come at random, or "
        f"worse). From a utilisation of {TIME_LEFT:g} on, and of {RANDOM_TO:g} at random moments, p99 is simulated, "
        f"over {EVENTS:,} events ({numbers.ms(1000 * EVENTS / rate)}) from a calm beginning"
    )
    return sentences


def _warnings(basis: Basis, question: Question, work: _Work) -> list[str]:
    sentences = []
    each = question.keys / question.shards
    if basis.room_keys and each > basis.room_keys:
        sentences.append(
            f"more keys than memory: {each:,.0f} on each shard, and about {basis.room_keys:,.0f} fit into the memory "
            "of a server like the measured one"
        )
    if work.utilisation > SIMULATED_TO:
        sentences.append(
            f"{numbers.times(work.utilisation)} what a server can do arrives: for each second of that a bystander "
            f"waits {numbers.ms(1000 * (work.utilisation - 1))} longer"
        )
    return sentences
